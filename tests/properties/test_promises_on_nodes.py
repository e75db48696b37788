"""What policies promise where nodes have names, and that alike nodes are scheduled as if they were counted."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.checks import Broken, fails, hold, of_each, run
from kit.drive import policy_named
from kit.loads import SECOND, J, loads, story, workload
from kit.mutants import FITS, Mutant, handling
from kit.script import live

from cosched.model.job import Job, JobState
from cosched.model.node import Node
from cosched.workload.rules import AtLimit, Workload
from space_scheduler.feasibility import Room
from space_scheduler.machine import events as ev
from space_scheduler.machine import node_events
from space_scheduler.machine.instructions import Instruction, Start
from space_scheduler.machine.machine import Machine
from space_scheduler.machine.rules import BadPlan, MachineRules
from space_scheduler.node_profile import NodeProfile
from space_scheduler.policy import future
from space_scheduler.policy.interface import Plan, PlannedStart, Policy, Snapshot
from space_scheduler.policy.place import PLACES
from space_scheduler.simulator import host
from space_scheduler.simulator.world import Run

pytestmark = pytest.mark.slow

#: These start the same jobs at the same times on alike nodes as on as many counted processors.
AS_COUNTED = ["fcfs", "sjf", "ljf", "bestfit", "fpfs(0)", "fpfs(2)", "firstfit", "easy", "sjbf"]
#: These do so on one node: their reservations lie on nodes and stay there, so on several a hole can be too short.
AS_COUNTED_ON_ONE = [
    "backfill(2)",
    "backfill(5)",
    *(f"conservative({c})" for c in ("none", "anew", "schedule", "arrival")),
]
seeds = st.integers(0, 1 << 32)
rules = st.builds(
    MachineRules,
    max_nodes_per_job=st.sampled_from([None, None, 1, 2]),
    place=st.sampled_from(sorted(name for name, place in PLACES.items() if not place.refuses)),
)


# --- as counted -------------------------------------------------------------------------------------------------------


def on_nodes(sizes: Sequence[int]) -> type[Run]:
    """The simulator with a machine of named nodes instead of as many processors."""

    class OnNodes(Run):
        def happenings(self) -> Iterator[tuple[int, ev.Event]]:
            for now_us, event in super().happenings():
                if isinstance(event, ev.NodesJoined):
                    for number, procs in enumerate(sizes):
                        yield now_us, ev.NodeJoined(Node(f"n{number}", procs, 0))
                else:
                    yield now_us, event

    return OnNodes


@st.composite
def divided(draw: st.DrawFn, load: Workload) -> list[int]:
    """Nodes of one size that have the workload's processors together."""
    each = draw(st.sampled_from([n for n in range(1, load.procs_total + 1) if load.procs_total % n == 0]))
    return [each] * (load.procs_total // each)


def same_as_counted(policy: str, load: Workload, sizes: Sequence[int], at_limit: AtLimit = AtLimit.KILL) -> None:
    counted = run(load, policy, at_limit=at_limit).outcome
    with patch.object(host, "Run", on_nodes(sizes)):
        named = run(load, policy, at_limit=at_limit, validate=True).outcome
    hold(counted.start_us.tolist() == named.start_us.tolist(), f"{sizes}: {named.start_us.tolist()}; {story(load)}")


@pytest.mark.parametrize("policy", AS_COUNTED)
@of_each
@given(data=st.data(), at_limit=st.sampled_from(AtLimit))
def test_alike_nodes_are_scheduled_as_counted_processors(policy: str, data: st.DataObject, at_limit: AtLimit) -> None:
    load = data.draw(loads(beyond_limit=at_limit is AtLimit.RUN))
    same_as_counted(policy, load, data.draw(divided(load)), at_limit)


@pytest.mark.parametrize("policy", AS_COUNTED_ON_ONE)
@of_each
@given(load=loads())
def test_one_node_is_scheduled_as_counted_processors(policy: str, load: Workload) -> None:
    same_as_counted(policy, load, [load.procs_total])


@pytest.mark.parametrize("policy", ["backfill(2)", "conservative(arrival)"])
def test_reservations_that_lie_on_nodes_can_be_later_than_counted_ones(policy: str) -> None:
    """The documented difference exists, or the premise of the test above is too narrow."""
    fails(lambda load: same_as_counted(policy, load, [1] * load.procs_total))


def test_the_comparison_catches_a_head_that_does_not_give_way() -> None:
    """EASY whose reservation insists on its first nodes is not EASY on counted processors."""
    with patch.object(future.NamedFuture, "_moved_aside", lambda *_: None):
        fails(lambda load: same_as_counted("easy", load, [1] * load.procs_total))


# --- never over-committed ---------------------------------------------------------------------------------------------


class Account:
    """What every node holds, kept from instructions and events alone."""

    def __init__(self, most_nodes: int | None) -> None:
        self.most_nodes = most_nodes
        self.nodes: dict[str, Node] = {}
        self.away: dict[str, set[str]] = {"lost": set(), "drained": set()}
        self.held: dict[int, tuple[Job, tuple[Any, ...]]] = {}

    def used(self, name: str) -> tuple[int, int]:
        shares = [(job, share) for job, all_ in self.held.values() for share in all_ if share.node == name]
        return sum(s.tasks for _, s in shares), sum(s.tasks * job.memory_bytes for job, s in shares)

    def event(self, event: ev.Event) -> None:
        match event:
            case ev.NodeJoined(node):
                self.nodes[node.name] = node
                self.away["lost"].discard(node.name)
            case ev.NodeDrained(name, _):
                self.away["drained"].add(name)
            case ev.NodeResumed(name):
                self.away["drained"].discard(name)
            case ev.NodeLost(name):
                self.away["lost"].add(name)
            case ev.JobEnded(job_id, _):
                self.held.pop(job_id)

    def started(self, start: Start) -> None:
        job, shares = start.job, start.allocation.nodes
        hold(sum(share.tasks for share in shares) == job.procs, f"{start}")
        hold(self.most_nodes is None or len(shares) <= self.most_nodes, f"too many nodes: {start}")
        self.held[job.id] = job, shares
        for share in shares:
            node = self.nodes[share.node]
            procs, memory_bytes = self.used(share.node)
            hold(not any(share.node in away for away in self.away.values()), f"{share.node} is away: {start}")
            hold(procs <= node.procs, f"{procs} tasks on {node} after {start}")
            # a task without memory may go where a node has come back with less than its jobs hold
            hold(memory_bytes <= node.memory_bytes or not job.memory_bytes, f"{memory_bytes} bytes on {node}: {start}")


def nothing_is_over_committed(policy: Policy, seed: int, how: MachineRules) -> None:
    account = Account(how.max_nodes_per_job)
    for state, (_, event), instructions in live(policy, seed, 80, named=True, rules=how):
        state.validate()
        account.event(event)
        for instruction in instructions:
            if isinstance(instruction, Start):
                account.started(instruction)
        for status in state.nodes():
            hold((status.used_procs, status.used_memory_bytes) == account.used(status.node.name), f"{status}")


EVERY_POLICY = [*AS_COUNTED, *AS_COUNTED_ON_ONE]


@pytest.mark.parametrize("policy", EVERY_POLICY)
@of_each
@given(seed=seeds, how=rules)
def test_no_node_is_over_committed_whatever_happens(policy: str, seed: int, how: MachineRules) -> None:
    nothing_is_over_committed(policy_named(policy), seed, how)


def test_over_commitment_catches_a_machine_that_frees_what_a_lost_gang_holds() -> None:
    @handling(ev.NodeLost)
    def hasty(machine: Machine, event: ev.NodeLost) -> list[Instruction]:
        told = node_events.node_lost(machine, event)
        for record in list(machine.jobs.records.values()):
            if record.state is JobState.ENDING and record.allocation:
                for share in record.allocation.nodes:
                    machine.named(event)[share.node].used_procs -= share.tasks
        return told

    def lives() -> None:
        for seed in range(100):
            nothing_is_over_committed(policy_named("easy"), seed, MachineRules())

    with patch("kit.script.SchedulerState", hasty), pytest.raises((AssertionError, Broken)):
        lives()


def test_a_plan_that_over_commits_a_node_is_refused() -> None:
    class DoubleBooker(Mutant):
        def plan(self, snapshot: Snapshot) -> Plan:
            assert snapshot.nodes is not None
            places = [(job, snapshot.nodes.room.placed(job)) for job in snapshot.queue]
            return Plan([PlannedStart(job, FITS, place) for job, place in places if place])

    with pytest.raises(BadPlan, match=r"tasks on node n\d, which takes"):
        nothing_is_over_committed(DoubleBooker(), 3, MachineRules())


# --- the head ---------------------------------------------------------------------------------------------------------


class WatchedHead:
    """EASY whose every pass is looked at: what it starts past the head does not delay the head."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.order = policy.order
        self.past = 0

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = self.policy.plan(snapshot)
        starts = [each for each in plan.changes if isinstance(each, PlannedStart)]
        started = {start.job.id: start for start in starts}
        waiting = list(snapshot.queue)
        heads = next((i for i, job in enumerate(waiting) if job.id not in started), len(waiting))
        if heads < len(waiting) and snapshot.nodes is not None:
            head, in_order = waiting[heads], {job.id for job in waiting[:heads]}
            late = [start for job_id, start in started.items() if job_id not in in_order]
            without = self.reservation(snapshot, head, [started[job_id] for job_id in in_order])
            hold(without == self.reservation(snapshot, head, starts), f"{head} of {without} is delayed by {late}")
            self.past += len(late)
        return plan

    @staticmethod
    def reservation(snapshot: Snapshot, head: Job, starts: Sequence[PlannedStart]) -> int | None:
        assert snapshot.nodes is not None
        profile = NodeProfile.of_running(snapshot.now_us, snapshot.nodes.room, snapshot.nodes.held)
        for start in starts:
            assert start.allocation is not None
            profile.take(start.job, snapshot.now_us, start.allocation)
        found = profile.earliest(head, snapshot.now_us)
        return found[0] if found else None


@pytest.mark.parametrize("policy", ["easy", "sjbf"])
@settings(max_examples=max(40, settings().max_examples * 2 // 5))
@given(seed=seeds, how=rules)
def test_easy_never_delays_the_heads_reservation(policy: str, seed: int, how: MachineRules) -> None:
    for _ in live(WatchedHead(policy_named(policy)), seed, 80, named=True, rules=how):
        pass


@pytest.mark.parametrize("policy", ["firstfit", "bestfit", "fpfs(2)"])
def test_the_watch_on_the_head_catches_who_reserves_nothing(policy: str) -> None:
    def lives() -> None:
        for seed in range(200):
            list(live(WatchedHead(policy_named(policy)), seed, 80, named=True))

    with pytest.raises(Broken, match="is delayed by"):
        lives()


def test_easy_does_pass_the_head() -> None:
    watched = WatchedHead(policy_named("easy"))
    for seed in range(40):
        list(live(watched, seed, 80, named=True))
    assert watched.past > 20


# --- nobody starves ---------------------------------------------------------------------------------------------------


def large_job_starts_s(policy: str, stream: int) -> float:
    """One node of four processors and 8 of memory, half of both in use until 10; at 1 comes a job of one task and all
    memory, and from 2 on every 5 s one of two processors and half the memory for 10 s.
    """
    jobs = [J(0, 2, 10), J(1, 1, 10), *(J(2 + 5 * i, 2, 10) for i in range(stream))]

    class WithMemory(Run):
        def happenings(self) -> Iterator[tuple[int, ev.Event]]:
            for now_us, event in super().happenings():
                if isinstance(event, ev.NodesJoined):
                    yield now_us, ev.NodeJoined(Node("n0", 4, 8))
                elif isinstance(event, ev.JobSubmitted):
                    memory = 8 if event.job.id == 1 else 2
                    job = Job(event.job.id, event.job.procs, event.job.estimate_us, now_us, memory_bytes=memory)
                    yield now_us, ev.JobSubmitted(job)
                else:
                    yield now_us, event

    with patch.object(host, "Run", WithMemory):
        return float(run(workload(4, jobs), policy).outcome.start_us[1] / SECOND)


@pytest.mark.parametrize(
    "policy", ["fcfs", "easy", "sjbf", "backfill(3)", "conservative(none)", "conservative(schedule)"]
)
def test_a_job_of_much_memory_behind_a_stream_of_others(policy: str) -> None:
    assert {large_job_starts_s(policy, stream) for stream in (15, 40)} == {10}


def test_it_waits_for_the_end_of_the_stream_where_nothing_is_reserved() -> None:
    for stream in (15, 40):
        assert large_job_starts_s("firstfit", stream) > 5 * stream


@pytest.mark.parametrize("policy", EVERY_POLICY)
@of_each
@given(seed=seeds, how=rules)
def test_when_it_becomes_quiet_everything_ends(policy: str, seed: int, how: MachineRules) -> None:
    """All nodes come back as they were at their largest, held jobs are released, jobs end at their estimates."""
    sizes: dict[str, Node] = {}
    lived = list(live(policy_named(policy), seed, 60, named=True, rules=how))
    state, (now_us, _), _ = lived[-1]
    for _, (_, event), _ in lived:
        if isinstance(event, ev.NodeJoined):
            known = sizes.get(event.node.name, event.node)
            largest = (max(known.procs, event.node.procs), max(known.memory_bytes, event.node.memory_bytes))
            sizes[event.node.name] = Node(event.node.name, *largest)
    for name, node in sizes.items():
        state.handle(ev.NodeJoined(node), now_us)
        state.handle(ev.NodeResumed(name), now_us)
    for job_id in [job_id for job_id, record in state.records.items() if record.state is JobState.WAITING]:
        state.handle(ev.JobReleased(job_id), now_us)
    for _ in range(4 * len(state.records) + 4):
        state.handle(ev.Boundary(), now_us)
        state.validate()
        for job_id in [job_id for job_id, record in state.records.items() if record.state is JobState.STARTING]:
            state.handle(ev.JobLaunched(job_id), now_us)
        ends = [record.end_us for record in state.running()]
        timers = [] if state.machine.timer_us is None else [state.machine.timer_us]
        if not ends and not timers:
            break
        now_us = max(now_us, min([*ends, *timers]))
        for job_id in [record.job.id for record in state.running() if record.end_us <= now_us]:
            state.handle(ev.JobEnded(job_id), now_us)
        if any(at_us <= now_us for at_us in timers):
            state.handle(ev.TimerDue(), now_us)
    assert state.records == {}, [f"{job_id}: {state.explain(job_id)}" for job_id in state.records]
    assert all(not status.tasks for status in state.nodes())


def test_the_room_of_a_snapshot_is_not_the_machines() -> None:
    """A policy that spoils what it sees spoils nothing but its own plan."""

    class Vandal(Mutant):
        def plan(self, snapshot: Snapshot) -> Plan:
            assert snapshot.nodes is not None
            plan = policy_named("fcfs").plan(replace(snapshot))
            room: Room = snapshot.nodes.room
            room.procs[:] = [99] * len(room.procs)
            return plan

    for state, _, _ in live(Vandal(), 5, 60, named=True):
        state.validate()
