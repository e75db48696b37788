"""The future of interchangeable processors with reservations that are kept from pass to pass (``reservations``)."""

from collections.abc import Iterable

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.policy.future.compression import compress
from space_scheduler.policy.future.counted import CountedFuture
from space_scheduler.policy.future.reservations import Reservations, Schedule, Version
from space_scheduler.policy.interface import PlannedStart, Snapshot
from space_scheduler.policy.queue import JobQueue
from space_scheduler.profile import Profile
from space_scheduler.reasons import Reason


class KeptFuture(CountedFuture):
    """Counted processors with everything that is reserved in one profile."""

    def __init__(self, snapshot: Snapshot, table: Reservations) -> None:
        super().__init__(snapshot)
        self._queue: JobQueue = snapshot.queue
        self._table = table
        self._profile: Profile = table.profile
        self.starts_us = table.starts_us

    @classmethod
    def anew(cls, snapshot: Snapshot, job_ids: Iterable[int]) -> "KeptFuture":
        """What runs; these jobs are to be placed."""
        profile = Profile.of_running(snapshot.now_us, snapshot.free_procs, snapshot.ends)
        return cls(snapshot, Reservations(profile, dict.fromkeys(job_ids, FOREVER_US)))

    @classmethod
    def resumed(cls, snapshot: Snapshot, memory: Version | Schedule) -> "KeptFuture":
        """What was kept, less what has ended or been withdrawn since."""
        if isinstance(memory, Version):
            table = memory.taken()
        else:
            table = Reservations(memory.profile.copy(), memory.starts_us.copy())
        now_us, changes = snapshot.now_us, snapshot.changes
        table.profile.advance(now_us)
        for until_us, procs in changes.vacated:
            table.give_back(now_us, until_us, procs)
        for job in changes.withdrawn:
            table.withdraw(job, now_us)
        return cls(snapshot, table)

    def place(self, job: Job) -> None:
        """Reserve the first hole."""
        profile, start_us = self._table.profile, FOREVER_US
        if job.procs <= profile.free[-1]:
            start_us = self._table.first_hole(job, self.now_us, self._queue)
        self._table.place(job, start_us, self._queue)

    def compress(self, queue: Iterable[Job]) -> dict[int, int]:
        """Move reservations to earlier holes, one by one."""
        assert queue is self._queue  # on counted processors nobody asks for another order
        return compress(self._table, self._queue, self.now_us)

    def due(self) -> list[int]:
        """The jobs that are reserved from now on."""
        return self._table.due(self.now_us)

    def start_reserved(self, job: Job, reason: Reason) -> PlannedStart:
        """Its processors are set aside already."""
        self._table.drop(job)
        self.free_procs -= job.procs
        return PlannedStart(job, reason)

    def kept(self) -> tuple[Version, int]:
        """The reservations, and the next that falls due."""
        wake_us = self._table.next_us()
        return self._table.version(wake_us), wake_us


def contradiction(snapshot: Snapshot, memory: Version | Schedule) -> str | None:
    """What is wrong with a memory: its profile is what runs and what is reserved, and never over-committed."""
    expected = Profile.of_running(snapshot.now_us, snapshot.free_procs, snapshot.ends)
    for job_id, start_us in memory.starts_us.items():
        if job_id in snapshot.queue and start_us != FOREVER_US:
            job = snapshot.queue.job(job_id)
            expected.change(max(start_us, snapshot.now_us), start_us + job.estimate_us, -job.procs)
    actual = memory.profile.copy()
    actual.advance(snapshot.now_us)
    if actual.normal() != expected.normal():
        return f"profile {actual.normal()}, expected {expected.normal()}"
    return f"over-committed: {actual.normal()}" if actual.lowest() < min(0, snapshot.free_procs) else None
