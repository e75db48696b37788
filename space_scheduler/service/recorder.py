"""A record of all that happened to a live service, to be taken in again by ``ServiceCore``: 3 a.m. on a laptop.

A file of MessagePack values, one after the other: a head, then for each input the time, the input and its effects.
Grants are left out (they are signatures, by a key that is not in the record); the scripts and environments of jobs are
in it, so the file is its owner's alone.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import cosched
from cosched.config.cluster import ClusterConfig
from cosched.errors import Failed
from cosched.wire import messages as wire
from space_scheduler.service.launch.orders import Orders
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import AnyInput, Effect, Send

_FORMAT: Final = "cosched inputs 1"
_LENGTH_BYTES: Final = 4
#: The longest value that is believed: a Started with every live job is the largest there is.
_MOST_BYTES: Final = 1 << 30
#: Of an input and of effects that differ, so many characters are told.
_WORDS: Final = 2000


class Head(msgspec.Struct, frozen=True):
    """What a record begins with: by what it was made, and what the core was made of."""

    format: str
    software: str
    config: ClusterConfig
    nodes: tuple[str, ...]
    fence: wire.Fence


class Recorded(msgspec.Struct, frozen=True, array_like=True):
    """An input, when it came (seconds of the service's clock), and the bytes of its effects."""

    now_s: float
    happened: AnyInput
    effects: bytes


class Difference(msgspec.Struct, frozen=True):
    """The first input whose effects are others than they were."""

    number: int
    happened: str
    was: str
    now: str


class Replayed(msgspec.Struct, frozen=True):
    """What became of a record that was taken in again; ``torn``: its last value is not whole."""

    software: str
    inputs: int
    effects: int
    difference: Difference | None = None
    torn: bool = False


_encoder: Final = msgspec.msgpack.Encoder()
_head: Final = msgspec.msgpack.Decoder(Head)
_recorded: Final = msgspec.msgpack.Decoder(Recorded)


class Recorder:
    """Writes a record. Raises ``Failed`` where there is a file already, or none can be made."""

    def __init__(
        self, path: Path, config: ClusterConfig, nodes: Sequence[str], fence: wire.Fence, say: Callable[[str], None]
    ) -> None:
        """``say`` is told when the record ends before the service does, and why."""
        self._say = say
        try:
            self._file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb", buffering=0)
        except OSError as error:
            raise Failed(f"record: {path} cannot be made: {error.strerror}") from None
        self.problem = ""
        self._write(_encoder.encode(Head(_FORMAT, cosched.__version__, config, tuple(nodes), fence)))

    def __call__(self, now_s: float, happened: AnyInput, effects: list[Effect]) -> None:
        """Keep what has happened. A disk that is full ends the record, not the service."""
        if self.problem:
            return
        try:
            self._write(_encoder.encode(Recorded(now_s, happened, comparable(effects))))
        except OSError as error:
            self.problem = f"it ends here: {error.strerror}"
            self._say(self.problem)

    def _write(self, value: bytes) -> None:
        view = memoryview(len(value).to_bytes(_LENGTH_BYTES, "big") + value)
        while view:  # nothing waits in this process: what a full disk does not take is nobody's at the end
            view = view[self._file.write(view) :]

    def close(self) -> None:
        """That was all."""
        self._file.close()


def comparable(effects: Sequence[Effect]) -> bytes:
    """Effects as bytes, without the signatures in them."""
    return _encoder.encode(
        [
            msgspec.structs.replace(each, message=msgspec.structs.replace(each.message, grant=b""))
            if isinstance(each, Send) and isinstance(each.message, wire.Prepare)
            else each
            for each in effects
        ]
    )


def take_in_again(path: Path) -> Replayed:
    """Take a record in; stops at the first difference. Raises ``Failed`` for a file that is none."""
    values = _values(path)
    try:
        head = _head.decode(next(values, None) or b"")
    except msgspec.DecodeError:
        raise Failed(f"record: {path} is no record of a scheduler's inputs") from None
    if head.format != _FORMAT:
        raise Failed(f"record: {path} is of the format {head.format!r}; this software reads {_FORMAT!r}")
    orders = Orders(head.config, head.fence, Ed25519PrivateKey.generate())
    rules = ServiceCore(head.config, head.nodes, head.fence, orders)
    inputs = count = 0
    for value in values:
        if value is None:
            return Replayed(head.software, inputs, count, torn=True)
        try:
            found = _recorded.decode(value)
        except msgspec.DecodeError as error:
            raise Failed(f"record: {path}: input {inputs + 1} cannot be read: {error}") from None
        effects = rules.handle(found.happened, found.now_s)
        inputs, count = inputs + 1, count + len(effects)
        if (now := comparable(effects)) != found.effects:
            words = str(found.happened)[:_WORDS]
            return Replayed(head.software, inputs, count, Difference(inputs, words, _words(found.effects), _words(now)))
    return Replayed(head.software, inputs, count)


def _words(effects: bytes) -> str:
    return str(msgspec.msgpack.decode(effects))[:_WORDS]


def _values(path: Path) -> Iterator[bytes | None]:
    """The values of a file; None at last where one is not whole (the service was killed as it wrote)."""
    try:
        with path.open("rb") as file:
            while length := file.read(_LENGTH_BYTES):
                size = int.from_bytes(length, "big")
                value = file.read(size) if size <= _MOST_BYTES else b""
                if len(length) < _LENGTH_BYTES or len(value) < size:
                    yield None
                    return
                yield value
    except OSError as error:
        raise Failed(f"record: {path} cannot be read: {error.strerror}") from None
