"""Each selection with each way of placing: what it promises holds whoever lies where, and what cannot be had says why.

On one node of as many CPUs as the machine has processors, with one task on a CPU and nobody at the desk, every pair
starts the same jobs at the same times as the selection does on counted processors, which an independent simulator
checks (``tests/core/test_against_reference.py``).
"""

import math
from collections.abc import Iterator
from random import Random
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.checks import Broken, first_promises_are_kept, hold, no_promise_is_moved_later, run
from kit.loads import SECOND, J, loads, workload
from kit.script import live

from cosched.errors import BadInput
from cosched.model.coscheduling import Mode
from cosched.model.job import Job
from cosched.model.node import Node, Owner
from cosched.workload.rules import Tasks, Workload
from space_scheduler.feasibility import Room
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Instruction, Start, Tell
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Plan, PlannedStart, Policy, Snapshot, traits_of
from space_scheduler.policy.place import PLACES, place_of
from space_scheduler.policy.presets import compose
from space_scheduler.progress import Sharing
from space_scheduler.reasons import Why
from space_scheduler.simulator.host import Site

pytestmark = pytest.mark.slow

SELECTIONS = [
    "jfirst", "bestfit", "fpfs(0)", "fpfs(2)", "backfill(0)", "backfill(1)", "backfill(1,shortest)", "backfill(3)",
    "conservative(none)", "conservative(anew)", "conservative(schedule)", "conservative(arrival)",
]  # fmt: skip
CHOSEN = ["normal", "uniform-light", "uniform-hard", "normal(overcommit=1)", "uniform-hard(subset)"]
PAIRS = [
    (select, place)
    for select in SELECTIONS
    for place in CHOSEN
    if not (select.startswith("conservative") and place_of(place).by_company)
]
seeds = st.integers(0, 1 << 32)


def with_mpl(place: str, mpl: int) -> str:
    return place.replace(")", f",mpl={mpl})") if "(" in place else f"{place}(mpl={mpl})"


# --- as counted, and so as the reference ------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["normal", "uniform-light"])
@pytest.mark.parametrize("select", SELECTIONS)
@settings(max_examples=12)
@given(load=loads())
def test_on_one_node_it_is_the_selection_on_counted_processors(select: str, place: str, load: Workload) -> None:
    counted = run(load, select).outcome
    site = Site([Node("n0", load.procs_total, 1 << 40, load.procs_total)])
    named = run(load, compose("fcfs", select, with_mpl(place, 1)), site=site, validate=True).outcome
    assert named.start_us.tolist() == counted.start_us.tolist()


@pytest.mark.parametrize("select", ["bestfit", "fpfs(0)", "fpfs(2)"])
@settings(max_examples=12)
@given(load=loads())
def test_without_reservations_it_is_so_on_nodes_of_one_cpu(select: str, load: Workload) -> None:
    counted = run(load, select).outcome
    site = Site([Node(f"n{number}", 1, 1 << 40, 1) for number in range(load.procs_total)])
    named = run(load, compose("fcfs", select, "normal"), site=site, validate=True).outcome
    assert named.start_us.tolist() == counted.start_us.tolist()


# --- whatever happens to named nodes ----------------------------------------------------------------------------------


class WithKinds(SchedulerState):
    """Jobs are of both kinds, by their number, and use more or less of a CPU."""

    def handle(self, event: ev.Event, now_us: int) -> list[Instruction]:
        if isinstance(event, ev.JobSubmitted):
            job, kind = event.job, ("cpu", "comm")[event.job.id % 2]
            cpu_permille = (1000, 400, 700)[job.id % 3]
            job = Job(
                job.id, job.procs, job.estimate_us, job.submit_us,
                memory_bytes=job.memory_bytes, kind=kind, cpu_permille=cpu_permille,
            )  # fmt: skip
            if self.refusal(job):  # by its kind or its CPU: as it was, then
                return super().handle(event, now_us)
            event = ev.JobSubmitted(job)
        return super().handle(event, now_us)


@pytest.mark.slow
@pytest.mark.parametrize(("select", "place"), PAIRS)
@settings(max_examples=6)
@given(seed=seeds)
def test_every_plan_can_be_applied_whatever_happens(select: str, place: str, seed: int) -> None:
    """The machine checks each place with the rule that chose it, and every invariant is walked."""
    with patch("kit.script.SchedulerState", WithKinds):
        for state, _, _ in live(compose("fcfs", select, place), seed, 80, named=True, rules=MachineRules()):
            state.validate()


# --- conservative -----------------------------------------------------------------------------------------------------


def site(chance: Random, owners: bool) -> Site:
    nodes = [Node(f"n{number}", cpus := chance.randint(1, 4), 1 << 30, cpus, 500) for number in range(3)]
    visits: list[tuple[int, str, Owner | None]] = []
    if owners:
        for at_s in sorted(chance.sample(range(60), 6)):
            name = f"n{chance.randrange(3)}"
            visits.append((at_s * SECOND, name, chance.choice([None, Owner(chance.choice((0, 500, 1000)), 1 << 28)])))
    return Site(nodes, visits, Sharing(chance.choice(list(Mode))))


def kinds(chance: Random, procs: int) -> Workload:
    """Jobs of both kinds that come in a minute, and end early or not."""
    jobs = []
    for at in sorted(chance.choices(range(40), k=14)):
        estimate = chance.randint(1, 20)
        jobs.append(J(at, chance.randint(1, min(4, procs)), estimate, chance.randint(1, estimate)))
    load = workload(procs, jobs)
    count = len(jobs)
    which = [chance.choice(("cpu", "comm")) for _ in range(count)]
    memory = [chance.choice((0, 1 << 28)) for _ in range(count)]
    tasks = Tasks(np.array(memory), np.array([chance.choice((400, 1000)) for _ in range(count)]), which)
    return Workload(**{**vars(load), "tasks": tasks})


@pytest.mark.parametrize("place", ["normal", "uniform-light", "normal(overcommit=1)"])
@pytest.mark.parametrize("choice", ["none", "schedule", "arrival"])
@settings(max_examples=15)
@given(seed=seeds)
def test_conservative_never_starts_a_job_after_its_guarantee(choice: str, place: str, seed: int) -> None:
    """One task on a CPU, and nobody at the desks: the premises of a guarantee on a site."""
    chance = Random(seed)
    where = site(chance, owners=False)
    load = kinds(chance, sum(node.procs for node in where.nodes))
    policy = compose("fcfs", f"conservative({choice})", with_mpl(place, 1))
    done = run(load, policy, site=where, validate=True)
    first_promises_are_kept(done.outcome)
    no_promise_is_moved_later(done.seen)


def test_the_guarantee_catches_backfilling_anew() -> None:
    def lives() -> None:
        for seed in range(300):
            chance = Random(seed)
            where = site(chance, owners=False)
            load = kinds(chance, sum(node.procs for node in where.nodes))
            done = run(load, compose("fcfs", "conservative(anew)", "normal(mpl=1)"), site=where)
            first_promises_are_kept(done.outcome)

    with pytest.raises(Broken, match="promised"):
        lives()


#: What may move a promise where owners come and go.
CAUSES = {Why.OWNER_CHANGED, Why.PACE, Why.CAPACITY_CHANGED, Why.OVERRUN}


def moves(seed: int, place: str) -> Iterator[Why]:
    """Why promises of conservative moved later, on a site with owners."""
    chance = Random(seed)
    where = site(chance, owners=True)
    load = kinds(chance, sum(node.procs for node in where.nodes))
    done = run(load, compose("fcfs", "conservative(arrival)", with_mpl(place, 1)), site=where, validate=True)
    promised: dict[int, int] = {}
    for _, _, told in done.seen:
        for tell in told:
            if isinstance(tell, Tell):
                if tell.promised_us > promised.get(tell.job_id, 1 << 62):
                    yield tell.reason.why
                promised[tell.job_id] = tell.promised_us


@pytest.mark.parametrize("place", ["normal", "uniform-light"])
@settings(max_examples=15)
@given(seed=seeds)
def test_where_owners_come_every_promise_that_moves_later_has_its_cause(place: str, seed: int) -> None:
    for why in moves(seed, place):
        hold(why in CAUSES, f"moved later: {why}")


def test_promises_do_move_for_owners_and_for_rates() -> None:
    """Both causes exist, or the property above asks nothing."""
    missing = {Why.OWNER_CHANGED, Why.PACE}
    for seed in range(150):
        missing -= {*moves(seed, "normal")}
        if not missing:
            return
    pytest.fail(f"promises never move for {missing}")


# --- FPFS and best fit ------------------------------------------------------------------------------------------------


class WatchedPass:
    """A policy whose starts are followed, one by one, on a copy of what is free: ``hold`` what it promises at each."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        traits = traits_of(policy)
        self.order, self.place, self.mpl, self.shares = policy.order, traits.place, traits.mpl, traits.shares
        self.seen = 0

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = self.policy.plan(snapshot)
        assert snapshot.nodes is not None
        room, waiting = snapshot.nodes.room.copy(), list(snapshot.queue)
        for start in plan.changes:
            assert isinstance(start, PlannedStart)
            self.before_start(room, waiting, start.job)
            waiting.remove(start.job)
            assert start.allocation is not None
            room.take(start.job, start.allocation)
        self.after_pass(room, waiting)
        return plan

    def begin(self) -> None:
        """Another life."""

    def before_start(self, room: Room, waiting: list[Job], job: Job) -> None: ...

    def after_pass(self, room: Room, waiting: list[Job]) -> None: ...


class WidestFirst(WatchedPass):
    """Best fit: nobody wider could have started, nor an equally wide one that comes first."""

    def before_start(self, room: Room, waiting: list[Job], job: Job) -> None:
        fitting = [other for other in waiting if room.obstacle(other) is None]
        widest = max(fitting, key=lambda each: each.procs)
        hold(job is widest, f"{job} starts, and {widest} would fit")
        self.seen += len({other.procs for other in fitting}) > 1

    def after_pass(self, room: Room, waiting: list[Job]) -> None:
        for job in waiting:
            hold(room.obstacle(job) is not None, f"{job} could start")


class AtMost(WatchedPass):
    """FPFS: the head is passed so often at most, never when it could start, and by the first that fits."""

    def __init__(self, policy: Policy, jumps: int) -> None:
        super().__init__(policy)
        self.most = jumps
        self.begin()

    def begin(self) -> None:
        self.head, self.jumps = -1, 0

    def follow(self, waiting: list[Job]) -> None:
        if waiting and waiting[0].id != self.head:
            self.head, self.jumps = waiting[0].id, 0

    def before_start(self, room: Room, waiting: list[Job], job: Job) -> None:
        self.follow(waiting)
        first = next(other for other in waiting if room.obstacle(other) is None)
        hold(job is first, f"{job} starts, and {first} comes first")
        if job is not waiting[0]:
            self.jumps += 1
            self.seen += 1
            hold(self.jumps <= self.most, f"{waiting[0]} is passed {self.jumps} times")

    def after_pass(self, room: Room, waiting: list[Job]) -> None:
        self.follow(waiting)
        could = waiting if self.jumps < self.most else waiting[:1]
        for job in could:
            hold(room.obstacle(job) is not None, f"{job} could start")


def on_a_site(policy: Policy, seed: int) -> None:
    """Nodes that two share, jobs of both kinds."""
    chance = Random(seed)
    nodes = [Node(f"n{number}", 4, 2 << 30, 2, 500) for number in range(3)]
    state = SchedulerState(policy, MachineRules(sharing=Sharing(Mode.NONE)))
    for node in nodes:
        state.handle(ev.NodeJoined(node), 0)
    now_us, number = 0, 0
    for _ in range(30):
        now_us += chance.choice((0, 1, 5, 20)) * SECOND
        for _ in range(chance.randint(0, 4)):
            number += 1
            job = Job(
                number, chance.choice((1, 1, 2, 3, 4, 6)), chance.choice((20, 60)) * SECOND, now_us,
                kind=chance.choice(("cpu", "comm")), memory_bytes=chance.choice((0, 1 << 29)),
            )  # fmt: skip
            if state.refusal(job) is None:
                state.handle(ev.JobSubmitted(job), now_us)
        running = [record.job.id for record in state.running()]
        for job_id in chance.sample(running, min(len(running), chance.randint(0, 2))):
            state.handle(ev.JobEnded(job_id), now_us)
        for told in state.handle(ev.Boundary(), now_us):
            if isinstance(told, Start):
                state.handle(ev.JobLaunched(told.job.id), now_us)
        state.validate()


@pytest.mark.parametrize("place", ["normal", "uniform-light", "uniform-hard", "uniform-hard(subset)"])
@settings(max_examples=10)
@given(seed=seeds)
def test_best_fit_starts_the_widest_that_fits_again_and_again(place: str, seed: int) -> None:
    on_a_site(WidestFirst(compose("fcfs", "bestfit", place)), seed)


@pytest.mark.parametrize("place", ["normal", "uniform-light", "uniform-hard", "uniform-hard(subset)"])
@pytest.mark.parametrize("jumps", [0, 1, 3])
@settings(max_examples=10)
@given(seed=seeds)
def test_fpfs_lets_so_many_pass_and_nobody_past_a_head_that_fits(jumps: int, place: str, seed: int) -> None:
    on_a_site(AtMost(compose("fcfs", f"fpfs({jumps})", place), jumps), seed)


@pytest.mark.parametrize("place", ["normal", "uniform-hard"])
def test_the_watches_have_something_to_see_and_catch_another_selection(place: str) -> None:
    def lives(watch: WatchedPass, count: int, enough: float = math.inf) -> int:
        for seed in range(count):
            watch.begin()
            on_a_site(watch, seed)
            if watch.seen > enough:
                break
        return watch.seen

    assert lives(WidestFirst(compose("fcfs", "bestfit", place)), 20, enough=20) > 20
    assert lives(AtMost(compose("fcfs", "fpfs(3)", place), 3), 20, enough=20) > 20
    for wrong in (WidestFirst(compose("fcfs", "backfill(0)", place)), AtMost(compose("fcfs", "fpfs(4)", place), 3)):
        with pytest.raises(Broken):
            lives(wrong, 60)


# --- what cannot be had -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", [name for name, place in PLACES.items() if place.by_company])
def test_a_guarantee_beside_company_is_refused_and_says_why(place: str) -> None:
    with pytest.raises(BadInput, match=f"nodes chosen by {place}, where an end can take away the company"):
        compose("fcfs", "conservative", place)


@pytest.mark.parametrize("place", ["", "normal", "uniform-light"])
@pytest.mark.parametrize(
    ("select", "told"),
    [
        ("conservative", r"conservative\(arrival\) cannot be had there: it guarantees starts by predicted ends"),
        ("backfill(2)", r"backfill\(2\) cannot be had there: its 2 reservations are made from predicted ends"),
    ],
)
def test_what_promises_by_predicted_ends_is_refused_where_tasks_share_a_cpu(select: str, told: str, place: str) -> None:
    with pytest.raises(BadInput, match=told):
        SchedulerState(compose("fcfs", select, place), MachineRules(sharing=Sharing()))
    SchedulerState(compose("fcfs", select, place, 1), MachineRules(sharing=Sharing(), mpl=1))
