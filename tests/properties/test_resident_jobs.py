"""Jobs whose processes are all there (``Range.resident``), whatever hosts answer late or refuse.

On counted processors they are scheduled as plain malleable jobs are; on named nodes their processes stay where they
are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from core.test_shapes_against_reference import never_without_processes, workload
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.carried_out import Machine
from kit.reshaper import ShapedAuthor
from msgspec import structs
from properties.test_policies_of_shapes import EQUIPARTITION, MACHINES, ShapedLife, ShapingAuthor, with_shape
from reference import shapes

from cosched.model.allocation import Share
from cosched.model.job import Job
from cosched.model.width import Range
from cosched.workload.rules import Shaped, Workload
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Resize, Start
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.policy.reshape.free import smallest
from space_scheduler.simulator.host import Stuck, simulate

seeds = st.integers(0, 1 << 32)
POLICIES = (*EQUIPARTITION, "equipartition(in-order)", "fjt1+bfm", "fjt1+bfm(expired=suspend)", "fjt4+bfa", "easy")

# counted processors: as plain malleable jobs


def stays(shaped: Shaped | None) -> Shaped | None:
    """The same job with all of its processes there, if it is malleable."""
    if shaped is None or not shaped.shape.malleable:
        return shaped
    return shaped._replace(shape=structs.replace(shaped.shape, resident=True))


def schedule(load: Workload, name: str, **costs: Any) -> object:
    """All that is decided: starts, ends, what is held when and why; None where nothing more can happen."""
    try:
        ran = simulate(load, resolve(name), validate=True, **costs)
    except Stuck:
        return None
    held = [(each.row, each.at_us, each.procs, each.why) for each in ran.holdings or ()]
    return ran.start_us.tolist(), ran.end_us.tolist(), held


@pytest.mark.parametrize("resize_cost_us", [0, 5_000_000])
@pytest.mark.parametrize("name", [*EQUIPARTITION, "equipartition(in-order)", "easy", "conservative"])
@settings(max_examples=max(8, settings().max_examples // 12))
@given(seed=seeds)
def test_on_counted_processors_they_are_scheduled_as_plain_malleable_jobs(
    name: str, resize_cost_us: int, seed: int
) -> None:
    load = shapes.equipartition_load(seed)
    made, _ = workload(load._replace(jobs=[never_without_processes(job) for job in load.jobs]))
    resident = replace(made, shapes=[stays(each) for each in made.shapes])
    found = schedule(resident, name, resize_cost_us=resize_cost_us)
    assert found == schedule(made, name, resize_cost_us=resize_cost_us)


# whatever hosts do


def with_processes_that_stay(job: Job, draw: Random) -> Job:
    """The job, in half of all cases a resident one, for which there may be more processes than have room."""
    if draw.random() < 0.5:
        return with_shape(job, draw)
    least, most = draw.randint(1, job.procs), job.procs + draw.randint(0, 4)
    sizes = tuple(sorted({least, job.procs, most})) if draw.random() < 0.2 else ()
    more, fewer = (0, 0) if sizes else (draw.choice((0, 0, 2)), draw.randint(0, least - 1))
    shape = Range(least, most, sizes, (), True, more, fewer, resident=True)
    return structs.replace(job, shape=shape, long=draw.random() < 0.4)


class ResidentAuthor(ShapingAuthor):
    """Scripts in which half of the jobs are resident."""

    def _job(self, state: SchedulerState) -> ev.Event | None:
        event = ShapedAuthor._job(self, state)
        if not isinstance(event, ev.JobSubmitted):
            return event
        job = structs.replace(event.job, shape=None)
        return ev.JobSubmitted(with_processes_that_stay(job, self.random))


@dataclass
class ResidentLife(ShapedLife):
    """A history of which it is kept where each resident job was started."""

    author_type: type[ShapedAuthor] = ResidentAuthor
    there: dict[int, dict[str, int] | int] = field(default_factory=dict)
    happened: Counter[str] = field(default_factory=Counter)

    @property
    def rules(self) -> MachineRules:
        draw = Random(f"nodes of {self.seed}")
        return structs.replace(super().rules, max_nodes_per_job=draw.choice((None, None, 1, 2)))

    def happens(self, at_us: int, event: ev.Event) -> None:
        super().happens(at_us, event)
        for each in self.told[-1][3]:
            record = self.state.records.get(getattr(each, "job_id", -1))
            if isinstance(each, Start) and each.job.resident:
                self.there[each.job.id] = whereabouts(each.allocation.nodes) or each.allocation.processes
                self.started(each)
            elif isinstance(each, Resize) and record is not None and record.job.resident:
                self.stays(each)

    def step(self) -> None:
        super().step()
        self.holds_memory()

    def started(self, start: Start) -> None:
        """It has no more processes on a node than that has processors, and asks for no more than it can ever have."""
        shape = start.job.shape
        assert isinstance(shape, Range)
        places = {each.node.name: each.node.procs for each in self.state.nodes()}
        assert all(share.tasks <= places[share.node] for share in start.allocation.nodes)
        assert smallest(start.job) <= start.allocation.procs <= start.allocation.processes
        assert start.allocation.processes <= shape.most + shape.ask_more
        self.happened["sleeping"] += start.allocation.procs < start.allocation.processes
        self.happened["fewer"] += start.allocation.processes < shape.most + shape.ask_more

    def stays(self, resize: Resize) -> None:
        """Its processes are where they were started; on each node at most they are enabled."""
        new = resize.new
        assert (whereabouts(new.nodes) or new.processes) == self.there[resize.job_id]
        assert [share.node for share in new.nodes] == [share.node for share in resize.old.nodes]
        assert all(0 <= share.procs <= share.tasks for share in new.nodes)
        self.happened["wider" if new.procs > resize.old.procs else "narrower"] += 1
        self.happened["none of a node"] += new.procs > 0 and any(not share.procs for share in new.nodes)

    def holds_memory(self) -> None:
        """Nodes count all processes that jobs have there."""
        held: Counter[str] = Counter()
        for record in self.state.running():
            for share in record.allocation.nodes if record.allocation else ():
                held[share.node] += share.tasks * record.job.memory_bytes
        for status in self.state.nodes():
            assert status.used_memory_bytes == held[status.node.name]


def whereabouts(shares: Sequence[Share]) -> dict[str, int]:
    return {share.node: share.tasks for share in shares}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=max(4, settings().max_examples // 25))
@given(seed=seeds)
def test_they_stay_where_they_are_and_all_is_told_again(name: str, machine: str, seed: int) -> None:
    """Late, refused and lost: nothing is held twice; a restored machine goes on as the other, a replay agrees."""
    life = ResidentLife(seed, machine, name=name)
    for _ in range(40):
        life.step()
    life.goes_on(40)
    life.end()


@pytest.mark.parametrize("machine", MACHINES)
def test_all_of_it_happens(machine: str) -> None:
    happened: Counter[str] = Counter()
    expected = {"sleeping", "wider", "narrower"} | ({"fewer", "none of a node"} if machine != "counted" else set())
    for seed in range(150):
        life = ResidentLife(seed, machine, name="equipartition")
        for _ in range(60):
            life.step()
        happened += life.happened
        if all(happened[each] >= 5 for each in expected):
            return
    pytest.fail(f"of {expected} there were {happened}")


# named nodes: what is left over


@pytest.mark.parametrize("name", ["equipartition", "equipartition(waterfill)", "equipartition(easy)"])
@settings(max_examples=max(25, settings().max_examples // 4))
@given(seed=seeds, everywhere=st.booleans())
def test_a_processor_is_left_over_by_place_alone(name: str, seed: int, everywhere: bool) -> None:
    """Rigid and resident jobs on named nodes, all of whose processes are ``everywhere``: then none is, as if counted.

    Else each resident job has at least its minimum, and after each event there is an end of changes.
    """
    draw = Random(seed)
    nodes = [draw.randint(1, 4) for _ in range(draw.randint(1, 4))]
    made = Machine(*nodes, policy=name, memory=100 if everywhere else draw.choice((6, 100)))
    for number in range(1, 25):
        running = [*made.state.running()]
        if running and draw.random() < 0.45:
            made.happen(number, ev.JobEnded(draw.choice(running).job.id))
        else:
            procs, most = draw.randint(1, 5), sum(nodes)
            job = Job(number, procs, 1_000_000_000, 0, memory_bytes=0 if everywhere else draw.choice((0, 0, 1, 2)))
            if not made.state.refusal(job):
                most = max(procs, most if everywhere else procs + draw.randint(0, 6))
                shape = Range(draw.randint(1, procs), most, malleable=True, resident=True)
                made.submit(number, structs.replace(job, shape=draw.choice((None, shape, shape))))
        stays = [record for record in made.state.running() if record.job.resident]
        assert all(record.allocation.procs >= smallest(record.job) for record in stays)
        if everywhere and stays:
            assert not made.state.machine.capacity.free_procs, [record.allocation for record in stays]
