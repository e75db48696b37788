"""The agent's coscheduling with a real guard and real jobs: done by the scheduler's word, undone by its silence."""

import asyncio
import contextlib
import itertools
import os
import signal
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import pytest
from kit.guards import RealGuard
from kit.waiting import BOUND_S

from cosched.config.node import Cgroups, Launch, NodeConfig, SchedulerLink
from cosched.linux.cgroups import PERIOD_US
from cosched.linux.process import boottime_us
from cosched.model.coscheduling import Receives
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from node_agent.core.attempt import Attempt
from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardGone, Message
from node_agent.policy.modes import LEASE_US
from node_agent.service import coscheduler
from node_agent.service.coscheduler import Coscheduler
from node_agent.service.guard import Guard

SLOT_US = 20_000
AHEAD_US = 12_345_678  # of this node's clock the scheduler's is
_BEAT = wire.Heartbeat(Usage(), Presence.AWAY)
Kind = TypeVar("Kind", requests.Slots, requests.Periods)


async def becomes(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def coscheduling(guard: Any, group: str = "nowhere") -> Coscheduler:
    """That of a node with jobs 1 and 2."""
    config = NodeConfig(
        name="n1", cluster="c", procs=1, memory_bytes=1 << 30, scheduler=SchedulerLink("wss://x:1/v1/agent"),
        launch=Launch("127.0.0.1"), cgroup=Cgroups(cosched=group),
    )  # fmt: skip
    fence = wire.Fence("c", 1, "i")
    orders = {
        job: wire.Prepare(fence, wire.OrderId(job, 1, 1), "u", (), 1, None, None, 0, "/", {}, b"") for job in (1, 2)
    }
    return Coscheduler(config, guard, [Attempt(job, 1, "boot", "c", prepare) for job, prepare in orders.items()])


def told_at(now_us: int, mode: str = "gang", rows: int = 2, contended: bool = True) -> wire.Turns:
    turns = tuple(wire.Turn(job, 1, mode, 0.5, job - 1, rows) for job in (1, 2))
    return wire.Turns(now_us, now_us + AHEAD_US, SLOT_US, contended, turns)


class Node:
    """An agent's coscheduling on top of a guard; jobs 1 and 2 run."""

    def __init__(self, guard: RealGuard) -> None:
        for job in (1, 2):
            guard.prepare(job)
            guard.spawn(["sh", "-c", "while :; do :; done"], job)
        guard.hang_up()
        self.guard = Guard(f"{guard.directory}/run/guard.sock", lambda message: None, self._connected)
        self.coscheduler = coscheduling(self.guard, guard.group)

    async def _connected(self) -> None:
        self.coscheduler.guard_is_new()

    def told(self, mode: str = "gang", rows: int = 2, contended: bool = True) -> None:
        self.coscheduler.told(told_at(boottime_us(), mode, rows, contended))

    async def levers(self) -> list[list[int]]:
        found = (await self.guard.ask(requests.Status()))["levers"]
        assert isinstance(found, list)
        return found

    async def until(self, some: bool) -> None:
        """Wait for turns, which the scheduler tells of again and again, or for none."""
        async with asyncio.timeout(BOUND_S):
            while True:
                if some:
                    self.told()
                with contextlib.suppress(GuardGone):  # a guard that has just come back may still be busy
                    if bool(await self.levers()) == some:
                        return
                await asyncio.sleep(0.02)


def overheard(node: Node, kind: type[Kind], monkeypatch: pytest.MonkeyPatch) -> list[Kind]:
    """The requests of this kind that the guard is asked from now on."""
    asked: list[Kind] = []
    ask = node.guard.ask

    async def heard(request: requests.Request, fds: Sequence[int] = ()) -> Message:
        if isinstance(request, kind):
            asked.append(request)
        return await ask(request, fds)

    monkeypatch.setattr(node.guard, "ask", heard)
    return asked


@pytest.fixture
async def node(guard: RealGuard) -> AsyncIterator[Node]:
    made = Node(guard)
    tasks = [asyncio.create_task(made.guard.keep()), asyncio.create_task(made.coscheduler.keep())]
    try:
        async with asyncio.timeout(60):
            await made.guard.ready.wait()
        yield made
    finally:
        for task in tasks:
            task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks, return_exceptions=True)


class NodeInMadeTime:
    """The same without a guard and jobs: what it is asked for, and when, while the scheduler is heard as often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_us = 10**9
        self.asked: list[tuple[int, requests.Request]] = []
        self.coscheduler = coscheduling(self)
        monkeypatch.setattr(coscheduler, "boottime_us", lambda: self.now_us)
        monkeypatch.setattr(Coscheduler, "_look", lambda *_: None)

    async def ask(self, request: requests.Request) -> Message:
        self.asked.append((self.now_us, request))
        return {}

    async def lives(self, for_us: int, *, heard: bool, **turns: Any) -> None:
        end_us = self.now_us + for_us
        while self.now_us < end_us:
            if heard:
                self.coscheduler.told(told_at(self.now_us, **turns))
            await self.coscheduler._step()
            self.now_us += 250_000


async def test_turns_are_kept_while_the_scheduler_is_heard_and_end_with_its_silence(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = NodeInMadeTime(monkeypatch)
    await node.lives(5 * LEASE_US, heard=True)
    asked = [(at_us, each) for at_us, each in node.asked if isinstance(each, requests.Slots)]
    assert len(asked) > 5
    for (_, before), (at_us, after) in itertools.pairwise(asked):
        assert before.rows == after.rows == (((1, 1),), ((2, 1),))
        assert at_us < before.until_us <= after.until_us, "said again, they go on"
    await node.lives(2 * LEASE_US, heard=False)
    assert all(request.until_us <= node.now_us for _, request in node.asked if isinstance(request, requests.Slots))
    count = len(node.asked)
    await node.lives(2 * LEASE_US, heard=False)
    assert len(node.asked) == count


async def test_cpu_ceilings_are_synchronised_in_every_mode_while_the_scheduler_is_heard(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node = NodeInMadeTime(monkeypatch)
    await node.lives(5 * LEASE_US, heard=True, mode="none", rows=0, contended=False)
    asked = [(at_us, each) for at_us, each in node.asked if isinstance(each, requests.Periods)]
    assert len(asked) > 5
    for (before_us, before), (at_us, _) in itertools.pairwise(asked):
        assert at_us - before_us >= LEASE_US // 2, "no oftener than that"
        assert at_us < before.until_us, "again before its time is over"
    for at_us, request in asked:
        off_us = (request.begin_us + AHEAD_US) % PERIOD_US
        assert min(off_us, PERIOD_US - off_us) <= 1_000
        assert request.until_us <= at_us + LEASE_US


async def test_turns_end_at_once_when_nobody_competes_any_more(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    node.told()
    await node.until(True)
    asked = overheard(node, requests.Slots, monkeypatch)
    node.told(contended=False)
    await node.until(False)
    assert asked, "not by the lease's end"
    assert not asked[-1].rows


async def test_a_heartbeat_tells_of_the_clock_and_of_what_jobs_do(node: Node) -> None:
    assert node.coscheduler.signed(_BEAT).clock_bound_us == -1
    node.told(mode="none", rows=0)
    wanted = {(1, 1): Receives.NOTHING.value, (2, 1): Receives.NOTHING.value}

    def seen() -> bool:
        beat = node.coscheduler.signed(_BEAT)
        return {(sign.job_id, sign.attempt): sign.receives for sign in beat.jobs} == wanted

    await becomes(seen)
    beat = node.coscheduler.signed(_BEAT)
    assert 0 <= beat.clock_bound_us < SLOT_US
    assert beat.asked_us <= boottime_us()
    assert beat.raises == 0
    assert not await node.levers()


async def test_a_mode_of_a_newer_scheduler_is_plain_linux(node: Node) -> None:
    node.told(mode="psychic", rows=0)
    await becomes(lambda: len(node.coscheduler.signed(_BEAT).jobs) == 2)  # it has been taken in
    assert not await node.levers()
    assert not node.coscheduler.raises


@pytest.mark.slow
async def test_a_guard_that_hangs_is_given_up_and_found_again(node: Node) -> None:
    pid = node.guard.pid
    assert pid > 0
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(GuardGone, match="the guard has not answered 'status'"):
            await node.guard.ask(requests.Status(), patience_s=0.2)
        assert not node.guard.ready.is_set()
    finally:
        os.kill(pid, signal.SIGCONT)
    async with asyncio.timeout(60):
        await node.guard.ready.wait()
    assert node.guard.pid == pid
    await node.until(False)
