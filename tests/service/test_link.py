"""The agents' link: who is let in, what is refused, counted and logged, and when a node is lost."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from kit.service import DEADLINE_S, Agent, Cluster, Running, running
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput
from cosched.model.desk import ContractReason, DeskReport
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from space_scheduler.service.launch.orders import OrderKind, OrderNumbers, Orders
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import Connected, Cut, Say, Send, Ticked
from space_scheduler.service.link.joining import checked_hello


def hello(**given: Any) -> wire.Hello:
    fields: dict[str, Any] = {
        "version": 1,
        "node": "n1",
        "boot_id": "b",
        "procs": 2,
        "memory_bytes": 1 << 30,
        "address": "127.0.0.1",
        "port": 7421,
        "software": "test",
        "session": bytes(8),
    }
    return wire.Hello(**(fields | given))


async def answer(connection: ClientConnection) -> wire.ToAgent:
    async with asyncio.timeout(DEADLINE_S):
        frame = await connection.recv()
    assert isinstance(frame, bytes)
    return wire.to_agent(frame)


async def test_a_welcome_says_who_gives_orders_and_how_often_to_call(service: Running) -> None:
    async with service.dial("node", "n1") as connection:
        await connection.send(wire.encode(hello()))
        welcome = await answer(connection)
        assert isinstance(welcome, wire.Welcome)
        host = service.service.host
        assert welcome.fence == host.fence
        assert (welcome.heartbeat_us, welcome.lease_us) == (1_000_000, 60_000_000)
        assert welcome.contract == service.cluster.config.contract


OURS = wire.Fence("ours", 8, "now")


@pytest.mark.parametrize(
    ("first", "words"),
    [
        (hello(node="n2"), "hello: node: 'n2' with the certificate of node 'n1'; expected one and the same"),
        (hello(procs=0), "sizes or an address that cannot be"),
        (hello(memory_bytes=0), "sizes or an address that cannot be"),
        (hello(port=0), "sizes or an address that cannot be"),
        (hello(address=""), "sizes or an address that cannot be"),
        (hello(cluster="a\nb"), "expected a cluster's name: printable, at most 255 characters"),
        (hello(cluster="x" * 256), "expected a cluster's name"),
        (hello(session=b"short"), "hello: session: 5 bytes; expected 8"),
        (hello(obeyed=wire.Fence("old", 7, "i")), "obeys another journal's scheduler (cluster old, epoch 7); expected"),
        (hello(obeyed=wire.Fence("old", 7, "i")), "or 'cosched scheduler --take-over' if this journal is the one"),
        (hello(obeyed=wire.Fence("ours", 9, "i")), "a newer one drives this lab (is it gone? --take-over)"),
        (hello(obeyed=wire.Fence("ours", 8, "a copy")), "another scheduler with the same epoch, 8"),
        (wire.Prepared(wire.OrderId(1, 1, 1)), "hello: a Prepared; expected a Hello first"),
    ],
)
def test_a_hello_that_is_not_welcome(first: wire.FromAgent, words: str) -> None:
    with pytest.raises(BadInput, match=re.escape(words)):
        checked_hello(first, "n1", OURS)


async def test_agent_that_is_not_welcome_hears_why_and_is_counted_and_logged(service: Running) -> None:
    for first, words in (
        (hello(procs=0), "sizes or an address"),
        (hello(memory_bytes=-1), "Expected `int` >= 0 - at `$.memory_bytes`"),
    ):
        async with service.dial("node", "n1") as connection:
            await connection.send(wire.encode(first))
            refused = await answer(connection)
            assert isinstance(refused, wire.Rejected)
            assert words in refused.reason
            with pytest.raises(ConnectionClosed):
                await answer(connection)
    await service.logged("message refused: hello", "sizes or an address")
    assert service.service.link.refused["hello"] == 2
    assert service.service.book.entry("n1").hello is None


@pytest.mark.parametrize("version", [0, wire.VERSION + 1])
async def test_an_agent_of_a_version_that_is_not_spoken_is_refused_with_both(service: Running, version: int) -> None:
    spoken = f"one from 1 to {wire.VERSION}, which this scheduler speaks"
    words = f"version {version} of the link's messages; expected {spoken}"
    async with service.dial("node", "n1") as connection:
        await connection.send(wire.encode(hello(version=version)))
        refused = await answer(connection)
    assert isinstance(refused, wire.Rejected)
    assert refused.reason == f"{wire.WRONG_VERSION}: {words}"
    assert words in (await service.logged("message refused: version", words))
    assert service.service.link.refused["version"] == 1
    (node,) = [each for each in (await service.get("/v1/nodes"))["nodes"] if each["name"] == "n1"]
    assert (node["refused"], node["version"]) == (refused.reason, None)
    async with service.agent("n1") as agent:
        await agent.beat()
        (node,) = [each for each in (await service.get("/v1/nodes"))["nodes"] if each["name"] == "n1"]
        assert (node["refused"], node["version"]) == ("", wire.VERSION)


async def test_who_does_not_take_the_welcome_does_not_count(service: Running) -> None:
    async with service.agent("n1", agrees=False) as agent:
        assert service.service.book.entry("n1").connected
        await service.get("/v1/cluster")
        assert service.service.book.entry("n1").size is None
        await agent.beat()


async def test_a_fresh_journal_takes_over_when_told_so(cluster: Cluster, make_cluster: Callable[..., Cluster]) -> None:
    async with (
        running(cluster, take_over=True) as service,
        service.agent("n1", obeyed=wire.Fence("old", 1000, "i")) as agent,
    ):
        assert agent.heard_already(wire.Welcome)[0].fence.epoch > 1000
    async with running(cluster) as service, service.agent("n1", obeyed=wire.Fence("old", 1000, "i")):
        pass


def order_number(epoch: int) -> int:
    """That of the first order that a scheduler of this epoch gives for an attempt."""
    return OrderNumbers(epoch).new("n1", (41, 1), OrderKind.PREPARE).n


@pytest.mark.parametrize(
    ("job_id", "state", "last_order", "cluster_id", "last_job_id", "refused"),
    [
        (41, "running", order_number(7), "ours", 40, True),
        (41, "prepared", order_number(7), "ours", 40, True),
        (41, "ended", order_number(7), "ours", 40, False),  # killed as unknown
        (40, "running", order_number(7), "ours", 40, False),
        (41, "running", order_number(8), "ours", 40, False),  # given by this start, which the journal knew later
        (41, "running", 0, "ours", 40, False),  # not known when it was given
        (41, "running", order_number(7), "ours", None, False),  # a take-over
        (41, "running", order_number(7), "another", 40, False),  # whose scheduler gives orders only by a take-over
    ],
)
def test_hello_reporting_job_unknown_to_the_journal_is_rejected(
    job_id: int, state: str, last_order: int, cluster_id: str, last_job_id: int | None, refused: bool
) -> None:
    report = wire.GroupReport(job_id, 1, state, last_order)
    first = hello(groups=(report,), obeyed=wire.Fence(cluster_id, 7, "before"))
    fence = wire.Fence("ours", 8 if cluster_id == "ours" else wire.TAKE_OVER_EPOCH, "now")
    if not refused:
        assert checked_hello(first, "n1", fence, last_job_id=last_job_id) is first
        return
    with pytest.raises(BadInput, match=r"job 41, which this scheduler's journal has never had.*--restore FILE"):
        checked_hello(first, "n1", fence, last_job_id=last_job_id)


async def test_running_job_that_an_older_copy_of_the_journal_does_not_know_goes_on(
    make_cluster: Callable[..., Cluster],
) -> None:
    """The whole way: the state directory of before the job, put on another host; then the same with --take-over."""
    cluster = make_cluster()
    async with running(cluster) as service, service.agent("n1") as agent:
        await agent.beat()
        fence = agent.heard_already(wire.Welcome)[0].fence
    there = (wire.GroupReport(41, 1, "running", order_number(fence.epoch)),)
    async with running(cluster) as service, service.dial("node", "n1") as connection:
        await connection.send(wire.encode(hello(groups=there, obeyed=fence, version=wire.VERSION)))
        told = await answer(connection)
        assert isinstance(told, wire.Rejected)
        assert "job 41, which this scheduler's journal has never had" in told.reason
    async with running(cluster, take_over=True) as service, service.agent("n1", groups=there, obeyed=fence) as agent:
        assert (await agent.heard(wire.Kill)).order.job_id == 41


async def test_a_node_that_is_not_in_the_list(service: Running) -> None:
    async with service.dial("node", "m1") as connection:
        await connection.send(wire.encode(hello(node="m1")))
        refused = await answer(connection)
        assert isinstance(refused, wire.Rejected)
        assert refused.reason == "hello: node: 'm1' is not in this cluster's list of nodes; did you mean 'n1'?"


async def test_a_first_frame_that_is_no_message(service: Running) -> None:
    for frame in (b"\x00", b"", b"\xc1" * 10, b"\x81" * 5000, "text"):
        async with service.dial("node", "n1") as connection:
            await connection.send(frame)
            assert isinstance(await answer(connection), wire.Rejected)


async def test_a_users_certificate_is_no_nodes(service: Running) -> None:
    with pytest.raises(InvalidStatus) as refused:
        async with service.dial("user", "n1"):
            pass
    assert refused.value.response.status_code == 403
    assert "the agents' link is for nodes" in msgspec.json.decode(refused.value.response.body)["message"]


async def test_the_link_is_not_on_the_unix_socket(service: Running) -> None:
    problem = await service.get("/v1/agent", 403)
    assert problem["message"] == "agents come over TLS, with their node's certificate"


async def test_another_authoritys_certificate(service: Running, make_cluster: Callable[..., Cluster]) -> None:
    context = make_cluster().certificate("node", "n1")
    context.load_verify_locations(service.cluster.identity / "ca.pem")  # it trusts us; we do not trust it
    service.cluster.certificate = lambda kind, name: context  # type: ignore[method-assign]
    with pytest.raises((OSError, WebSocketException)):
        async with service.dial("node", "n1") as connection:
            await answer(connection)
    assert not service.service.book.entry("n1").connected


async def test_what_is_not_understood_is_counted_and_said_once(service: Running) -> None:
    async with service.agent("n1") as agent:
        for frame in (b"\xff\xff", msgspec.msgpack.encode({"type": "Reboot"}), b"\x93\x01\x02\x03"):
            await agent.connection.send(frame)
        await agent.connection.send("text")
        unknown = msgspec.msgpack.encode({"type": "GroupEnded", "job_id": 1, "attempt": 1, "sudo": True})
        assert agent.numbering is not None
        await agent.connection.send(agent.numbering.frame(unknown))
        await agent.beat()  # and the connection goes on
        await service.beaten("n1")
        assert service.service.link.refused["undecodable"] == 5
        lines = [line for line in service.log.getvalue().splitlines() if "undecodable" in line]
        assert len(lines) == 1


async def test_who_speaks_another_language_is_cut_off(service: Running) -> None:
    async with service.agent("n1") as agent:
        async with asyncio.timeout(DEADLINE_S):
            for _ in range(100):
                await agent.connection.send(b"\xff")
            await agent.connection.wait_closed()
        await service.logged("agent disconnected")
        assert service.service.link.refused["undecodable"] == 100


async def test_an_oversized_message_ends_the_connection(service: Running) -> None:
    async with service.agent("n1") as agent:
        await agent.connection.send(b"x" * (wire.MAX_FRAME_BYTES + 1))
        async with asyncio.timeout(DEADLINE_S):
            await agent.connection.wait_closed()
        assert agent.connection.close_code == 1009
    await service.logged("message refused: oversized")
    assert service.service.link.refused["oversized"] == 1


async def test_a_second_hello_and_reports_of_unknown_jobs_change_nothing(service: Running) -> None:
    async with service.agent("n1") as agent:
        await agent.say(hello(procs=64))
        await agent.say(wire.Started(wire.OrderId(5, 1, 2), 1))
        assert (await agent.heard(wire.Kill)).order.job_id == 5
        assert (await agent.heard(wire.Forget)).order.job_id == 5
        await agent.say(wire.OutputChunk(77, b"unasked", 7, True))
        await agent.beat()
        await service.beaten("n1")
        assert service.service.link.refused["second hello"] == 1
        assert (await service.get("/v1/cluster"))["procs"] == 2


async def test_one_agent_a_node(service: Running) -> None:
    async with service.agent("n1") as first:
        await first.beat()
        async with service.dial("node", "n1") as connection:
            await connection.send(wire.encode(hello()))
            refused = await answer(connection)
            assert isinstance(refused, wire.Rejected)
            assert "an agent of n1 is connected, heard" in refused.reason
        await first.beat(Presence.PRESENT)
        await service.beaten("n1", Presence.PRESENT)
        assert await service.logged("message refused: hello", "is connected")


async def test_a_silent_connection_is_replaced(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(lease="60s")) as service, service.agent("n1") as first:
        await service.passes(5)
        async with service.agent("n1"):
            await service.logged("agent replaced", "n1")
            async with asyncio.timeout(DEADLINE_S):
                await first.connection.wait_closed()
            assert service.service.book.entry("n1").connected


async def test_an_order_refused_for_another_scheduler_ends_the_connection(service: Running) -> None:
    async with service.agent("n1", answers=False) as agent:
        await service.submit()
        order = (await agent.heard(wire.Prepare)).order
        await agent.say(wire.Refused(order, "fenced", "epoch 9 has been obeyed here"))
        async with asyncio.timeout(DEADLINE_S):
            await agent.connection.wait_closed()
    await service.logged("message refused: fenced", "epoch 9")


async def test_who_reads_too_slowly_is_cut_off(service: Running) -> None:
    async with service.agent("n1") as agent:
        agent.close()  # it reads no more
        session = service.service.link.sessions["n1"]
        order = wire.OrderId(1, 1, 2)
        run = wire.Run(service.service.link.fence, order, b"x" * (1 << 20), ())
        for _ in range(200):
            session.send(run)
        await service.logged("agent reads too slowly", "n1")
        await service.logged("agent disconnected", "n1")


def test_a_lease_is_counted_by_one_clock_and_the_schedulers_own_naps_do_not_count() -> None:
    now_s, gone_at = 100.0, []
    naps = [1.0, 1.0, 3600.0, *[1.0] * 9]  # an hour of suspension in between
    config = ClusterConfig(name="c", nodes=["n1", "n2"], heartbeat="1s", lease="5s")
    fence = wire.Fence("c", 1, "i")
    rules = ServiceCore(config, config.nodes, fence, Orders(config, fence, Ed25519PrivateKey.generate()))
    hello = wire.Hello(wire.VERSION, "n1", "boot", 1, 1 << 30, "127.0.0.1", 1, "test", session=b"s")
    first = rules.handle(Connected("n1", hello, b"t"), now_s)
    assert [type(each) for each in first] == [Say, Send]
    rules.handle(Ticked(), now_s)
    for nap_s in naps:
        now_s += nap_s
        effects = rules.handle(Ticked(), now_s)
        if Cut("n1") in effects:
            gone_at.append(now_s)
    # lost once, after 6 s of those that count; and what was never there is not lost
    assert gone_at == [100 + 1 + 1 + 3600 + 3]
    assert not rules.book.entry("n1").connected


async def test_an_agent_is_an_agent(service: Running) -> None:
    """The scripted agent is refused what a real one would be: it speaks the real protocol."""
    async with service.agent("n1") as agent:
        assert isinstance(agent, Agent)
        with pytest.raises(ValueError, match="at most"):
            await agent.say(wire.ProgramEnded(1, 1, wire.Exit(), b"x" * wire.MAX_FRAME_BYTES))


async def test_an_agent_cannot_fill_the_log(service: Running) -> None:
    job_id = await service.submit()
    async with service.agent("n1") as agent:
        order = (await agent.heard(wire.Prepare)).order
        await service.job_in(job_id, "running")
        reasons = (ContractReason.ASLEEP, ContractReason.RELAXED)
        for number in range(200):
            await agent.say(wire.ProgramEnded(1000 + number, 1, wire.Exit(0)))
            await agent.say(wire.GroupEnded(2000 + number, 1))
            await agent.say(wire.Refused(order, "failed", "whatever it is"))
            await agent.say(wire.Started(wire.OrderId(3000 + number, 1, 1), 1))
            await agent.say(wire.DeskReported(DeskReport(reasons[number % 2])))
            await agent.beat()
        await agent.say(wire.Heartbeat(Usage(), Presence.AWAY, asked_us=7))
        await agent.heard(wire.Turns)
        events = Counter(msgspec.json.decode(line)["event"] for line in service.log.getvalue().splitlines())
    assert events["stray job"] == events["order refused"] == events["node asleep"] == events["node awake"] == 20
    assert max(events.values()) <= 20, events


async def test_reconnections_cannot_fill_the_log(service: Running) -> None:
    for _ in range(25):
        async with service.agent("n1", agrees=False):
            pass
        await service.until(lambda: "n1" not in service.service.link.sessions, "the end to be seen")
    assert service.log.getvalue().count("agent connected") == 20


async def test_answer_of_another_node_to_a_question_is_not_taken(service: Running) -> None:
    async with service.agent("n1", answers=False) as asked, service.agent("n2") as other:
        reading = asyncio.create_task(service.service.link.read_output("n1", 1, 1, "stdout", 0, 100))
        number = (await asked.heard(wire.ReadOutput)).request
        await other.say(wire.OutputChunk(number, b"forged", 6, final=True))
        await other.say(wire.Heartbeat(Usage(), Presence.AWAY, asked_us=7))
        await other.heard(wire.Turns)
        assert not reading.done()
        await asked.say(wire.OutputChunk(number, b"own", 3, final=True))
        found = await reading
    assert found is not None
    assert found.data == b"own"
