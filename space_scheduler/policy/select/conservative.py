"""Conservative backfilling (Feitelson & Weil 1998, section 2.1): every job gets a reservation when it is submitted.

The reservation is the earliest hole that delays nobody ahead, and it is a guarantee: the job starts then or earlier.
Reservations persist from pass to pass. When a job ends, its unused tail is freed, and one of the paper's choices
follows:

* ``none``: do nothing; later submissions may use the hole;
* ``anew``: a new round of backfilling: all reservations are dropped and made again in queue order. It can break a
  guarantee (the paper's Fig. 4), which is why the paper rejects it;
* ``schedule``: compress in the order of the schedule: the jobs are placed anew in the order of their reserved starts;
* ``arrival`` (the default): compress one by one: in queue order each reservation is taken out and placed again in the
  earliest hole while the others stay, one sweep for every pass in which a job ended.

Neither compression ever moves a start later. On named nodes ``schedule`` could, since a job that moves earlier may take
the very nodes that another needs later: where it would, it is carried out one by one instead.

Guarantees hold as long as predicted ends are upper bounds and the machine keeps its size; where one is *disturbed* (a
job overruns, a launch is late, nodes go, owners come), the schedule is made again in its own order, and every moved
promise is told with that cause. They hold, too, only where an end cannot take a place away: not beside company that a
reservation counts on (``uniform-hard``), and not where tasks share a CPU, so that each start moves predicted ends.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.policy import future as futures
from space_scheduler.policy.future import KeepingFuture, NamedFuture, Schedule, Timetable
from space_scheduler.policy.interface import Plan, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.select.early_end import EarlyEnd, moves_told
from space_scheduler.reasons import Reason, Why


@dataclass(frozen=True)
class Conservative:
    """Conservative backfilling with one of the four choices at an early end.

    ``place`` and ``mpl`` as for ``JustFirst``.
    """

    early_end: EarlyEnd = EarlyEnd.ARRIVAL
    order: Order = fcfs
    place: str = ""
    mpl: int | None = None
    memory_type: ClassVar = Schedule | Timetable
    alone_because: ClassVar = (
        "it guarantees starts by predicted ends, and where tasks share a CPU each start moves those; "
        "with one task on a CPU it can be had (a place with mpl=1)"
    )

    def __str__(self) -> str:
        return f"conservative({self.early_end})"

    @property
    def shares(self) -> bool:
        """Whether it can be had where jobs share nodes: where no two share a CPU."""
        return self.mpl == 1

    def plan(self, snapshot: Snapshot) -> Plan:
        """Take in what changed, place the newcomers, start what is due."""
        changes, now_us, queue = snapshot.changes, snapshot.now_us, snapshot.queue
        memory = futures.memory_of(snapshot)
        before = {} if memory is None else memory.promised_us
        if changes.withdrawn:  # who comes back is promised anew
            gone = {job.id for job in changes.withdrawn}
            before = {job_id: start_us for job_id, start_us in before.items() if job_id not in gone}
        starts_us = before.copy()

        disturbed = changes.disturbed
        if memory and memory.wake_us < now_us:  # a live host can be late; a promise that should have been kept was not
            disturbed = disturbed or Why.LATE_LAUNCH
        future: KeepingFuture | None = None
        moved: list[int] | None = None  # jobs whose reservation may be another one than before; None: all of them
        if memory is not None and not disturbed:
            future = futures.resumed(snapshot, memory)
            if isinstance(future, NamedFuture) and future.ends_moved:
                disturbed, future = Why.PACE, None
        if future is None:
            future = _made_anew(snapshot, starts_us, _in_schedule_order(snapshot, starts_us))
            newcomers = [job for job in queue if job.id not in starts_us]
        else:
            newcomers = changes.submitted
            if len(newcomers) > 1:
                newcomers = sorted(newcomers, key=lambda job: queue.key(job.id))
            moved = []
            if starts_us and (changes.vacated or changes.withdrawn):
                future, found = self._after_early_end(snapshot, future, starts_us)
                moved = None if found is None else [job_id for job_id in starts_us if job_id in found] if found else []
        for job in newcomers:
            _place(future, starts_us, job)
            if moved is not None:
                moved.append(job.id)
        due = memory is None or memory.wake_us <= now_us  # some that have not moved may be
        return _start_due(snapshot, future, before, starts_us, moved, due, disturbed or Why.RESCHEDULED)

    def validate(self, snapshot: Snapshot) -> None:
        """The memory is what runs and what is reserved, and never over-committed."""
        problem = futures.contradiction(snapshot)
        assert problem is None, problem

    def _after_early_end(
        self, snapshot: Snapshot, future: KeepingFuture, starts_us: dict[int, int]
    ) -> tuple[KeepingFuture, set[int] | None]:
        """Carry out the choice; ``starts_us`` is updated. Gives the future to go on with, and who moved (None: any)."""
        now_us = snapshot.now_us
        if self.early_end is EarlyEnd.ANEW:
            waiting = [job for job in snapshot.queue if job.id in starts_us]
            waiting.sort(key=lambda job: starts_us[job.id] > now_us)  # what is due now is as good as started
            return _made_anew(snapshot, starts_us, waiting), None
        if self.early_end is EarlyEnd.SCHEDULE:
            in_schedule_order, anew_us = _in_schedule_order(snapshot, starts_us), starts_us.copy()
            anew = _made_anew(snapshot, anew_us, in_schedule_order)
            none_later = snapshot.nodes is None or all(anew_us[job_id] <= at_us for job_id, at_us in starts_us.items())
            if none_later:
                starts_us.update(anew_us)
                return anew, None
            assert isinstance(future, NamedFuture)  # on counted processors none is later
            return future, future.compress(in_schedule_order, starts_us)
        if self.early_end is EarlyEnd.ARRIVAL:
            return future, future.compress(snapshot.queue, starts_us)
        return future, set()


def _start_due(
    snapshot: Snapshot,
    future: KeepingFuture,
    before: dict[int, int],
    starts_us: dict[int, int],
    moved: list[int] | None,
    any_due: bool,
    why: Why,
) -> Plan:
    """Start what is due, and tell of every promise made or moved (``why`` one might be later than before).

    ``moved``: the jobs that may have another promise than before, in the order of ``starts_us``; None: any. Unless
    ``any_due`` nobody else is due.
    """
    now_us, queue = snapshot.now_us, snapshot.queue
    starts = []
    looked = starts_us if moved is None else {job_id: starts_us[job_id] for job_id in moved}
    due = [job_id for job_id, start_us in (starts_us if any_due else looked).items() if start_us <= now_us]
    due.sort(key=queue.key)
    for job in map(queue.job, due):
        reason = Reason(Why.RESERVATION_DUE, {"promised_us": before.get(job.id, now_us)})
        starts.append(future.start_reserved(job, reason))
        del starts_us[job.id]
        looked.pop(job.id, None)
    told = moves_told(before, looked, why)
    wake_us = min(starts_us.values(), default=FOREVER_US)
    return Plan(starts, future.kept(starts_us, wake_us), wake_us if wake_us != FOREVER_US else None, told)


def _place(future: KeepingFuture, starts_us: dict[int, int], job: Job) -> None:
    """Reserve the earliest hole; a job that needs nodes that are away gets none until they come back."""
    start_us = future.earliest(job)
    future.reserve(job, start_us)
    starts_us[job.id] = start_us


def _in_schedule_order(snapshot: Snapshot, starts_us: dict[int, int]) -> list[Job]:
    """The jobs that have a reservation, by reserved start, ties in queue order."""
    return sorted((job for job in snapshot.queue if job.id in starts_us), key=lambda job: starts_us[job.id])


def _made_anew(snapshot: Snapshot, starts_us: dict[int, int], jobs: Iterable[Job]) -> KeepingFuture:
    """The future of what runs, with the jobs placed in it in the order given."""
    future: KeepingFuture = futures.keeping(snapshot)
    for job in jobs:
        _place(future, starts_us, job)
    return future
