"""Passes where company decides: nothing that could start is left, every head has a moment, whoever is at the desks."""

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.loads import SECOND, J, workload

from cosched.model.coscheduling import Mode
from cosched.model.job import Job, JobState
from cosched.model.node import Node, Owner
from cosched.model.time import FOREVER_US
from cosched.workload.rules import Tasks, Workload
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start, Tell
from space_scheduler.machine.record import Infeasible
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.future import SharedFuture
from space_scheduler.policy.interface import Changes
from space_scheduler.policy.presets import compose
from space_scheduler.progress import Sharing
from space_scheduler.simulator.host import Site, simulate

PLACES = ("normal", "uniform-light", "uniform-hard", "uniform-hard(subset)", "uniform-hard(any-owners)")
SELECTIONS = ("jfirst", "bestfit", "fpfs(1)", "fpfs(99)", "backfill(0)", "backfill(1)", "backfill(1,shortest)")
#: Few shapes and both kinds, so that many jobs have the shape of one of the other kind.
KINDS, WIDTHS, ESTIMATES = ("cpu", "comm"), (1, 2, 2, 4), (20 * SECOND, 60 * SECOND)


class Lived:
    """A machine of shared nodes that is driven by chance."""

    def __init__(self, select: str, place: str, seed: int, mode: Mode) -> None:
        self.chance = Random(seed)
        self.state = SchedulerState(compose("fcfs", select, place), MachineRules(sharing=Sharing(mode)))
        self.now_us = 0
        self.jobs = 0
        for number in range(self.chance.randint(2, 4)):
            self.state.handle(ev.NodeJoined(Node(f"n{number}", 4, 4 << 30, 1, 500)), 0)

    def step(self) -> None:
        chance, state = self.chance, self.state
        self.now_us += chance.choice((0, 1, 5, 20)) * SECOND
        for _ in range(chance.randint(1, 3)):
            running = [record.job.id for record in state.running()]
            dice = chance.random()
            if dice < 0.6:
                self.jobs += 1
                job = Job(
                    self.jobs,
                    chance.choice(WIDTHS),
                    chance.choice(ESTIMATES),
                    self.now_us,
                    kind=chance.choice(KINDS),
                    memory_bytes=chance.choice((0, 1 << 30)),
                )
                if state.refusal(job) is None:
                    state.handle(ev.JobSubmitted(job), self.now_us)
            elif dice < 0.8 and running:
                state.handle(ev.JobEnded(chance.choice(running)), self.now_us)
            elif dice < 0.9:
                name = chance.choice([status.node.name for status in state.nodes()])
                owner = Owner(chance.randrange(1001))
                state.handle(chance.choice([ev.OwnerCame(name, owner), ev.OwnerLeft(name)]), self.now_us)
        self.decide()

    def decide(self) -> list[object]:
        instructions = self.state.handle(ev.Boundary(), self.now_us)
        for each in instructions:
            if isinstance(each, Start):
                self.state.handle(ev.JobLaunched(each.job.id), self.now_us)
        self.state.validate()
        return [each for each in instructions if isinstance(each, Start | Tell)]


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**9),
    select=st.sampled_from(SELECTIONS),
    place=st.sampled_from(PLACES),
    mode=st.sampled_from(Mode),
)
def test_a_pass_leaves_nobody_who_could_start_and_is_a_fixed_point(
    seed: int, select: str, place: str, mode: Mode
) -> None:
    """Once more at the same moment, nobody starts and nothing else is promised."""
    lived = Lived(select, place, seed, mode)
    for _ in range(12):
        lived.step()
        nobody_is_left_who_could_start(lived, select)
        every_head_has_a_moment(lived, reserves=select.startswith("backfill(1") and "hard" not in place)
        lived.state.handle(ev.TimerDue(), lived.now_us)
        assert lived.decide() == []


def nobody_is_left_who_could_start(lived: Lived, select: str) -> None:
    """Each job is asked alone, not a shape at a time, by the policy's own rule."""
    snapshot = lived.state.view(Changes(due=True))
    assert snapshot.nodes is not None
    waiting = list(snapshot.queue)
    if waiting and select in ("jfirst", "fpfs(1)"):
        assert snapshot.nodes.room.obstacle(waiting.pop(0)) is not None
        return
    future = SharedFuture(snapshot)
    if waiting and select.startswith("backfill(1") and (start_us := future.earliest(waiting[0])) != FOREVER_US:
        assert start_us > lived.now_us, "the head could start"
        future.reserve(waiting.pop(0), start_us)
    for job in waiting:
        assert not future.now(job), f"job {job.id} ({job.kind}) could start"


def every_head_has_a_moment(lived: Lived, *, reserves: bool) -> None:
    """Where owners are at some desks, a uniform set may be not to be had for as long as they stay."""
    for record in lived.state.running():
        assert record.rate_ppm > 0
        assert lived.now_us < record.end_us < FOREVER_US
    head = lived.state.queue.head()
    if head is not None and reserves:
        promised_us = lived.state.records[head.id].promise_us
        assert promised_us is not None
        assert lived.now_us < promised_us < FOREVER_US


def loaded() -> Workload:
    """Four jobs of both kinds, a minute each alone."""
    jobs = [J(at, 2, 60, 60) for at in range(4)]
    load = workload(64, jobs)
    tasks = Tasks(np.array([0] * 4), np.array([1000] * 4), ["cpu", "comm", "cpu", "comm"])
    return Workload(**{**vars(load), "tasks": tasks})


@pytest.mark.parametrize("policy", ["normal", "3dbf-light", "3dbf-hard"])
@pytest.mark.parametrize("cpu_permille", [0, 250, 500, 999, 1000])
def test_a_site_whose_owner_computes_runs_to_its_end(cpu_permille: int, policy: str) -> None:
    nodes = [Node(f"n{number}", 4, 4 << 30, 1, 500) for number in range(2)]
    site = Site(nodes, [(0, "n0", Owner(cpu_permille))], Sharing(Mode.NONE))
    select, place = ("jfirst", policy) if policy == "normal" else ("backfill(1)", policy.replace("3dbf", "uniform"))
    outcome = simulate(loaded(), compose("fcfs", select, place), site=site, validate=True)
    assert np.all(outcome.end_us > outcome.start_us)


def test_a_long_job_waits_beside_an_owner_who_never_pauses() -> None:
    """Both nodes are taken, one of them beside an owner at a whole CPU; the head needs both. Who would stay on the one
    that comes free until long after is not let past.
    """
    state = SchedulerState(compose("fcfs", "backfill(1)", "normal", 1), MachineRules(sharing=Sharing(), mpl=1))
    for name in ("n0", "n1"):
        state.handle(ev.NodeJoined(Node(name, 1, 4 << 30, 1, 500)), 0)
    state.handle(ev.OwnerCame("n0", Owner(1000)), 0)
    for job_id, procs, estimate_s in ((1, 1, 10), (2, 1, 10), (3, 2, 10), (4, 1, 100_000)):
        state.handle(ev.JobSubmitted(Job(job_id, procs, estimate_s * SECOND, 0)), 0)
    state.handle(ev.Boundary(), 0)
    promised_us = state.records[3].promise_us
    assert promised_us is not None
    assert promised_us < FOREVER_US
    gone = next(record.job.id for record in state.running() if record.allocation.nodes[0].node == "n1")
    state.handle(ev.JobLaunched(gone), 0)
    state.handle(ev.JobEnded(gone), 10 * SECOND)
    state.handle(ev.Boundary(), 10 * SECOND)
    assert state.records[4].state is JobState.QUEUED


def test_infeasible_is_told_apart_from_waiting() -> None:
    lived = Lived("backfill(1)", "uniform-hard", 1, Mode.CCS)
    with pytest.raises(Infeasible):
        lived.state.handle(ev.JobSubmitted(Job(99, 64, SECOND, 0, kind="cpu")), lived.now_us)
