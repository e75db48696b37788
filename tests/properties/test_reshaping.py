"""Jobs that shrink, widen and are queued again at any moment: nothing is held twice, no work is lost or made up.

``HYPOTHESIS_PROFILE=campaign`` lives ten thousand histories instead of some hundred.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.dump import dump
from kit.loads import J, workload
from kit.mutants import FITS, Told
from kit.reshaper import Held, Reshaper, ShapedAuthor, shaped
from msgspec.structs import replace

from cosched.model.allocation import Allocation
from cosched.model.coscheduling import Mode
from cosched.model.job import Job, JobState
from cosched.model.width import Range
from space_scheduler.machine.decision import Decision
from space_scheduler.machine.events import (
    Boundary,
    Event,
    JobEnded,
    JobLaunched,
    JobResized,
    JobSubmitted,
    NodesJoined,
    TimerDue,
)
from space_scheduler.machine.instructions import Instruction, Kill, Resize, Start
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.snapshot import SavedJob, SavedState
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Plan, PlannedResize, PlannedStart, Policy
from space_scheduler.progress import Sharing
from space_scheduler.simulator.host import drive
from space_scheduler.simulator.world import Run, Submissions

seeds = st.integers(0, 1 << 32)
#: A history has some hundred events.
few = settings(max_examples=max(30, settings().max_examples * 3 // 10))
MACHINES = ("counted", "named", "shared")
COSTS = {"cpu": {"cpu": 100, "owner": 50}}


@dataclass
class Life:
    """A history of a machine, in which hosts answer late, or refuse."""

    seed: int
    machine: str  # counted, named, or shared: nodes whose jobs slow each other down
    author_type: type[ShapedAuthor] = ShapedAuthor
    held: Held = field(default_factory=Held)
    told: list[tuple[int, Event, Decision | None, list[Instruction]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.named = self.machine != "counted"
        self.state = SchedulerState(self.policy, self.rules)
        self.author = self.author_type(self.seed, named=self.named)
        for at_us, event in self.author.begin():
            self.happens(at_us, event)

    @property
    def policy(self) -> Policy:
        """What decides; the same each time it is asked for."""
        return Reshaper(self.seed)

    @property
    def other_policy(self) -> Policy:
        """That of a machine that replays the history: it is not asked."""
        return Reshaper(self.seed + 1)

    @property
    def rules(self) -> MachineRules:
        modes = list(Mode)
        sharing = Sharing(modes[self.seed % len(modes)], COSTS) if self.machine == "shared" else None
        return MachineRules(sharing=sharing)

    def happens(self, at_us: int, event: Event) -> None:
        instructions = self.state.handle(event, at_us)
        decided = self.state.decision() if isinstance(event, Boundary) else None
        self.told.append((at_us, event, decided, instructions))
        self.author.hear(instructions)
        self.state.validate()
        self.held.see(self.state, event, instructions)

    def step(self) -> None:
        self.happens(*self.author.next(self.state))

    def goes_on(self, steps: int) -> None:
        """Live on: a machine restored from here goes on as this one, and a replay, which asks no policy, agrees."""
        saved = msgspec.json.decode(msgspec.json.encode(self.state.snapshot()), type=SavedState)
        restored = SchedulerState.restore(self.policy, self.rules, saved)
        assert restored.snapshot() == self.state.snapshot()
        assert dump(restored) == dump(self.state)
        before = len(self.told)
        for _ in range(steps):
            self.step()
        for at_us, event, _, instructions in self.told[before:]:
            assert restored.handle(event, at_us) == instructions
        assert dump(restored) == dump(self.state)
        replayed = SchedulerState(self.other_policy, self.rules)
        for at_us, event, decided, instructions in self.told:
            assert replayed.replay(event, at_us, decided) == instructions
        assert replayed.snapshot() == self.state.snapshot()

    def end(self) -> None:
        """Let every job come to its end: nobody waits for ever for what others give back."""
        idle = 0
        while self.state.records and idle < 50:
            event = self.author.finish(self.state)
            idle = 0 if event else idle + 1
            self.author.now_us += 1_000_000
            self.happens(self.author.now_us, event or TimerDue())
            self.happens(self.author.now_us, Boundary())
        left = {record.state for record in self.state.records.values()}
        assert left <= {JobState.QUEUED}, left
        assert (
            not left
            or self.named
            or self.state.machine.capacity.free_procs <= max(job.procs for job in self.state.queue)
        )


@pytest.mark.parametrize("machine", MACHINES)
@few
@given(seed=seeds, at=st.integers(0, 80))
def test_nothing_is_held_twice_whatever_is_refused_and_all_is_told_again(machine: str, seed: int, at: int) -> None:
    life = Life(seed, machine)
    for _ in range(at):
        life.step()
    life.goes_on(40)
    life.end()


@pytest.mark.parametrize("field", ["change", "requeues", "left", "rate_ppm", "rate_per", "as_of_us"])
def test_whatever_a_snapshot_left_out_of_a_change_would_be_missed(field: str) -> None:
    plain = SavedJob(Job(0, 1, 1, 0), 0, JobState.QUEUED, ())

    def some_lives() -> None:
        for seed in range(200):
            life = Life(seed, "counted")
            for _ in range(45):
                life.step()
            saved = life.state.snapshot()
            jobs = tuple(replace(job, **{field: getattr(plain, field)}) for job in saved.jobs)
            changing = saved.changing if field != "change" else ()
            restored = SchedulerState.restore(Reshaper(seed), None, replace(saved, jobs=jobs, changing=changing))
            for _ in range(40):
                life.step()
                at_us, event, _, instructions = life.told[-1]
                assert restored.handle(event, at_us) == instructions
                assert restored.machine.jobs.ends == life.state.machine.jobs.ends

    with pytest.raises((AssertionError, LookupError, TypeError, RuntimeError, ValueError)):
        some_lives()


def test_a_third_of_a_microsecond_of_work_is_kept() -> None:
    policy = Told(Plan([PlannedStart(job := Job(1, 3, 60_000_000, 0, shape=Range(1, 3)), FITS)]))
    state = SchedulerState(policy)
    for event in (NodesJoined(3), JobSubmitted(job), Boundary(), JobLaunched(1), NodesJoined(0)):
        state.handle(event, 0)
    for at_us, procs in ((0, 2), (10_000_001, 3)):  # two thirds of 10.000001 s are done by then
        policy.answer = Plan([PlannedResize(job, FITS, Allocation(procs))])
        state.handle(NodesJoined(0), at_us)
        state.handle(Boundary(), at_us)
        state.handle(JobResized(1), at_us)
    left = 60_000_000 * 1_000_000 - 10_000_001 * Fraction(2_000_000, 3)
    saved = msgspec.json.decode(msgspec.json.encode(state.snapshot()), type=SavedState)
    for each in (state, SchedulerState.restore(policy, None, saved)):
        assert each.records[1].left == left
        assert each.records[1].end_us == 10_000_001 + 53_333_333  # and a third, less two thirds


class Shaped(Submissions):
    """The workload's jobs, with widths drawn around theirs."""

    draw: Random

    def take(self) -> Job:
        return shaped(super().take(), self.draw)


def speed(job: Job, procs: int) -> int:
    """As its shape says it, else as many as it has processes."""
    shape = job.shape
    return shape.speeds[shape.sizes.index(procs)] if isinstance(shape, Range) and shape.speeds else procs


@dataclass
class Work:
    """How much each job has done: the integral of its speed since its last start."""

    widths: dict[int, tuple[int, int]] = field(default_factory=dict)  # since, processors
    done: dict[int, int] = field(default_factory=dict)  # microseconds of a job whose speed is 1
    jobs: dict[int, Job] = field(default_factory=dict)
    changes: int = 0

    def __call__(self, now_us: int, event: Event, instructions: list[Instruction]) -> None:
        if isinstance(event, JobEnded):
            self.count(event.job_id, now_us, 0)
        for each in instructions:
            if isinstance(each, Start):
                self.jobs[each.job.id] = each.job
                self.done[each.job.id] = 0
                self.widths[each.job.id] = now_us, each.allocation.procs
            elif isinstance(each, Resize):
                self.changes += 1
                self.count(each.job_id, now_us, each.new.procs)
            elif isinstance(each, Kill):
                self.changes += 1

    def count(self, job_id: int, now_us: int, procs: int) -> None:
        since_us, before = self.widths[job_id]
        self.done[job_id] += (now_us - since_us) * speed(self.jobs[job_id], before)
        self.widths[job_id] = now_us, procs


@given(
    seed=seeds,
    jobs=st.lists(
        st.builds(J, st.integers(0, 60), st.integers(1, 6), st.integers(1, 40), st.integers(1, 40)),
        min_size=1,
        max_size=9,
    ),
)
def test_the_simulator_has_every_job_do_its_work_exactly(seed: int, jobs: list[J]) -> None:
    load = workload(9, jobs)
    run = Run(load, False, 0, None)
    run.submissions = shapes = Shaped(load)
    shapes.draw = Random(seed)
    work = Work()
    state = SchedulerState(Reshaper(seed))
    drive(state, run, work, validate=True)
    assert not state.records
    assert len(work.jobs) == len(jobs)
    for row, job_id in enumerate(load.identities()):
        job = work.jobs[job_id]
        alone_us = min(int(load.run_us[row]), int(load.estimate_us[row]))
        # ends are whole microseconds: at most what is done in one of them is too much
        alone, most = speed(job, job.procs), 9 if job.shape else job.procs
        assert 0 <= Fraction(work.done[job_id], alone) - alone_us < Fraction(max(most, job.procs + 3), alone)
