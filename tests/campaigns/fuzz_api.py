"""Requests of all kinds to a running service over its socket: each is answered, and never by a fault (``fuzz``)."""

import asyncio
import json
import random
import tempfile
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from campaigns._inputs import Unexpected, bitten, changed, deep, noise, value
from cosched.config.cluster import ClusterConfig, Listen
from space_scheduler.service.app import Service
from space_scheduler.service.log import Log

_JOB: Final = {
    "script": "#!/bin/sh\ntrue\n", "arguments": ["a", "b"], "tasks": 2, "time_limit_s": 60.0, "memory_bytes": 1 << 20,
    "name": "job", "directory": "/tmp", "output": "o", "error": "e", "environment": {"A": "1"}, "hold": True,
    "requeue": False, "kind": "cpu", "coscheduling": "none",
}  # fmt: skip
_BODIES: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    ("/v1/jobs", _JOB),
    ("/v1/nodes/n1/drain", {"reason": "new disk"}),
    ("/v1/nodes/n1/remove", {"serials": []}),
    ("/v1/tokens", {"label": "x", "life_s": 60.0}),
)
_GETS: Final = (
    "/v1/jobs?user={}", "/v1/jobs?state={}", "/v1/jobs/{}", "/v1/jobs/{}/explain", "/v1/jobs/1/wait?timeout_s={}",
    "/v1/jobs/1/output?offset={}&stream={}", "/v1/history?limit={}&before={}&user={}", "/v1/survey?user={}",
    "/{}", "/v1/{}",
)  # fmt: skip
_HEADERS: Final = ("Content-Encoding", "Content-Type", "Expect", "Authorization", "Cookie", "Range", "Upgrade", "Host")


def run(rng: random.Random, random_count: int, shaped_count: int) -> Counter[str]:
    """A service of its own, in this process."""
    return asyncio.run(_run(rng, [False] * random_count + [True] * shaped_count))


async def _run(rng: random.Random, shapes: list[bool]) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    log = StringIO()
    with tempfile.TemporaryDirectory(prefix="cosched-fuzz-") as made:
        path = Path(made)
        listen = Listen(str(path / "s.sock"))
        config = ClusterConfig(
            name="fuzz", nodes=["n1"], listen=listen, state=str(path / "state"), identity=made, allow_root=True,
            max_submissions_per_minute=0, max_queued=0, max_queued_per_user=0,
        )  # fmt: skip
        service = Service(config, Log(log, people=False))
        await service.start()
        try:
            client = _Client(listen.socket)
            for shaped in shapes:
                request = _shaped(rng) if shaped else _random(rng)
                status = await client.status(request)
                if (status >= 500 and status != 503) or '"trace"' in log.getvalue():
                    raise Unexpected(f"{request[:400]!r}: {status}; {log.getvalue()[-1500:]}")
                log.seek(0)
                log.truncate()
                outcomes[str(status) if status else "hung up"] += 1
            client.close()
        finally:
            await service.stop()
    return outcomes


class _Client:
    """One connection after the other; a request that is none ends it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._writer: asyncio.StreamWriter | None = None
        self._reader: asyncio.StreamReader

    async def status(self, request: bytes) -> int:
        """The answer's status; 0 where there was none."""
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_unix_connection(self._path, limit=1 << 26)
        try:
            async with asyncio.timeout(60):
                self._writer.write(request)
                head = await self._reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                length = next((int(each[15:]) for each in lines if each.startswith(b"content-length:")), None)
                if length is not None:
                    await self._reader.readexactly(length)
                if length is None or b"connection: close" in lines:
                    self.close()
                return int(lines[0].split()[1])
        except (asyncio.IncompleteReadError, ConnectionError):
            self.close()
            return 0
        except TimeoutError:
            raise Unexpected(f"{request[:400]!r}: no answer") from None

    def close(self) -> None:
        """Hang up."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None


def _request(rng: random.Random, method: str, path: str, body: bytes) -> bytes:
    extra = b""
    if rng.random() < 0.1:
        text = "".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(20)))
        header = rng.choice(_HEADERS)
        if header not in ("Expect", "Upgrade"):
            extra = f"{header}: {rng.choice((text, 'gzip', 'deflate', 'br'))}\r\n".encode()
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n".encode() + extra + b"\r\n" + body


def _random(rng: random.Random) -> bytes:
    kind = rng.randrange(10)
    if kind == 0:
        return b"G" + noise(rng) + b"\r\n\r\n"
    if kind <= 3:
        path = rng.choice(_GETS)
        while "{}" in path:
            path = path.replace("{}", quote(_word(rng)[:500], safe=""), 1)
        return _request(rng, "GET", path.replace("wait?", "wait?timeout_s=0&") if "wait" in path else path, b"")
    path, _ = rng.choice(_BODIES)
    if kind <= 6:
        return _request(rng, "POST", path, noise(rng))
    if rng.random() < 0.02:
        return _request(rng, "POST", path, deep(rng))
    return _request(rng, "POST", path, json.dumps(value(rng)).encode())


def _word(rng: random.Random) -> bytes:
    return noise(rng, 20) if rng.random() < 0.5 else str(value(rng, 0)).encode(errors="surrogateescape")


def _shaped(rng: random.Random) -> bytes:
    path, good = rng.choice((_BODIES[0], *_BODIES))
    if rng.random() < 0.2:
        return _request(rng, "POST", path, bitten(rng, json.dumps(good).encode()))
    return _request(rng, "POST", path, json.dumps(changed(rng, good)).encode())
