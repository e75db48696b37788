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
        disturbed = changes.disturbed
        if memory and memory.wake_us < now_us:  # a live host can be late; a promise that should have been kept was not
            disturbed = disturbed or Why.LATE_LAUNCH
        future: KeepingFuture | None = None
        if memory is not None and not disturbed:
            future = futures.resumed(snapshot, memory)
            if isinstance(future, NamedFuture) and future.nodes_stayed_away:
                disturbed, future = Why.CAPACITY_CHANGED, None
            elif isinstance(future, NamedFuture) and future.ends_moved:
                disturbed, future = Why.PACE, None
        if future is None:
            before = {} if memory is None else memory.starts_us.copy()
            for job in changes.withdrawn:  # who comes back is promised anew
                before.pop(job.id, None)
            future = _made_anew(snapshot, before, _in_schedule_order(snapshot, before))
            moved, newcomers = before, [job for job in queue if job.id not in before]
        else:
            moved, newcomers = {}, changes.submitted
            if len(newcomers) > 1:
                newcomers = sorted(newcomers, key=lambda job: queue.key(job.id))
            if future.starts_us and (changes.vacated or changes.withdrawn):
                future, moved = self._after_early_end(snapshot, future)
        told = list(filter(moved.__contains__, future.starts_us)) if moved else []
        for job in newcomers:
            future.place(job)
            told.append(job.id)
        return _start_due(snapshot, future, moved, told, Reason(disturbed or Why.RESCHEDULED, changes.overdue))

    def validate(self, snapshot: Snapshot) -> None:
        """The memory is what runs and what is reserved, and never over-committed."""
        problem = futures.contradiction(snapshot)
        assert problem is None, problem

    def _after_early_end(self, snapshot: Snapshot, future: KeepingFuture) -> tuple[KeepingFuture, dict[int, int]]:
        """Carry out the choice. Gives the future to go on with, and the starts before of all who may have moved."""
        now_us, starts_us = snapshot.now_us, future.starts_us
        if self.early_end is EarlyEnd.ANEW:
            waiting = [job for job in snapshot.queue if job.id in starts_us]
            waiting.sort(key=lambda job: starts_us[job.id] > now_us)  # what is due now is as good as started
            return _made_anew(snapshot, starts_us, waiting), starts_us
        if self.early_end is EarlyEnd.SCHEDULE:
            in_schedule_order = _in_schedule_order(snapshot, starts_us)
            anew = _made_anew(snapshot, starts_us, in_schedule_order)
            none_later = snapshot.nodes is None or all(
                anew.starts_us[job_id] <= at_us for job_id, at_us in starts_us.items()
            )
            if none_later:
                return anew, starts_us
            return future, future.compress(in_schedule_order)  # on counted processors none is later
        if self.early_end is EarlyEnd.ARRIVAL:
            return future, future.compress(snapshot.queue)
        return future, {}


def _start_due(
    snapshot: Snapshot, future: KeepingFuture, before: dict[int, int], looked: list[int], why: Reason
) -> Plan:
    """Start what is due, and tell of every promise made or moved (``why`` one might be later than before).

    ``looked``: the jobs that may have another promise than before, in the order in which they are told; ``before``:
    what those of them had that had one.
    """
    starts_us, starts = future.starts_us, []
    for job in map(snapshot.queue.job, sorted(future.due(), key=snapshot.queue.key)):
        promised_us = before.get(job.id, starts_us[job.id])
        starts.append(future.start_reserved(job, Reason(Why.RESERVATION_DUE, {"promised_us": promised_us})))
    told = moves_told(before, {job_id: starts_us[job_id] for job_id in looked if job_id in starts_us}, why)
    memory, wake_us = future.kept()
    return Plan(starts, memory, wake_us if wake_us != FOREVER_US else None, told)


def _in_schedule_order(snapshot: Snapshot, starts_us: dict[int, int]) -> list[Job]:
    """The jobs that have a reservation, by reserved start, ties in queue order."""
    return sorted((job for job in snapshot.queue if job.id in starts_us), key=lambda job: starts_us[job.id])


def _made_anew(snapshot: Snapshot, job_ids: Iterable[int], jobs: Iterable[Job]) -> KeepingFuture:
    """The future of what runs, with the jobs placed in it in the order given; ``job_ids``: theirs, as they are told."""
    future: KeepingFuture = futures.keeping(snapshot, job_ids)
    for job in jobs:
        future.place(job)
    return future
