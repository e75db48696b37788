"""A policy that starts, shrinks, widens and queues again at random moments, and books of what jobs hold under it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar

from msgspec.structs import replace

from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job, JobState
from cosched.model.width import Range
from kit.script import Author
from space_scheduler.feasibility import Room
from space_scheduler.machine import events as ev
from space_scheduler.machine.holding import Resizing, Starting
from space_scheduler.machine.instructions import Instruction, Resize, Start
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import (
    Plan,
    PlannedChange,
    PlannedRequeue,
    PlannedResize,
    PlannedStart,
    RunningJob,
    Snapshot,
)
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.reasons import Reason, Why

SHRUNK, WIDENED, ABORTED, FITS = (Reason(why) for why in (Why.SHRUNK, Why.WIDENED, Why.ABORTED, Why.FITS))


@dataclass(frozen=True)
class Reshaper:
    """Draws what to change from a seed and the number of its passes, which is its memory.

    Until ``requeues_until`` passes it ends running jobs to queue them again; later it lets them come to their end.
    Where ``scripts_stay``, what shrinks keeps the first of its nodes, on which its script runs: no live service resizes
    it otherwise.
    """

    seed: int
    requeues_until: int = 60
    order: Order = fcfs
    scripts_stay: bool = False
    memory_type: ClassVar = int
    shares: ClassVar = True

    def plan(self, snapshot: Snapshot) -> Plan:
        passes = snapshot.memory or 0
        draw = Random(f"{self.seed}:{passes}")
        room = _Free(snapshot)
        changes: list[PlannedChange] = []
        changed: set[int] = set()
        for each in snapshot.running():
            dice = draw.random() if each.resizable else 1.0
            if dice < 0.08 and passes < self.requeues_until:
                changes.append(PlannedRequeue(each.job, ABORTED))
                room.give(each.job, each.allocation)
            elif dice < 0.4 and (narrower := _part(each, draw, self.scripts_stay)):
                changes.append(PlannedResize(each.job, SHRUNK, narrower))
                room.give(each.job, each.allocation)
                room.take(each.job, narrower)
            else:
                continue
            changed.add(each.job.id)
        for job in snapshot.queue:
            widths = [width for width in _widths(job) if draw.random() < 0.8]
            place = next(filter(None, (room.placed(job.at(width)) for width in widths)), None)
            if place and draw.random() < 0.9:
                changes.append(PlannedStart(job, FITS, place))
                room.take(job, place)
        for each in snapshot.running():
            grows = each.job.id not in changed and each.resizable and draw.random() < 0.5
            if grows and (wider := room.wider(each, draw)):
                changes.append(PlannedResize(each.job, WIDENED, wider))
                room.take(each.job, wider.beyond(each.allocation))
        draw.shuffle(changes)  # the machine puts them in order: it ends and shrinks first
        again = snapshot.now_us + draw.randrange(1, 30_000_000) if snapshot.queue.head() or changes else None
        return Plan(changes, passes + 1, again)


def _widths(job: Job) -> list[int]:
    """Those it can have, widest first."""
    if isinstance(job.width, Range):
        return [n for n in range(job.width.most, job.width.least - 1, -1) if job.width.allows(n)]
    return [job.procs]


def _part(each: RunningJob, draw: Random, scripts_stay: bool) -> Allocation | None:
    """A narrower width on what a job holds."""
    narrower = [width for width in _widths(each.job) if width < each.allocation.procs]
    if not narrower:
        return None
    width = draw.choice(narrower)
    if not each.allocation.nodes:
        return Allocation(width)
    kept, left = [], width
    shares = draw.sample(each.allocation.nodes, len(each.allocation.nodes))
    if scripts_stay:
        shares.sort(key=lambda share: share != each.allocation.nodes[0])
    for share in shares:
        if tasks := min(share.tasks, left):
            kept.append(Share(share.node, tasks))
            left -= tasks
    return Allocation(width, tuple(kept))


class _Free:
    """What a plan may still use: counted processors, or a copy of the room."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.procs = snapshot.free_procs
        self.room: Room | None = snapshot.nodes.room if snapshot.nodes else None

    def placed(self, job: Job) -> Allocation | None:
        if self.room is not None:
            return self.room.placed(job)
        return Allocation(job.procs) if job.procs <= self.procs else None

    def take(self, job: Job, allocation: Allocation) -> None:
        self.procs -= allocation.procs
        if self.room is not None:
            self.room.take(job, allocation)

    def give(self, job: Job, allocation: Allocation) -> None:
        self.procs += allocation.procs
        if self.room is not None:
            self.room.give(job, allocation)

    def wider(self, each: RunningJob, draw: Random) -> Allocation | None:
        """A wider place that has all of the one that a job has."""
        wider = [width for width in _widths(each.job) if width > each.allocation.procs]
        if not wider:
            return None
        width = draw.choice(wider)
        more = self.placed(each.job.at(width - each.allocation.procs))
        if more is None or self.room is None:
            return None if more is None else Allocation(width)
        tasks = {share.node: share.tasks for share in each.allocation.nodes}
        for share in more.nodes:
            tasks[share.node] = tasks.get(share.node, 0) + share.tasks
        if set(tasks) - set(self.room.index):  # a node of it is not in service: it may keep what it has, not grow
            return None
        return Allocation(width, tuple(Share(node, count) for node, count in tasks.items()))


class ShapedAuthor(Author):
    """Scripts whose jobs have ranges of widths, and hosts that carry changes out late, or refuse them."""

    def _about(self, state: SchedulerState, dice: float) -> ev.Event | None:
        under_way = [
            job_id for job_id, record in state.records.items()
            if isinstance(record.holding, Resizing)
        ]  # fmt: skip
        if under_way and self.random.random() < 0.3:
            job_id = self.random.choice(under_way)
            return ev.ResizeFailed(job_id, "a test") if self.random.random() < 0.3 else ev.JobResized(job_id)
        event = super()._about(state, dice)
        about = getattr(event, "job_id", None)
        if about is None or isinstance(event, ev.JobCancelled):
            return event
        return None if isinstance(state.records[about].holding, Starting) else event  # no node has been told of it

    def _job(self, state: SchedulerState) -> ev.Event | None:
        event = super()._job(state)
        if not isinstance(event, ev.JobSubmitted):
            return event
        estimate_us = event.job.estimate_us * self.random.choice((1, 7_000_001))  # some outlast their changes
        return ev.JobSubmitted(shaped(replace(event.job, estimate_us=estimate_us), self.random))

    def finish(self, state: SchedulerState) -> ev.Event | None:
        """What lets every job come to its end, one event after the other; None when nothing is left to do."""
        for job_id, record in state.records.items():
            if job_id in state.machine.jobs.chain.hold.jobs:
                return ev.JobReleased(job_id)
            if isinstance(record.holding, Resizing):
                return ev.JobResized(job_id)
            if record.state is JobState.STARTING and not record.holding.awaits:
                return ev.JobLaunched(job_id)
            if record.state is JobState.ENDING or (record.state is JobState.RUNNING and self.random.random() < 0.5):
                return ev.JobEnded(job_id)
        return None


def shaped(job: Job, draw: Random) -> Job:
    """The job, with a range around its width as often as not."""
    least, most = draw.randint(1, job.procs), job.procs + draw.randint(0, 3)
    sizes = tuple(sorted({least, job.procs, most})) if draw.random() < 0.3 else ()
    speeds = tuple(draw.randint(1, 9) for _ in sizes) if draw.random() < 0.7 else ()
    shape = Range(least, most, sizes, speeds) if draw.random() < 0.7 else None
    return Job(
        job.id, job.procs, job.estimate_us, job.submit_us, memory_bytes=job.memory_bytes, requeue=job.requeue,
        shape=shape,
    )  # fmt: skip


@dataclass
class Held:
    """What each job holds by what the host was told and has said, apart from the machine's own books."""

    jobs: dict[int, Allocation] = field(default_factory=dict)
    under_way: dict[int, Resize] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    resized: int = 0

    def see(self, state: SchedulerState, event: ev.Event, instructions: Sequence[Instruction]) -> None:
        """Take an event in, and then what was instructed: nothing may be given to two."""
        match event:
            case ev.JobResized(job_id):
                self.jobs[job_id] = self.under_way.pop(job_id).new
                self.resized += 1
            case ev.ResizeFailed(job_id):
                self.jobs[job_id] = self.under_way.pop(job_id).old
            case ev.JobEnded(job_id) | ev.LaunchFailed(job_id):
                self.jobs.pop(job_id, None)
                self.under_way.pop(job_id, None)
        for each in instructions:
            if isinstance(each, Start):
                assert each.job.id not in self.jobs, f"{each} is started twice"
                self.jobs[each.job.id] = each.allocation
                self.memory[each.job.id] = each.job.memory_bytes
                self.fits(state, each.job.id, each.allocation)
            elif isinstance(each, Resize):
                assert self.jobs[each.job_id] == each.old, f"{each}, and it holds {self.jobs[each.job_id]}"
                self.jobs[each.job_id] = each.old.with_all_of(each.new)
                self.under_way[each.job_id] = each
                self.fits(state, each.job_id, each.new.beyond(each.old))

    def fits(self, state: SchedulerState, job_id: int, more: Allocation) -> None:
        """What a job has been given last was nobody's.

        Without memory it is given none, also of a node that has come back with less than jobs hold there.
        """
        if not state.nodes():
            used = sum(allocation.procs for allocation in self.jobs.values())
            assert not more.procs or used <= state.machine.capacity.procs_total, (
                f"{used} of {state.machine.capacity.procs_total} are held: {self.jobs}"
            )
        for share in more.nodes:
            node = next(each for each in state.nodes() if each.node.name == share.node)
            assert node.in_service, f"{share} of a node that is {node.state}"
            here = [(job, n) for job, held in self.jobs.items() for n in held.nodes if n.node == share.node]
            assert sum(part.procs for _, part in here) <= node.node.procs, f"{share.node}: {here}"
            held = sum(part.tasks * self.memory[job] for job, part in here)
            needs = share.tasks * self.memory[job_id]
            assert not needs or held <= node.node.memory_bytes, f"{share.node}: {here} hold {held} bytes"
