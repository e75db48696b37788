"""A machine that sleeps is woken for a job that would start on it, where its owner agrees, and for nothing else."""

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest
from kit.journals import SCRIPT, Driven, state_bytes
from kit.service import Cluster, running
from service.test_asleep import there
from service.test_service_core import Rules

from cosched.errors import BadInput
from cosched.model.allocation import Allocation, Share
from cosched.model.desk import ContractReason, DeskReport, Wakeable
from cosched.model.job import Job, JobState
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.api import Submission
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start
from space_scheduler.policy.interface import Plan, Policy, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.core import journalled
from space_scheduler.service.core.worker import AskWanted
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.launch.nodes import ASLEEP
from space_scheduler.service.launch.values import Disconnected, Effect, Heard, InJournal, Ticked, Wake, Wanted
from space_scheduler.service.link.magic_packet import magic_packet, send_magic_packet
from space_scheduler.service.recorder import take_in_again

MAC = "52:54:00:12:34:56"
DAY_S = 86400.0
HOW = Wakeable(MAC, "127.255.255.255", ((0.0, 14 * DAY_S),))
CALL = Wake("n1", MAC, "127.255.255.255")


def sleeps(rules: Rules, how: Wakeable | None = HOW, reason: str = ASLEEP, name: str = "n1") -> None:
    """The machine says that it sleeps."""
    rules.feed(Heard(name, wire.DeskReported(DeskReport(ContractReason.ASLEEP, wakeable=how))))
    rules.feed(Heard(name, wire.Heartbeat(Usage(), Presence.AWAY)))
    rules.feed(InJournal(ev.NodeDrained(name, reason), (), {}))


def silent(rules: Rules, name: str = "n1") -> None:
    rules.feed(Disconnected(name))


def after(rules: Rules, seconds: float) -> list[Effect]:
    rules.now_s += seconds
    return rules.feed(Ticked())


def asked(effects: list[Effect]) -> list[str]:
    return [node.name for each in effects if isinstance(each, AskWanted) for node in each.nodes]


def called(effects: list[Effect]) -> list[Wake]:
    return [each for each in effects if isinstance(each, Wake)]


def test_it_is_called_when_it_is_silent_too_and_a_job_would_start_there() -> None:
    rules = there("n1")
    sleeps(rules)
    assert asked(after(rules, 1)) == [], "it may not be asleep yet"
    silent(rules)
    (ask,) = (each for each in after(rules, 1) if isinstance(each, AskWanted))
    assert ask.nodes == (rules.core.book.entry("n1").offers(rules.core.config.contract),)
    assert asked(after(rules, 1)) == [], "not at each heartbeat"
    assert called(rules.feed(Wanted(()))) == []
    assert called(rules.feed(Wanted(("n1",)))) == [CALL]
    assert called(rules.feed(Wanted(("n1",)))) == [], "once"


def test_one_that_does_not_come_is_called_later_and_later_and_anew_when_it_came() -> None:
    rules = there("n1")
    sleeps(rules)
    silent(rules)
    looks = range(20 * 3600 // 30)
    calls_s = [look * 30 for look in looks if asked(after(rules, 30)) and called(rules.feed(Wanted(("n1",))))]
    assert calls_s[:4] == [0, 300, 900, 2100]
    assert calls_s[-1] - calls_s[-2] == 4 * 3600
    assert rules.core.book.entry("n1").called == len(calls_s)


@pytest.mark.parametrize(("starts", "busy", "calls"), [(False, False, 8), (True, True, 8), (True, False, 30)])
def test_one_that_wakes_in_vain_is_called_later_and_later_too(starts: bool, busy: bool, calls: int) -> None:
    """It comes each time, and sleeps again after twenty minutes: for ten hours."""
    rules = there("n1")
    sleepers, entry = rules.core.sleepers, rules.core.book.entry("n1")
    for _ in range(30):
        if not busy:
            rules.core.launches.attempts.clear()
        sleeps(rules)
        silent(rules)
        for _ in range(2):
            if asked(after(rules, 30)):
                rules.feed(Wanted(("n1",)))
        rules.comes("n1")
        if starts:
            sleepers.started(["n1"])
        rules.now_s += 1200
    assert entry.called == calls


def test_a_job_that_starts_there_and_one_that_is_there_count(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = there("n1")
    told: list[tuple[str, object]] = []
    monkeypatch.setattr(rules.core.sleepers, "slept", lambda entry, busy: told.append((entry.name, busy)))
    monkeypatch.setattr(rules.core.sleepers, "started", lambda names: told.append(("started", list(names))))
    allocation = Allocation(1, nodes=(Share("n1", 1),))
    job = Job(1, 1, 1, 0)
    start = Start(job, allocation, None, ev.Boundary(), Reason(Why.RESERVED))
    record = JobRecord(
        job=job, user="ann", state=JobState.STARTING, submit_us=0, attempt=1, allocation=allocation,
        submission=Submission(script="#!/bin/sh\n", directory="/", tasks=1),
    )  # fmt: skip
    rules.feed(InJournal(ev.Boundary(), (start,), {1: record}))
    sleeps(rules)
    assert told == [("started", ["n1"]), ("n1", True)]


def test_one_that_is_on_its_way_is_counted_with_and_no_other_is_called_in_its_place() -> None:
    rules = there("n1", "n2")
    for name in ("n1", "n2"):
        sleeps(rules, name=name)
        silent(rules, name)
    assert asked(after(rules, 1)) == ["n1", "n2"]
    assert len(called(rules.feed(Wanted(("n1",))))) == 1
    assert asked(after(rules, 30)) == ["n1", "n2"], "as if it were there"
    assert called(rules.feed(Wanted(("n1",)))) == []
    assert asked(after(rules, 180)) == ["n2"], "it has not come"


def test_one_that_an_operator_drained_and_resumed_meanwhile_is_called() -> None:
    rules = there("n1")
    sleeps(rules)
    silent(rules)
    rules.feed(InJournal(ev.NodeDrained("n1", "new disk"), (), {}))
    assert asked(after(rules, 30)) == []
    rules.feed(InJournal(ev.NodeResumed("n1"), (), {}))
    assert asked(after(rules, 30)) == ["n1"]


@pytest.mark.parametrize(
    ("how", "reason", "comes"),
    [
        (None, ASLEEP, False),
        (HOW, "new disk", False),
        (HOW, ASLEEP, True),
        (msgspec.structs.replace(HOW, spans=((7200.0, DAY_S),)), ASLEEP, False),
        (msgspec.structs.replace(HOW, spans=((0.0, 600.0),)), ASLEEP, False),
    ],
    ids=["its owner has not agreed", "an operator has drained it", "it is awake", "not yet", "not any more"],
)
def test_nobody_else_is_called(how: Wakeable | None, reason: str, comes: bool) -> None:
    rules = there("n1")
    sleeps(rules, how, reason)
    silent(rules)
    if comes:
        rules.comes("n1")
    assert asked(after(rules, 3600)) == []
    assert called(rules.feed(Wanted(("n1",)))) == []


def test_between_its_owners_hours_it_is_called() -> None:
    rules = there("n1")
    sleeps(rules, msgspec.structs.replace(HOW, spans=((600.0, 1200.0), (DAY_S, DAY_S + 600))))
    silent(rules)
    assert asked(after(rules, 599)) == []
    assert asked(after(rules, 1)) == ["n1"]
    assert asked(after(rules, 599)) == ["n1"]
    assert asked(after(rules, 1)) == []
    assert asked(after(rules, DAY_S - 1200)) == ["n1"], "the next night, too"


def test_one_that_was_removed_is_called_no_more() -> None:
    rules = there("n1")
    sleeps(rules)
    silent(rules)
    rules.core.book.remove("n1")
    assert asked(after(rules, 30)) == []


@pytest.mark.parametrize(
    "wakeable",
    [
        {"mac": "52:54:00:12:34", "broadcast": "10.0.0.255"},
        {"mac": MAC + "\n", "broadcast": "10.0.0.255"},
        {"mac": MAC.upper().replace("52", "AB"), "broadcast": "10.0.0.255"},
        {"mac": MAC, "broadcast": "10.0.0.256"},
        {"mac": MAC, "broadcast": "desk.example.org"},
        {"mac": MAC, "broadcast": "10.0.0.255", "spans": [[-1, 1]]},
        {"mac": MAC, "broadcast": "10.0.0.255", "spans": [[0, 1e12]]},
        {"mac": MAC, "broadcast": "10.0.0.255", "spans": [[0, 1]] * 65},
    ],
)
def test_what_is_no_address_is_refused(wakeable: dict[str, object]) -> None:
    frame = msgspec.msgpack.encode({"type": "DeskReported", "report": {"reason": "asleep", "wakeable": wakeable}})
    with pytest.raises(BadInput):
        wire.from_agent(frame)


# the core


@pytest.mark.parametrize("policy", ["fcfs", "easy", "conservative", "fpfs(10)", "3dbf-light"])
def test_the_policy_says_which_nodes_a_job_would_start_on(tmp_path: Path, policy: str) -> None:
    driven = Driven(tmp_path / "journal.db", policy)
    core = driven.core
    sleeping = [each.node for each in core.state.nodes() if each.node.name != "ant"]
    for node in sleeping:
        core.take_in(ev.NodeLost(node.name), 0)
        core.take_in(ev.NodeDrained(node.name, ASLEEP), 0)

    def submit(procs: int, now_us: int, estimate_us: int = 60_000_000) -> None:
        core.submit(Job(0, procs, estimate_us, 0), SCRIPT, "ann", now_us)
        core.decide(now_us)
        driven.commit()

    assert core.wanted(sleeping, 0) == (), "nobody waits"
    core.submit(Job(0, 4, 60_000_000, 0), SCRIPT, "ann", 1)
    assert core.wanted(sleeping, 1) == (), "it is about to start on the one that is there"
    core.decide(1)
    driven.commit()
    assert core.wanted(sleeping, 1) == (), "it has started on the one that is there"
    submit(7, 2)
    assert core.wanted(sleeping, 2) == (), "it would wait all the same"
    submit(4, 3, 30_000_000)
    before = state_bytes(core.state)
    wanted = () if policy == "fcfs" else ("bee", "cat")
    assert core.wanted(sleeping, 3) == wanted, "one that may go first"
    assert core.wanted(sleeping[:1], 3) == (), "one of them does not help"
    assert (state_bytes(core.state), core.staged) == (before, False)


@pytest.mark.parametrize("policy", ["easy", "conservative", "fpfs(10)", "3dbf-light"])
def test_of_a_deep_queue_the_first_jobs_decide(tmp_path: Path, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journalled, "MOST_WAITING", 3)
    driven = Driven(tmp_path / "journal.db", policy)
    core = driven.core
    (cat,) = (each.node for each in core.state.nodes() if each.node.name == "cat")
    core.take_in(ev.NodeDrained("cat", ASLEEP), 0)
    for procs in (6, 7, 7, 7):  # the first has all that is there
        core.submit(Job(0, procs, 60_000_000, 0), SCRIPT, "ann", 1)
    core.decide(1)
    driven.commit()
    assert core.wanted([cat], 2) == ()
    core.submit(Job(0, 2, 1_000_000, 0), SCRIPT, "ann", 2)
    core.decide(2)
    driven.commit()
    assert core.wanted([cat], 3) == (), "it is the fourth that waits"
    monkeypatch.setattr(journalled, "MOST_WAITING", 4)
    before = state_bytes(core.state)
    assert core.wanted([cat], 3) == ("cat",)
    assert state_bytes(core.state) == before


def test_while_the_policy_fails_nobody_is_wanted(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "journal.db", "easy")
    core = driven.core
    (node,) = (each.node for each in core.state.nodes() if each.node.name == "cat")
    core.take_in(ev.NodeDrained("cat", ASLEEP), 0)
    core.submit(Job(0, 8, 60_000_000, 0), SCRIPT, "ann", 1)
    driven.commit()
    assert core.wanted([node], 1) == ("cat",)
    core.policy = Fails()
    assert core.wanted([node], 1) == ()


class Fails(Policy):
    """A policy that plans nothing, but fails."""

    order: Order = staticmethod(fcfs)

    def plan(self, snapshot: Snapshot) -> Plan:
        raise RuntimeError("no plan")


# all of it


@pytest.fixture
def calls() -> Iterator[socket.socket]:
    """Where the packets come in that a machine's card would see."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as card:
        card.bind(("127.255.255.255", 0))
        card.setblocking(False)
        yield card


def test_the_packet_is_what_a_card_listens_for(calls: socket.socket) -> None:
    send_magic_packet(MAC, "127.255.255.255", calls.getsockname()[1])
    assert calls.recv(1000) == magic_packet(MAC) == b"\xff" * 6 + bytes.fromhex("525400123456") * 16


async def test_a_desk_that_slept_is_woken_for_a_job_and_runs_it(cluster: Cluster, calls: socket.socket) -> None:
    night = cluster.path / "night.record"
    async with running(cluster, record=night) as service:
        service.service.shell.call = partial(send_magic_packet, port=calls.getsockname()[1])
        entry = service.service.book.entry("n1")
        async with service.agent("n1") as agent:
            await agent.say(wire.DeskReported(DeskReport(ContractReason.ASLEEP, wakeable=HOW)))
            await agent.beat()
            await service.until(lambda: entry.reason == ASLEEP, "the drain")
        await service.until(lambda: not entry.connected, "silent")
        await service.passes(90)  # for longer than its lease
        assert entry.size is None
        with pytest.raises(BlockingIOError):
            calls.recv(1000)
        job_id = await service.submit()
        await service.passes(31)
        await service.logged("node is called from its sleep", "n1")
        assert calls.recv(1000) == magic_packet(MAC)
        assert 'cosched_node_wake_calls_total{node="n1"} 1.0' in await service.text("/metrics")
        async with service.agent("n1") as agent:
            await agent.say(wire.DeskReported(DeskReport(ContractReason.RELAXED)))
            await agent.beat()
            await service.job_in(job_id, "running")
    assert b"Wanted" in night.read_bytes()
    assert take_in_again(night).difference is None


async def test_a_call_that_cannot_be_sent_is_logged(cluster: Cluster) -> None:
    async with running(cluster) as service:

        def no_route(mac: str, broadcast: str) -> None:
            raise OSError(101, "Network is unreachable")

        service.service.shell.call = no_route
        service.service.shell._wake(CALL)
        assert "Network is unreachable" in await service.logged("node not called from its sleep", "127.255.255.255")
