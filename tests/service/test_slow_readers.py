"""Readers that do not read: they hold little, others notice nothing, and they are cut off and counted."""

import asyncio
import socket
from collections.abc import Callable
from itertools import count

from kit.service import Cluster, running

from cosched.wire import messages as wire

MIB = 1 << 20


def asks(cluster: Cluster, path: str) -> socket.socket:
    """A client with a small buffer that asks, and reads no word of the answer."""
    client = socket.socket(socket.AF_UNIX)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(str(cluster.socket))
    client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    return client


def ended(client: socket.socket) -> bool:
    """Whether the service has closed its end (what was sent before is read away)."""
    client.setblocking(False)
    try:
        while client.recv(1 << 20):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


async def test_who_follows_output_and_does_not_read_is_cut_off(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(slow_reader="400ms")
    async with running(cluster) as service, service.agent("n1") as agent:
        job_id = await service.runs()
        agent.spool["stdout"] = b"x" * 64 * MIB
        readers = service.service.readers
        readers._now_s = count(0.0, 0.05).__next__  # a stall of the machine is one look, however long
        slow = asks(cluster, f"/v1/jobs/{job_id}/output?follow=1")
        await agent.heard(wire.ReadOutput)
        got = 0
        async with service.http.get(f"/v1/jobs/{job_id}/output") as good:
            async for piece in good.content.iter_chunked(MIB):
                got += len(piece)
        assert got == 64 * MIB, "who reads gets all"
        await service.until(lambda: readers.cut == 1, "cut off")
        await service.until(lambda: ended(slow), "closed")
        asked = [each for each in agent.heard_already(wire.ReadOutput) if each.offset]
        of_slow = len(agent.heard_already(wire.ReadOutput)) - 64 * MIB // wire.MAX_CHUNK_BYTES
        assert asked
        assert of_slow <= 8, "no more is fetched than the reader takes"
        await service.logged("reader is too slow")
        assert "cosched_slow_readers_total 1.0" in await service.text("/metrics")
        slow.close()


async def test_who_asks_for_a_list_and_does_not_read_is_cut_off(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(slow_reader="400ms")
    async with running(cluster) as service:
        await asyncio.gather(*(service.submit(name="n" * 128) for _ in range(600)))
        clients = [asks(cluster, "/v1/jobs") for _ in range(5)]
        await service.until(lambda: service.service.readers.cut == 5, "all cut off")
        await service.until(lambda: all(ended(each) for each in clients), "all closed")
        assert len((await service.get("/v1/jobs"))["jobs"]) == 600
        for each in clients:
            each.close()


async def test_a_slow_one_that_reads_is_left_alone(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(slow_reader="2s")
    async with running(cluster) as service, service.agent("n1") as agent:
        job_id = await service.runs()
        agent.spool["stdout"] = b"x" * 64 * MIB
        idle = asks(cluster, f"/v1/jobs/{job_id}/output")
        client = asks(cluster, f"/v1/jobs/{job_id}/output")
        readers = service.service.readers
        readers._now_s = count(0.0, 0.05).__next__
        taken = 0
        while not readers.cut:  # until the one that reads nothing is cut off, and then some
            taken += len(await asyncio.to_thread(client.recv, 64 << 10))
            await asyncio.sleep(0.02)
            readers.look()
        await service.until(lambda: ended(idle), "closed")
        for _ in range(10):
            taken += len(await asyncio.to_thread(client.recv, 64 << 10))
        assert readers.cut == 1
        assert MIB < taken < 64 * MIB, "it is still at it"
        client.close()
        idle.close()
