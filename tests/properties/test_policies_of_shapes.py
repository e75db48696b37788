"""Jobs that change shape under the policies that change them, whatever hosts answer late or refuse.

What each policy promises of what jobs hold is looked at after every pass.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random

import pytest
from core.test_shapes_against_reference import never_without_processes, workload
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.reshaper import ShapedAuthor
from msgspec import structs
from properties.test_reshaping import Life
from reference import shapes

from cosched.model.job import Job, JobState
from cosched.model.width import Range
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Instruction, Kill, Resize, Start
from space_scheduler.machine.record import Record
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Policy
from space_scheduler.policy.reshape.free import smallest
from space_scheduler.progress import Sharing
from space_scheduler.simulator.host import drive
from space_scheduler.simulator.world import Run

seeds = st.integers(0, 1 << 32)
FOLDING = (
    "fifo", "fjt4", "fjt4+bfa", "fjt1+bfa", "fjt1+bfm", "fjt1+bfm(partial)", "fjt1+bfm(expired=suspend)",
    "fjt1+bfm(window=estimates)", "fjt4(unfold=idle)", "fjt1+bfm(expired=remain)",
    "fjt1+bfa(fjt=largest/1)", "fjt1+bfm(fjt=shared,partial)",
)  # fmt: skip
EQUIPARTITION = (
    "equipartition", "equipartition(waterfill)", "equipartition(easy)", "equipartition(threshold=2)",
    "equipartition(part)", "equipartition(wait)",
)  # fmt: skip
MACHINES = ("counted", "named", "shared")


def with_shape(job: Job, draw: Random) -> Job:
    """The job, rigid, moldable, malleable, or evolving; long or short; foldable or not."""
    kind = draw.choice(("rigid", "moldable", "malleable", "malleable", "evolving"))
    least = draw.randint(1, job.procs)
    shape = {
        "rigid": None,
        "moldable": Range(least, job.procs, tuple(sorted({least, draw.randint(least, job.procs), job.procs}))),
        "malleable": Range(least, job.procs, malleable=True),
        "evolving": Range(least, job.procs, malleable=True, ask_more=draw.randint(0, 2), ask_fewer=least - 1),
    }[kind]
    return structs.replace(job, shape=shape, long=draw.random() < 0.4, foldable=draw.random() < 0.8, avoid=job.avoid)


class ShapingAuthor(ShapedAuthor):
    """Scripts of such jobs; the evolving ones ask."""

    def _about(self, state: SchedulerState, dice: float) -> ev.Event | None:
        if self.random.random() < 0.05:
            asking = [
                record for record in state.records.values()
                if record.state is JobState.RUNNING and not record.waits and record.holding.counted
                and isinstance(record.job.shape, Range) and record.job.shape.ask_more + record.job.shape.ask_fewer
            ]  # fmt: skip
            if asking:
                record = self.random.choice(asking)
                shape, wanted = record.job.shape, record.given + sum(record.asks)
                assert isinstance(shape, Range)
                more = self.random.randint(-shape.ask_fewer - wanted, shape.ask_more - wanted)
                if more:
                    return ev.ResizeAsked(record.job.id, more)
        return super()._about(state, dice)

    def _job(self, state: SchedulerState) -> ev.Event | None:
        event = super()._job(state)
        return ev.JobSubmitted(with_shape(event.job, self.random)) if isinstance(event, ev.JobSubmitted) else event


@dataclass
class ShapedLife(Life):
    """A history under one of the policies."""

    name: str = "fjt1+bfm"
    author_type: type[ShapedAuthor] = ShapingAuthor

    @property
    def policy(self) -> Policy:
        return resolve(self.name)

    @property
    def other_policy(self) -> Policy:
        return self.policy

    @property
    def rules(self) -> MachineRules:
        draw = Random(self.seed)
        return MachineRules(
            sharing=Sharing() if self.machine == "shared" else None,
            mpl=1,
            fold_cost_ppm=draw.choice((0, 100_000)),
            resize_cost_us=draw.choice((0, 7)),
        )


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", [*FOLDING, *EQUIPARTITION])
@settings(max_examples=max(4, settings().max_examples // 25))
@given(seed=seeds)
def test_nothing_is_held_twice_and_all_is_told_again(name: str, machine: str, seed: int) -> None:
    """Late, refused and lost: no processor is two jobs'; a restored machine goes on as the other, a replay agrees."""
    life = ShapedLife(seed, machine, name=name)
    for _ in range(40):
        life.step()
    life.goes_on(40)
    life.end()


# what policies promise, in the simulator


class Watched:
    """Looks at the machine after each instant's last pass, when everything has been carried out."""

    def __init__(self, state: SchedulerState, name: str) -> None:
        self.state, self.name = state, name
        self.seen = 0

    def __call__(self, now_us: int, event: ev.Event, instructions: list[Instruction]) -> None:
        if any(isinstance(each, Kill) for each in instructions):
            assert "bfa" in self.name, f"{instructions} under {self.name}"
        still = not any(isinstance(each, Start | Resize | Kill) for each in instructions)
        if isinstance(event, ev.Boundary) and still and not self.state.machine.jobs.changing:
            self.seen += 1
            self.look()

    def look(self) -> None:
        running = [*self.state.running()]
        for record in running:
            held, job = record.allocation, record.job
            assert held is not None
            assert job.width.allows(held.processes), f"{held} of {job}"
            assert held.procs >= -(-held.processes // 4) or not held.procs, f"{held} is folded too far"
            assert not held.folded or job.foldable or not held.procs, f"{job} is folded"
        assert (
            sum(record.allocation.procs for record in running) + self.state.machine.capacity.free_procs
            == self.state.machine.capacity.procs_total
        )
        if self.name.startswith("equipartition"):
            self.shares(running)

    def shares(self, running: list[Record]) -> None:
        total = self.state.machine.capacity.procs_total
        bounds = [(record, *bounds_of(record)) for record in running]
        for record, least, most in bounds:
            assert least <= record.allocation.procs <= most, f"{record.job} holds {record.allocation.procs}"
        minima = sum(least for _, least, _ in bounds)
        if "threshold" not in self.name:
            assert sum(record.allocation.procs for record in running) == min(total, sum(most for *_, most in bounds))
        if "easy" not in self.name:
            waiting = [job for job in self.state.queue if minima + smallest(job) <= total]
            assert not waiting, f"{waiting} fit beside {minima} of {total}"
        if self.name == "equipartition":
            open_ = [
                record.allocation.procs - least for record, least, most in bounds if record.allocation.procs < most
            ]
            assert not open_ or max(open_) - min(open_) <= 1, bounds


def bounds_of(record: Record) -> tuple[int, int]:
    shape = record.job.shape
    if not isinstance(shape, Range) or not shape.malleable:
        return record.allocation.procs, record.allocation.procs
    return smallest(record.job) + record.given, shape.most + record.given


def loads(name: str, seed: int) -> shapes.Load:
    if not name.startswith("equipartition"):
        return shapes.folding_load(seed)
    load = shapes.equipartition_load(seed, growing=1 if "wait" in name else 99)
    return load._replace(jobs=[replace(never_without_processes(job), speeds=()) for job in load.jobs])


def watched(name: str, seed: int) -> Iterator[Watched]:
    made, _ = workload(loads(name, seed))
    state = SchedulerState(resolve(name))
    watch = Watched(state, name)
    drive(state, Run(made, False, 0, None), watch)
    assert not state.records, f"{state.records} are left under {name}"
    yield watch


@pytest.mark.parametrize("name", [*FOLDING, *EQUIPARTITION])
def test_what_policies_promise_of_what_jobs_hold(name: str) -> None:
    looked = 0
    for seed in range(30):
        for watch in watched(name, seed):
            looked += watch.seen
    assert looked > 300
