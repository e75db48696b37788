"""Connections beyond what there is place for: others are let in all the same, nobody stays for ever, nothing spins."""

import asyncio
import gc
import resource
import socket
import tracemalloc
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress

import aiohttp
import msgspec
import pytest
from kit.service import ME, Cluster, Running, running
from kit.waiting import BOUND_S
from websockets.exceptions import WebSocketException

from cosched.config.cluster import Listen
from space_scheduler.service.access import accepting
from space_scheduler.service.access.listen import Limits

HELLO = bytes.fromhex("16030100c8010000c40303")  # how a TLS handshake begins


def calls(service: Running, address: str, said: bytes = b"") -> socket.socket:
    """Somebody who connects to the port from an address of this host's, and says no more than that."""
    made = socket.socket()
    made.bind((address, 0))
    made.connect(("127.0.0.1", service.service.port or 0))
    made.sendall(said)
    made.setblocking(False)
    return made


def open_still(connections: list[socket.socket]) -> int:
    """How many of them the service has not ended."""
    left = 0
    for each in connections:
        try:
            left += bool(each.recv(1))
        except BlockingIOError:
            left += 1
        except OSError:
            pass
    return left


async def welcomed(service: Running, stack: AsyncExitStack) -> None:
    """An agent that calls until it is let in, as agents do: whose handshake takes a second makes room for others."""
    async with asyncio.timeout(BOUND_S):
        while True:
            with suppress(OSError, EOFError, WebSocketException):
                await stack.enter_async_context(service.agent("n1"))
                return


async def test_strangers_are_few_and_an_agent_finds_a_place_among_them(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "PROOF_S", 2 * BOUND_S)  # the strangers do not go by themselves
    limits = Limits.of(1024, 3, 512, 128)
    strangers = [calls(service, f"127.0.0.{2 + number % 200}", HELLO if number % 2 else b"") for number in range(600)]
    most = limits.arrived + limits.handshakes
    await service.until(lambda: open_still(strangers) <= most, "no more than there are places for")
    async with AsyncExitStack() as stack:
        await welcomed(service, stack)
        assert 0 < open_still(strangers) <= most
        assert service.log.getvalue().count("too many connections") <= 1
    async with service.http.get("/metrics") as answer:
        assert "cosched_connections_refused_total 0.0" not in await answer.text()
    for each in strangers:
        each.close()


@pytest.mark.parametrize("said", [b"", HELLO])
async def test_a_stranger_does_not_stay(service: Running, said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "PROOF_S", 0.2)
    monkeypatch.setattr(accepting, "HANDSHAKE_S", 0.2)
    stranger = calls(service, "127.0.0.9", said)
    await service.until(lambda: not open_still([stranger]), "ended")
    stranger.close()


async def test_who_shows_neither_certificate_nor_token_does_not_stay(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accepting, "PROOF_S", 0.2)
    secured = service.cluster.certificate("user", "nobody")
    secured = type(secured)(secured.protocol)
    secured.load_verify_locations(service.cluster.identity / "ca.pem")
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", service.service.port, ssl=secured, server_hostname="scheduler"
    )
    async with asyncio.timeout(BOUND_S):
        assert await reader.read() == b""
    writer.close()


async def test_one_user_has_so_many_connections(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(operators=[ME])
    cluster.config = msgspec.structs.replace(
        cluster.config, listen=Listen(str(cluster.socket), "127.0.0.1", 0, max_connections_per_user=3)
    )
    async with running(cluster) as service:
        kept = []
        for _ in range(3):
            each = socket.socket(socket.AF_UNIX)
            each.connect(str(cluster.socket))
            kept.append(each)
        reader, writer = await asyncio.open_unix_connection(str(cluster.socket))
        answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"too many connections of yours" in answer
        writer.close()
        async with service.agent("n1"):  # agents have places of their own
            for each in kept:
                each.close()
            assert (await service.get("/healthz")) == {"accepting": True}


async def test_without_descriptors_nothing_spins(service: Running) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(3)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, before[1]))
        for each in waiting:
            each.connect(str(service.cluster.socket))
        await service.logged("no connection can be accepted")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
    assert service.log.getvalue().count("no connection can be accepted") == 1
    assert (await service.get("/healthz")) == {"accepting": True}  # it goes on by itself
    for each in waiting:
        each.close()


async def test_long_lists_are_made_one_at_a_time(service: Running) -> None:
    host = service.service.host
    now, most, true_history = 0, 0, host.history

    async def counted(**given: object) -> object:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        try:
            return await true_history(**given)  # type: ignore[arg-type]
        finally:
            now -= 1

    host.history = counted  # type: ignore[method-assign, assignment]
    async with aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(service.cluster.socket))) as http:
        asked = [asyncio.create_task(http.get("http://x/v1/history?limit=1000")) for _ in range(60)]
        for each in asked:
            (await each).close()
    assert most == 1


@pytest.mark.slow
async def test_a_reader_that_goes_away_leaves_nothing_of_its_list(service: Running) -> None:
    for _ in range(80):
        job_id = await service.submit(hold=True, directory="/" + "long/" * 800)
        await service.post(f"/v1/jobs/{job_id}/cancel")
    list_bytes = len(msgspec.json.encode(await service.get("/v1/history?limit=1000")))
    assert list_bytes > 256 * 1024, "more than the kernel keeps for who does not read"
    loop = asyncio.get_running_loop()
    gc.disable()  # lists in cycles would stay
    tracemalloc.start()
    try:
        for _ in range(20):
            with socket.socket(socket.AF_UNIX) as reader:
                reader.setblocking(False)
                await loop.sock_connect(reader, str(service.cluster.socket))
                await loop.sock_sendall(reader, b"GET /v1/history?limit=1000 HTTP/1.1\r\nHost: x\r\n\r\n")
                assert await loop.sock_recv(reader, 9)
        await service.until(lambda: tracemalloc.get_traced_memory()[0] < 5 * list_bytes, "lists let go of")
    finally:
        tracemalloc.stop()
        gc.enable()


@pytest.mark.parametrize("descriptors", [256, 1024, 4096, 1 << 20])
@pytest.mark.parametrize("nodes", [0, 3, 200])
def test_agents_have_their_descriptors(descriptors: int, nodes: int) -> None:
    limits = Limits.of(descriptors, nodes, 512, 128)
    assert limits.agents >= 2 * nodes
    assert limits.needed <= descriptors or descriptors < 64 + 4 * 32 + 2 * max(64, nodes)


async def test_a_users_connection_reads_little_at_once(service: Running) -> None:
    """What it has read is held while its body waits for its turn: 384 connections of three users at asyncio's 256 KiB
    were 96 MiB.
    """
    await service.get("/v1/cluster")
    held = list(service.service.acceptor._users)
    assert held
    assert {each.transport.max_size for each in held} == {16 << 10}  # type: ignore[union-attr]
