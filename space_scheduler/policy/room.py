"""What is free now, and what a pass has given away: the same questions for counted processors and for named nodes."""

from cosched.model.job import Job
from space_scheduler.feasibility import Room, obstacle
from space_scheduler.policy.interface import PlannedStart, Snapshot
from space_scheduler.reasons import Reason, Why


class Pool:
    """Interchangeable processors, counted."""

    __slots__ = ("free_procs",)

    def __init__(self, free_procs: int) -> None:
        self.free_procs = free_procs

    def obstacle(self, job: Job) -> Why | None:
        """What keeps a job from starting now, or None."""
        return obstacle(job.procs, job.estimate_us, 0, self.free_procs)

    def start(self, job: Job, reason: Reason) -> PlannedStart:
        """Give a job its processors."""
        start = PlannedStart(job, reason)
        self.take(start)
        return start

    def take(self, start: PlannedStart) -> None:
        """Take away what a start of this pass holds."""
        self.free_procs -= start.job.procs


class NamedPool:
    """Named nodes."""

    __slots__ = ("_room", "free_procs")

    def __init__(self, room: Room) -> None:
        self._room = room.copy()
        self.free_procs = room.free_procs

    def obstacle(self, job: Job) -> Why | None:
        """What keeps a job from starting now, or None."""
        found = self._room.obstacle(job)
        return found.why if found else None

    def start(self, job: Job, reason: Reason) -> PlannedStart:
        """Give a job its place: there is one where there is no obstacle."""
        allocation = self._room.placed(job)
        if allocation is None:
            raise ValueError(f"job {job.id} has no place: {self._room.obstacle(job)}")
        start = PlannedStart(job, reason, allocation)
        self.take(start)
        return start

    def take(self, start: PlannedStart) -> None:
        """Take away what a start of this pass holds."""
        assert start.allocation is not None
        self._room.take(start.job, start.allocation)
        self.free_procs -= start.job.procs


def room_of(snapshot: Snapshot) -> Pool | NamedPool:
    """What is free now."""
    nodes = snapshot.nodes
    return Pool(snapshot.free_procs) if nodes is None else NamedPool(nodes.room)
