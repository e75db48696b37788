"""What is said on a node: at the desk's socket, at the agent's by anybody, at the launch port by another agent."""

import asyncio
import json
import os
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import msgspec
from kit.desk_alone import LIMITS

from campaigns._inputs import Unexpected, bitten, changed, noise
from cosched.errors import BadInput
from cosched.identity.authority import create_authority, issue
from cosched.identity.grants import load_grant_key
from cosched.wire.grant import Grant, signed
from cosched.wire.stream import Kind, frame
from node_agent.guard.base.records import Records
from node_agent.guard.desk.doors import Peer
from node_agent.guard.desk.owners_word import OwnersWord
from node_agent.guard.desk.pause import Pause
from node_agent.guard.desk.switch import Desk, Reach
from node_agent.service.commands import Wanted
from node_agent.service.rsh_proxy import Away, Call, Ending, NotAllowed, RshProxy, _call, _request

_UIDS: Final = (0, 1, 61001, 2**32 - 2)
_CHALLENGE: Final = bytes(16)
_AT_DESK: Final = (
    {"do": "pause", "seconds": 5.0}, {"do": "end", "job": 12}, {"do": "ban", "user": "bob", "seconds": 60},
    {"do": "hours", "windows": [[1080, 480, [0, 1, 2]]]}, {"do": "share", "cpu_ratio": 0.25},
)  # fmt: skip
_REQUEST: Final = {
    "host": "b", "command": "true", "id": "0" * 32, "stdout": 0, "stderr": 0, "again": False,
}  # fmt: skip


def desk(rng: random.Random, random_count: int, shaped_count: int) -> Counter[str]:
    """Packets to the guard's desk, with what it does about them; only its loop is left out."""
    outcomes: Counter[str] = Counter()
    loop: Any = SimpleNamespace(watch=lambda *_, **__: None, unwatch=lambda *_: None)
    with tempfile.TemporaryDirectory(prefix="cosched-fuzz-") as made:
        directory = os.open(made, os.O_RDONLY | os.O_DIRECTORY)
        pidfd = os.pidfd_open(os.getpid())
        records = Records(directory)
        reach = Reach(
            lambda *_: None,
            lambda _: None,
            lambda on: on,
            list,
            lambda _: [],
            list,
            lambda _: False,
            lambda: LIMITS,
            lambda: None,
        )
        pause = Pause(records, opted_out=False)
        made_desk = Desk(loop, made, records, pause, OwnersWord(records), (), os.geteuid(), reach)
        try:
            for packet in _packets(rng, random_count, shaped_count, *_AT_DESK):
                peer = Peer(os.getpid(), rng.choice(_UIDS), pidfd)
                answer = _tried(packet, lambda packet=packet, peer=peer: made_desk._heard(packet, peer))  # type: ignore[misc]
                outcomes[str(json.loads(answer).get("error", "done"))] += 1
        finally:
            made_desk.close()
            os.close(pidfd)
            os.close(directory)
    return outcomes


def local(rng: random.Random, random_count: int, shaped_count: int) -> Counter[str]:
    """What a caller says to the agent, up to a request that names host and command, or a refusal."""

    async def said(data: bytes) -> str:
        reader = asyncio.StreamReader()
        reader.feed_data(data)
        reader.feed_eof()
        try:
            await _request(reader)
        except NotAllowed:
            return "refused"
        except asyncio.IncompleteReadError:
            return "cut off"
        return "understood"

    async def all_said() -> Counter[str]:
        outcomes: Counter[str] = Counter()
        for packet in _packets(rng, random_count, shaped_count, _REQUEST):
            data = packet if rng.random() < 0.2 else frame(rng.choice((Kind.REQUEST, Kind.REQUEST, Kind.STDIN)), packet)
            try:
                outcomes[await said(data)] += 1
            except Exception as error:
                raise Unexpected(f"{data[:400]!r}: {type(error).__name__}: {error}") from error
        return outcomes

    return asyncio.run(all_said())


def launch(rng: random.Random, random_count: int, shaped_count: int) -> Counter[str]:
    """Calls of another agent's, with everything that is checked before a command would run."""
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="cosched-fuzz-") as made:
        authority, identity = Path(made) / "authority", Path(made) / "b"
        create_authority(authority, "fuzz")
        issue(authority, "node", "b", identity)
        config = SimpleNamespace(name="b", paths=SimpleNamespace(identity=str(identity)))
        nobody = SimpleNamespace(get=lambda *_: None)
        groups: Any = SimpleNamespace(config=config, core=nobody)
        unused: Any = SimpleNamespace(on_change=[])
        rsh_proxy = RshProxy(groups, unused, unused, unused, unused)
        grant = signed(Grant("c" * 32, 1, 5, 1, "root", ("a", "b")), load_grant_key(authority))
        good = Call(grant, "b", "a", Wanted("true", "0" * 32, 0, 0, again=False), _CHALLENGE)
        document = msgspec.msgpack.decode(msgspec.msgpack.encode(good))

        def called(data: bytes) -> str:
            try:
                rsh_proxy._allowed(_call(data, "a", _CHALLENGE), "a")
            except (NotAllowed, Ending, Away, BadInput) as error:
                return "refused" if "not prepared" not in str(error) else "understood"
            return "allowed"

        for number in range(random_count + shaped_count):
            data = noise(rng)
            if number >= random_count:
                shaped = changed(rng, document) if rng.random() < 0.7 else document
                try:
                    data = msgspec.msgpack.encode(shaped)
                except (ValueError, TypeError, OverflowError, RecursionError):
                    data = noise(rng)
                data = bitten(rng, data) if rng.random() < 0.3 else data
            outcomes[_tried(data, lambda data=data: called(data))] += 1  # type: ignore[misc]
    return outcomes


def _packets(rng: random.Random, random_count: int, shaped_count: int, *good: dict[str, Any]) -> list[bytes]:
    """Noise, and good documents with some of them changed."""
    shaped = []
    for _ in range(shaped_count):
        try:
            data = json.dumps(changed(rng, rng.choice(good))).encode(errors="replace")
        except (ValueError, RecursionError):
            data = noise(rng)
        shaped.append(bitten(rng, data) if rng.random() < 0.3 else data)
    return [*(noise(rng) for _ in range(random_count)), *shaped]


def _tried(data: bytes, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        raise Unexpected(f"{data[:400]!r}: {type(error).__name__}: {error}") from error
