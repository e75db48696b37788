"""Requests as they come in: every field checked for type and range before anything is done (``guard.protocol``)."""

import json
import os
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from node_agent.guard.protocol import MAX_PACKET_BYTES, MAX_PERCENT, MAX_ROWS, MAX_SLOT_US, MIN_SLOT_US

_MAX_NUMBER: Final = 2**53  # what JSON carries exactly everywhere
_MAX_GRACE_US: Final = 3_600_000_000
_MAX_TEXT: Final = 4096
_MAX_ARGUMENTS: Final = 4096
_LAST_SIGNAL: Final = 64
_STREAM_DIGITS: Final = 32
_HEX: Final = frozenset("0123456789abcdef")


class Refusal(Exception):
    """A request is refused; ``code`` as in ``cosched.wire.messages.Refused``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Contract(NamedTuple):
    """The cluster's contract."""

    cpu_ratio: float
    memory_ratio: float
    mpl: int


class Relax(NamedTuple):
    """No ceiling until then, in microseconds since boot."""

    until_us: int
    epoch: int


class Tighten(NamedTuple):
    """So much of the contract's ceiling until then, in microseconds since boot: the owner is in pain."""

    ratio: float
    until_us: int


class Arm(NamedTuple):
    """The ceiling holds from now on."""


class Prepare(NamedTuple):
    """Make ready for an attempt at a job; ``memory_bytes`` is a task's, ``umask`` that of all its commands."""

    job: int
    attempt: int
    user: str
    directory: str
    tasks: int
    memory_bytes: int | None
    limit_us: int | None
    grace_us: int
    umask: int = 0o022  # where a record of an earlier version has none


class Spawn(NamedTuple):
    """Start the n-th command of an attempt. ``stream``: its streams are kept for the agent under that name."""

    job: int
    attempt: int
    n: int
    argv: tuple[str, ...]
    env: dict[str, str]
    cwd: str
    script: bool
    output: str | None
    error: str | None
    stream: str | None


class Signal(NamedTuple):
    """Send a signal to a command's process group."""

    job: int
    attempt: int
    n: int
    signal: int


class Kill(NamedTuple):
    """End all of an attempt."""

    job: int
    attempt: int
    grace_us: int


class Forget(NamedTuple):
    """Remove what is left of an attempt."""

    job: int
    attempt: int


class Weigh(NamedTuple):
    """A job's weight against the other jobs here until then; 100 is what all are made with."""

    job: int
    attempt: int
    percent: int
    until_us: int


class Slots(NamedTuple):
    """From ``begin_us`` on, slot after slot: row ``n % len(rows)`` has the CPU.

    Who is in another row runs idle, or is held below a ceiling.
    """

    begin_us: int
    slot_us: int
    rows: tuple[tuple[tuple[int, int], ...], ...]
    until_us: int


class Periods(NamedTuple):
    """A ceiling's periods begin at ``begin_us``, and whole ones from there on, until then."""

    begin_us: int
    until_us: int


class Whose(NamedTuple):
    """Which attempt a process belongs to."""

    pid: int


class List(NamedTuple):
    """All attempts that are known."""


class Status(NamedTuple):
    """The limits in force."""


Request = (
    Contract
    | Relax
    | Tighten
    | Arm
    | Prepare
    | Spawn
    | Signal
    | Kill
    | Forget
    | Weigh
    | Slots
    | Periods
    | Whose
    | List
    | Status
)
_Check = Callable[[object], object]


def decode(packet: bytes, descriptors: int) -> tuple[int, Request | Refusal]:
    """A packet's number and request, or its refusal. Raises :class:`Refusal` where there is not even a number."""
    if len(packet) > MAX_PACKET_BYTES:
        raise Refusal("unknown", f"a packet of {len(packet)} bytes or more; at most {MAX_PACKET_BYTES}")
    try:
        raw = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise Refusal("unknown", f"not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise Refusal("unknown", f"a {type(raw).__name__}; expected an object")
    number = raw.pop("re", None)
    if type(number) is not int or not 0 <= number <= _MAX_NUMBER:
        raise Refusal("unknown", "re: expected a request's number")
    try:
        return number, _request(raw, descriptors)
    except Refusal as refusal:
        return number, refusal


def _request(raw: dict[str, Any], descriptors: int) -> Request:
    kind = raw.pop("do", None)
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise Refusal("unknown", f"do: found {str(kind)[:80]!r}; expected one of {', '.join(_KINDS)}")
    make, checks = known
    if strange := sorted(raw.keys() - checks.keys()):
        raise Refusal("unknown", f"{kind}: unknown field {strange[0][:80]!r}")
    values = {}
    for name, check in checks.items():
        if name not in raw:
            raise Refusal("unknown", f"{kind}: {name} is missing")
        try:
            values[name] = check(raw[name])
        except ValueError as error:
            raise Refusal("unknown", f"{kind}: {name}: {error}") from None
    request = make(**values)
    wanted = 3 + request.script if isinstance(request, Spawn) and request.stream is None else 0
    if isinstance(request, Spawn) and request.script and request.stream is not None:
        raise Refusal("unknown", f"{kind}: stream: a script has its output in files")
    if descriptors != wanted:
        raise Refusal("unknown", f"{kind}: {descriptors} descriptors came along; expected {wanted}")
    return request


def _whole(least: int, most: int = _MAX_NUMBER) -> _Check:
    def check(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise ValueError(f"expected a whole number from {least} to {most}")
        return value

    return check


def _ratio(value: object) -> float:
    if type(value) not in {int, float} or not 0 < value <= 1:  # type: ignore[operator]
        raise ValueError("expected a share above 0, up to 1")
    return float(value)  # type: ignore[arg-type]


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _optional(check: _Check) -> _Check:
    return lambda value: None if value is None else check(value)


def _text(value: object, most: int = _MAX_TEXT) -> str:
    """A text that the kernel takes: no NUL, encodable."""
    if not isinstance(value, str) or len(value) > most or "\0" in value:
        raise ValueError(f"expected a text of at most {most} characters without NUL")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise ValueError("characters that no path can have") from None
    return value


def _name(value: object) -> str:
    name = _text(value, 256)
    if not name or not name.isprintable() or any(character in name for character in "/: "):
        raise ValueError("expected a user's name")
    return name


def _absolute(value: object) -> str:
    path = _text(value)
    if not path.startswith("/"):
        raise ValueError("expected an absolute path")
    return path


def _path(value: object) -> str:
    path = _text(value)
    if not path:
        raise ValueError("expected a path")
    return path


def _stream(value: object) -> str:
    if not isinstance(value, str) or len(value) != _STREAM_DIGITS or set(value) - _HEX:
        raise ValueError(f"expected {_STREAM_DIGITS} hexadecimal digits")
    return value


def _arguments(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_ARGUMENTS:
        raise ValueError(f"expected 1 to {_MAX_ARGUMENTS} arguments")
    arguments = tuple(_text(item, MAX_PACKET_BYTES) for item in value)
    if not arguments[0]:
        raise ValueError("expected a command")
    return arguments


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("expected names and values")
    found = {}
    for name, setting in value.items():
        if not _text(name) or "=" in name:
            raise ValueError(f"{name[:80]!r} is no variable's name")
        found[name] = _text(setting, MAX_PACKET_BYTES)
    return found


def _rows(value: object) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Rows of attempts, each attempt in one of them alone."""
    if not isinstance(value, list) or len(value) > MAX_ROWS or not all(isinstance(row, list) for row in value):
        raise ValueError(f"expected at most {MAX_ROWS} rows, each a list of [job, attempt]")
    rows = tuple(tuple(_attempt(each) for each in row) for row in value)
    named = [each for row in rows for each in row]
    if len(set(named)) < len(named):
        raise ValueError("an attempt is named twice")
    return rows


def _attempt(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or any(type(part) is not int or part < 0 for part in value):
        raise ValueError("expected rows of [job, attempt]")
    return value[0], value[1]


_ATTEMPT: Final[Mapping[str, _Check]] = {"job": _whole(0, 10**18 - 1), "attempt": _whole(0, 10**9 - 1)}
_N: Final = _whole(0, 2**31)
_GRACE: Final = _whole(0, _MAX_GRACE_US)
_KINDS: Final[Mapping[str, tuple[Callable[..., Request], Mapping[str, _Check]]]] = {
    "contract": (Contract, {"cpu_ratio": _ratio, "memory_ratio": _ratio, "mpl": _whole(1, 10**6)}),
    "relax": (Relax, {"until_us": _whole(0), "epoch": _whole(0)}),
    "tighten": (Tighten, {"ratio": _ratio, "until_us": _whole(0)}),
    "arm": (Arm, {}),
    "prepare": (
        Prepare,
        {
            **_ATTEMPT,
            "user": _name,
            "directory": _absolute,
            "tasks": _whole(1, 10**6),
            "memory_bytes": _optional(_whole(1)),
            "limit_us": _optional(_whole(1)),
            "grace_us": _GRACE,
            "umask": _whole(0, 0o777),
        },
    ),
    "spawn": (
        Spawn,
        {
            **_ATTEMPT,
            "n": _N,
            "argv": _arguments,
            "env": _environment,
            "cwd": _absolute,
            "script": _flag,
            "output": _optional(_path),
            "error": _optional(_path),
            "stream": _optional(_stream),
        },
    ),
    "signal": (Signal, {**_ATTEMPT, "n": _N, "signal": _whole(1, _LAST_SIGNAL)}),
    "kill": (Kill, {**_ATTEMPT, "grace_us": _GRACE}),
    "forget": (Forget, _ATTEMPT),
    "weigh": (Weigh, {**_ATTEMPT, "percent": _whole(1, MAX_PERCENT), "until_us": _whole(0)}),
    "slots": (
        Slots,
        {
            "begin_us": _whole(-_MAX_NUMBER),
            "slot_us": _whole(MIN_SLOT_US, MAX_SLOT_US),
            "rows": _rows,
            "until_us": _whole(0),
        },
    ),
    "periods": (Periods, {"begin_us": _whole(-_MAX_NUMBER), "until_us": _whole(0)}),
    "whose": (Whose, {"pid": _whole(1, 2**31 - 1)}),
    "list": (List, {}),
    "status": (Status, {}),
}
