"""Bodies that are none, come compressed, never end, or are too many: a message each, and no trace in the log."""

import asyncio
import json
import socket

import pytest
from kit.service import Running
from kit.waiting import BOUND_S

from node_agent.guard.base.requests import MAX_PACKET_BYTES
from space_scheduler.service.access.problems import Refusal
from space_scheduler.service.api import bodies
from space_scheduler.service.api.places import Places
from space_scheduler.service.api.submissions import MAX_LAUNCH_BYTES

DEEP = b"[" * 100_000


async def answered(service: Running, head: str, body: bytes = b"", path: str = "/v1/jobs") -> tuple[int, str]:
    """What the service says to a request by hand: status and message."""
    reader, writer = await asyncio.open_unix_connection(str(service.cluster.socket))
    writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{head}\r\n".encode() + body)
    try:
        async with asyncio.timeout(BOUND_S):
            answer = await reader.read()
    finally:
        writer.close()
    status, _, rest = answer.partition(b"\r\n")
    told = rest.partition(b"\r\n\r\n")[2]
    return int(status.split()[1]), json.loads(told)["message"] if told.startswith(b"{") else ""


async def test_a_compressed_body_is_refused_and_nothing_logged(service: Running) -> None:
    for _ in range(50):
        head = "Content-Encoding: gzip\r\nContent-Length: 5\r\n"
        assert await answered(service, head, b"noise") == (
            415,
            "bodies are taken as they are, not compressed (Content-Encoding)",
        )
    assert '"trace"' not in service.log.getvalue()


async def test_a_body_that_is_nested_too_deeply(service: Running) -> None:
    for path in ("/v1/jobs", "/v1/nodes/n1/drain", "/v1/nodes/n1/remove", "/v1/tokens"):
        status, message = await answered(service, f"Content-Length: {len(DEEP)}\r\n", DEEP, path)
        assert (status, message[:15]) == (400, "body: not JSON:"), path
    assert '"trace"' not in service.log.getvalue()


async def test_a_body_in_broken_pieces(service: Running) -> None:
    status, _ = await answered(service, "Transfer-Encoding: chunked\r\n", b"5\r\nabcde\r\nzz\r\n")
    assert status == 400
    assert '"trace"' not in service.log.getvalue()


async def test_long_bodies_that_never_end_are_few(service: Running) -> None:
    head = f"POST /v1/jobs HTTP/1.1\r\nHost: x\r\nContent-Length: {bodies.MAX_BODY_BYTES}\r\n\r\n".encode()
    unfinished = []
    for _ in range(5):
        each = socket.socket(socket.AF_UNIX)
        each.connect(str(service.cluster.socket))
        each.sendall(head + b"[")
        unfinished.append(each)
    # one is read and four wait: whichever are there, one more is too many as soon as all are
    async with asyncio.timeout(BOUND_S):
        while (answer := await answered(service, f"Content-Length: {bodies.SHORT_BYTES + 1}\r\n"))[0] != 429:
            pass
    assert "5 long bodies of" in answer[1]
    assert await service.submit(), "a short one passes them"
    for each in unfinished:
        each.close()


async def test_a_user_who_holds_his_places_holds_nobody_elses() -> None:
    places = Places(1, 3, 1)
    async with places.place_of("a", "bodies"):
        waiting = asyncio.create_task(_enter(places, "a"))
        await asyncio.sleep(0)
        with pytest.raises(Refusal, match="2 bodies of a are here already"):
            await _enter(places, "a")
        async with places.place_of("b", "bodies"):
            assert not waiting.done()
    await waiting
    await _enter(places, "a")


async def _enter(places: Places, user: str) -> None:
    async with places.place_of(user, "bodies"):
        pass


def test_what_is_accepted_fits_into_a_packet_to_the_guard() -> None:
    assert MAX_LAUNCH_BYTES + (32 << 10) <= MAX_PACKET_BYTES
