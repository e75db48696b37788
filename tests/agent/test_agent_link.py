"""The link: who is obeyed, what survives restarts of scheduler, agent and guard, what is told again."""

import asyncio
import os
import signal
import time
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock, Mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.agents import CLUSTER, Cluster, Node, Scheduler, until
from kit.kept_frames import known

from cosched.model.contract import SocialContract
from cosched.model.desk import ContractReason, DeskReport
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.agent import AgentCore
from node_agent.core.fence import order_problem
from node_agent.service.fence import EpochFile
from node_agent.service.link import Link, LinkEnded


def fence(epoch: int, instance: str = "x", cluster_id: str = CLUSTER) -> wire.Fence:
    return wire.Fence(cluster_id, epoch, instance)


class Fenced(Exception):
    """The origin is not obeyed."""


class Obeyed:
    """Who is obeyed, with its file: what an agent has of both."""

    def __init__(self, path: Path) -> None:
        self._file = EpochFile(path)
        self.core = AgentCore("a", "boot", self._file.fence)

    def welcome(self, by: wire.Fence) -> None:
        """Raises Fenced where the agent hangs up."""
        for effect in self.core.handle(happened.Welcomed(by, 1), 0):
            if isinstance(effect, fx.KeepFence):
                before = self.core.fence
                self._file.keep(effect.fence)
                assert self.core.fence == before, "it is obeyed once it is on disk"
                self.core.handle(happened.FenceKept(effect.fence), 0)
            elif isinstance(effect, fx.HangUp):
                raise Fenced(effect.reason)

    def check(self, by: wire.Fence) -> None:
        """Raises Fenced where an order would be refused."""
        if problem := order_problem(self.core.fence, by):
            raise Fenced(problem)


def test_the_highest_epoch_is_on_disk_before_it_is_obeyed(tmp_path: Path) -> None:
    epochs = Obeyed(tmp_path / "epoch")
    assert epochs.core.fence is None
    epochs.welcome(fence(3))
    again = Obeyed(tmp_path / "epoch")
    assert again.core.fence == fence(3)
    again.check(fence(3))
    again.welcome(fence(3))
    with pytest.raises(Fenced, match="epoch 2 is over: epoch 3 has been obeyed here"):
        again.welcome(fence(2))
    for wrong in (fence(2), fence(3, "its double"), fence(3, "x", "other")):
        with pytest.raises(Fenced):
            again.check(wrong)
        with pytest.raises(Fenced):
            again.welcome(wrong)
    with pytest.raises(Fenced):
        again.check(fence(4))
    with pytest.raises(Fenced, match="cosched scheduler --take-over"):
        again.welcome(fence(4, "x", "other"))  # another journal, which was not told to take over
    again.welcome(fence(wire.TAKE_OVER_EPOCH + 7, "x", "other"))
    with pytest.raises(Fenced, match="is over"):
        again.welcome(fence(wire.TAKE_OVER_EPOCH, "x", "third"))  # an older take-over
    assert os.stat(tmp_path / "epoch").st_mode & 0o777 == 0o600


def test_a_damaged_epoch_is_told_and_nobody_is_obeyed(tmp_path: Path) -> None:
    (tmp_path / "epoch").write_bytes(b"{")
    with pytest.raises(ValueError, match="not the highest epoch seen"):
        EpochFile(tmp_path / "epoch")


@given(st.lists(st.tuples(st.integers(1, 5), st.sampled_from("xy"))))
def test_no_order_of_anybody_but_the_last_that_was_welcomed(seen: list[tuple[int, str]]) -> None:
    import tempfile  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as directory:
        epochs = Obeyed(Path(directory) / "epoch")
        best: tuple[int, str] | None = None
        for epoch, instance in seen:
            try:
                epochs.welcome(fence(epoch, instance))
            except Fenced:
                assert best is not None
                assert epoch < best[0] or (epoch == best[0] and instance != best[1])
            else:
                best = (epoch, instance)
        assert EpochFile(Path(directory) / "epoch").fence == (fence(*best) if best else None)


@pytest.fixture
def link() -> Link:
    """One that has not dialled."""
    desk = Mock(
        report=lambda: DeskReport(ContractReason.PRESENT, pauses=1),
        heartbeat=lambda: wire.Heartbeat(Usage(), Presence.AWAY),
    )
    groups = Mock(core=AgentCore("a", "boot", None))
    coscheduler = Mock(signed=lambda beat: beat)
    return Link("wss://x:1/v1/agent", Path(), Mock(), groups, Mock(), desk, coscheduler, Mock(), Mock(), Mock(), Mock())


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (1, ["Heartbeat"]),
        (2, ["OwnersWord", "Heartbeat"]),
        (3, ["OwnersWord", "DeskReported", "Heartbeat"]),
        (4, ["OwnersWord", "DeskReported", "JobsHeld", "Heartbeat"]),
    ],
)
async def test_older_scheduler_is_sent_messages_of_its_version_alone(link: Link, version: int, told: list[str]) -> None:
    """What its decoder knew is kept: anything else it refuses, and leaves who says too much of that."""
    link._outgoing, link._spoken = asyncio.Queue(), version
    link._tell_word(wire.OwnersWord(0.5))
    link._tell_beat()
    messages = [msgspec.msgpack.decode(wire.encode(link._outgoing.get_nowait())) for _ in range(link._outgoing.qsize())]
    assert [message["type"] for message in messages] == told
    for message in messages:
        if message["type"] != "OwnersWord":  # none of the kept ones of version 2
            assert set(message) <= known(version)[message["type"]]


@pytest.mark.parametrize("version", [0, wire.VERSION + 1])
async def test_a_welcome_of_a_version_that_was_not_offered_is_not_taken(link: Link, version: int) -> None:
    welcome = wire.Welcome(version, fence(1), 100_000, 500_000, SocialContract())
    connection: Any = Mock(recv=AsyncMock(return_value=wire.encode(welcome)))
    said = wire.Hello(wire.VERSION, "a", "boot", 1, 1 << 30, "127.0.0.1", 7421, "test")
    words = f"it speaks version {version}, this agent 1 to {wire.VERSION}, and said {wire.VERSION}"
    with pytest.raises(LinkEnded, match=words):
        await link._welcomed(connection, said)
    assert not link._groups.hand_in.called  # type: ignore[attr-defined]


async def first_words(node: Node, scheduler: Scheduler) -> wire.Hello:
    """What an agent says that is started now; another one where it may have waited for its guard in vain: after two
    seconds it joins without what the guard says, and a stall takes longer.
    """
    for _ in range(20):
        said, began_s = len(scheduler.hellos), time.monotonic()
        node.start_agent()
        await until(lambda: len(scheduler.hellos) > said, "the agent to join")  # noqa: B023
        hello = scheduler.hellos[said]
        if hello.enforces or time.monotonic() < began_s + 2.0:
            break
        node.stop_agent()
    return hello


async def test_hello_tells_who_it_is(cluster: Cluster) -> None:
    node = cluster.node("a", start=False)
    node.start_guard()
    async with cluster.scheduler(epoch=7) as scheduler:
        hello = await first_words(node, scheduler)
        assert scheduler.hellos[0].obeyed is None
        assert (hello.node, hello.procs, hello.memory_bytes, hello.port) == ("a", 2, 1_000_000_000, node.port)
        assert (hello.groups, hello.owner.cpu_ratio) == ((), 0.5)
        assert hello.enforces
        scheduler.beats.clear()
        await until(lambda: "a" in scheduler.beats, "the scheduler to be obeyed")
        node.stop_agent()
        said = len(scheduler.hellos)
        node.start_agent()
        await until(lambda: len(scheduler.hellos) > said, "the agent to join again")
        assert scheduler.hellos[said].obeyed == scheduler.fence


async def test_a_job_goes_on_without_scheduler_and_its_end_is_told_once_to_the_next(cluster: Cluster) -> None:
    node = cluster.node("a")
    async with cluster.scheduler() as scheduler:
        await cluster.run(scheduler, f"until [ -e {node.base}/go ]; do sleep 0.05; done; exit 4".encode())
    (node.base / "go").touch()
    await until(lambda: "its script has ended" in node.log.read_text(), "the job to end")
    for epoch in (2, 3):
        async with cluster.scheduler(epoch) as scheduler:
            program = await scheduler.next("a", wire.ProgramEnded)
            assert program.exit == wire.Exit(4)
            if epoch == 2:
                assert scheduler.hellos[0].groups == (wire.GroupReport(5, 1, "running", 2, wire.Exit(4)),)
                await scheduler.order(wire.Kill, 5, 3, grace_us=0)
            await scheduler.next("a", wire.GroupEnded)
            await until(lambda: "a" in scheduler.beats, "a heartbeat after the events")
            assert scheduler.got == []
            if epoch == 3:
                assert scheduler.hellos[0].groups == (wire.GroupReport(5, 1, "ended", 3, wire.Exit(4)),)
                await scheduler.order(wire.Forget, 5, 4)
                await until(lambda: not (node.run / "jobs/5.1").exists(), "the job to be forgotten")
    async with cluster.scheduler(4) as scheduler:
        await until(lambda: "a" in scheduler.beats, "a heartbeat")
        assert (scheduler.hellos[0].groups, scheduler.got) == ((), [])


async def test_a_killed_agent_adopts_what_runs_and_learns_what_has_ended(cluster: Cluster) -> None:
    node = cluster.node("a")
    async with cluster.scheduler() as scheduler:
        await cluster.run(scheduler, b"exec sleep 600")
        await cluster.run(scheduler, f"until [ -e {node.base}/go ]; do sleep 0.05; done; exit 6".encode(), 6)
        node.stop_agent(signal.SIGKILL)
        (node.base / "go").touch()
        await asyncio.sleep(0.3)  # not for being right: so that it usually ends while there is no agent
        node.start_agent()
        assert (await scheduler.next("a", wire.ProgramEnded)).exit == wire.Exit(6)
        groups = {group.job_id: group for group in scheduler.hellos[-1].groups}
        assert groups[5].state == "running"
        assert groups[5].exit is None
        await scheduler.order(wire.Kill, 5, 3, grace_us=0)
        assert (await scheduler.next("a", wire.ProgramEnded)).exit.cause == "killed"
        await scheduler.next("a", wire.GroupEnded, job_id=5)


def make_older(scheduler: Scheduler, version: int, expected: str) -> None:
    """Have it know that version alone of those that are offered, and refuse others with these words."""
    welcome = scheduler.welcome

    def of_before(hello: wire.Hello) -> wire.Welcome | wire.Rejected:
        if hello.version != version:
            return wire.Rejected(f"hello: version: found {hello.version}; expected {expected}")
        found = welcome(hello)
        assert isinstance(found, wire.Welcome)
        return msgspec.structs.replace(found, version=version)

    scheduler.welcome = of_before


async def test_a_scheduler_of_the_version_before_is_spoken_to_in_its_own(cluster: Cluster) -> None:
    """It refuses a hello of a later one with words that the next hello follows; its orders are numbered by kind."""
    node = cluster.node("a")
    async with cluster.scheduler() as scheduler:
        make_older(scheduler, 1, "1")
        await until(lambda: "a" in scheduler.beats, "the agent to join")
        await cluster.run(scheduler, b"exec sleep 600")
        assert [hello.version for hello in scheduler.hellos] == [*range(wire.VERSION, 0, -1)]
        assert [hello.cluster for hello in scheduler.hellos] == [*["test"] * (wire.VERSION - 1), msgspec.UNSET]
        assert "hello: version: found 2; expected 1" in node.log.read_text()
        assert (scheduler.reports, scheduler.held) == ({}, {}), "version 1 refuses what it does not know"
    async with cluster.scheduler(epoch=2) as scheduler:  # upgraded: the job goes on, and can change its shape now
        await until(lambda: "a" in scheduler.beats, "the agent to join")
        assert (scheduler.hellos[0].version, scheduler.hellos[0].groups[0].state) == (wire.VERSION, "running")
        assert "a" in scheduler.reports
        order, grant = wire.OrderId(5, 1, 2 << 20), cluster.grant(5, ("a",), epoch=2, serial=1)
        await scheduler.tell("a", wire.Resize(scheduler.fence, order, 1, 1, (node.peer(),), grant))
        assert len((await scheduler.next("a", wire.Resized)).cpus) == 1
        told = wire.JobHeld(5, 1, order.n, 1, 1)
        await until(lambda: scheduler.held["a"].jobs == (told,), "a heartbeat that says what the node was told")
        await scheduler.order(wire.Kill, 5, (2 << 20) + 1, grace_us=0)
        await scheduler.next("a", wire.GroupEnded)


async def test_another_cluster_that_takes_over_finds_nothing_of_the_last(cluster: Cluster) -> None:
    node = cluster.node("a")
    async with cluster.scheduler() as scheduler:
        await cluster.run(scheduler, b"exec sleep 600")
    async with cluster.scheduler(epoch=wire.TAKE_OVER_EPOCH, cluster_id="d" * 32) as scheduler:
        await until(lambda: not list((node.state / "attempts").iterdir()), "the old job to be gone")
        assert not (node.state / "spool/5.1").exists()


async def test_a_silent_scheduler_is_left_after_its_lease(cluster: Cluster) -> None:
    """It neither answers pings nor says anything: the link is as good as cut."""
    node = cluster.node("a")
    scheduler = cluster.scheduler()
    scheduler.lease_us = 500_000
    async with scheduler:
        await until(lambda: "a" in scheduler.beats, "the agent to join")
        transport = scheduler.links["a"].transport
        transport.pause_reading()
        await until(lambda: len(scheduler.hellos) == 2, "the agent to dial again")
        assert "nothing heard for 0.5 s" in node.log.read_text()
        transport.abort()  # else its end here waits for word of what it does not read
