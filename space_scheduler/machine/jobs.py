"""The job book of a machine: every live job's record, who waits in order, and who holds processors until when.

A job's life is one table, :data:`cosched.model.job.TRANSITIONS`: from which state to which it may go. A
job is in the queue while it is queued, in the index of predicted ends while it holds processors, and nowhere when it
has ended. Nothing but a step moves it, so that queue, ends and records never tell of different lives. A job that a rule
of the ``chain`` keeps out of the queue waits.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from cosched.model.job import QUEUED, TERMINAL, TRANSITIONS, WAITING, Job, JobState
from space_scheduler.eligibility.chain import Chain
from space_scheduler.eligibility.rule import Ended, Rule
from space_scheduler.machine.events import Event
from space_scheduler.machine.holding import NEXT, NOTHING, Holding
from space_scheduler.machine.record import Record, UnknownJob
from space_scheduler.on_nodes import FIELDS, Field
from space_scheduler.policy.order import Order
from space_scheduler.policy.queue import JobQueue
from space_scheduler.reasons import Reason

#: (predicted end, job id, processors) of a job that holds processors.
End = tuple[int, int, int]


class Note(NamedTuple):
    """A change of one job: it was ``was`` and is ``state`` now, for the reason that its record gave then.

    ``was`` is None where it is new, and equal to ``state`` where it is in the same state and holds something else.
    """

    record: Record
    was: JobState | None
    state: JobState
    at_us: int
    reason: Reason
    cause: Event | None


class JobBook:
    """The live jobs. ``ends`` is in order of time; ``ranks`` counts the jobs that came, in order of arrival.

    ``chain`` says which of them wait, and why; ``aside`` is its rule of those that passes set aside, ``gates`` has
    its rules that are asked. ``changing`` are the jobs of which the host has not said yet that they hold what they are
    to hold, by number, in the order in which that was planned (``holdings``).

    ``notes`` are the changes of jobs since the host drained them, in order; None, as in a simulation, where no host
    does.
    """

    __slots__ = ("aside", "chain", "changing", "ends", "gates", "notes", "queue", "ranks", "records")

    def __init__(
        self, order: Order, alike_in: Collection[Field] = FIELDS, eligibility: Sequence[Rule] | None = None
    ) -> None:
        """``alike_in`` as for the queue: which fields make jobs alike; ``eligibility`` as for ``Gates``."""
        self.records: dict[int, Record] = {}
        self.queue = JobQueue(order, alike_in)
        self.ends: list[End] = []
        self.changing: dict[int, Record] = {}
        self.chain = Chain(eligibility)
        self.aside, self.gates = self.chain.aside, self.chain.gates
        self.notes: list[Note] | None = None
        self.ranks = 0

    def __getitem__(self, job_id: int) -> Record:
        """The record of a live job, or :class:`UnknownJob`."""
        record = self.records.get(job_id)
        if record is None:
            raise UnknownJob(job_id)
        return record

    def enter(self, job: Job, now_us: int, cause: Event) -> None:
        """A new job waits."""
        self.queue.add(job, self.ranks)  # first: an order may raise, and nothing has changed then
        self.records[job.id] = record = Record(job, self.ranks, now_us, cause)
        self.ranks += 1
        if self.notes is not None:
            self._note(self.notes, record, None, now_us)

    def restore(self, record: Record) -> None:
        """Have a job again as it was."""
        job = record.job
        self.records[job.id] = record
        if record.state is WAITING:
            self.queue.entry(job, record.rank)  # an order that fails for it is told now, as with those in the queue
        elif record.state is QUEUED:
            self.queue.add(job, record.rank)
        elif record.holding.counted:
            self._note_end(record)

    def become(
        self, record: Record, state: JobState, now_us: int, reason: Reason | None = None, cause: Event | None = None
    ) -> None:
        """Move a job to another state; what it holds is moved apart (:meth:`hold`), unless it has ended.

        ``reason`` and ``cause`` are of the decision that moved it; None: a report did, or the record has them already.
        Raises ``IllegalTransition`` with the job's story, and nothing has changed then.
        """
        was = record.state
        if state not in TRANSITIONS[was]:
            raise record.illegal(state, now_us)
        record.state = state
        record.story += ((now_us, state),)
        if reason is not None:
            record.decided(reason, now_us, cause)
        if was is QUEUED:
            self.queue.remove(record.job)
        if state is QUEUED:
            self.aside.drop(record.job.id)
            self.queue.add(record.job, record.rank)
        elif state in TERMINAL:
            self._leave(record, was)
        if self.notes is not None:
            self._note(self.notes, record, was, now_us)

    @staticmethod
    def _note(notes: list[Note], record: Record, was: JobState | None, now_us: int) -> None:
        notes.append(Note(record, was, record.state, now_us, record.reason, record.cause))

    def drain(self) -> list[Note]:
        """The changes of jobs since the last call, in order; none where they are not kept."""
        notes = self.notes
        if not notes:
            return []
        self.notes = []
        return notes

    def wait_again(self, record: Record, job: Job, now_us: int) -> None:
        """A job that has become queued again holds and is promised nothing, and waits as ``job`` from now on."""
        self.hold(record, NOTHING, now_us)
        record.wait_again()
        if job is not record.job:
            self.queue.remove(record.job)
            record.job = job
            self.queue.add(job, record.rank)

    def predict(self, record: Record, end_us: int) -> None:
        """Move the predicted end of a job that holds processors."""
        self._forget_end(record)
        record.end_us = end_us
        self._note_end(record)

    def hold(self, record: Record, holding: Holding, now_us: int) -> None:
        """A job holds this from now on; its end is still the predicted one."""
        was = record.holding
        assert type(holding) in NEXT[type(was)], f"job {record.job.id}: {holding} after {was}"
        if was.counted:
            self._forget_end(record)
        record.holding = holding
        if holding.counted:
            insort(self.ends, (record.end_us, record.job.id, holding.allocation.procs))
        if holding.changing:
            self.changing[record.job.id] = record
        elif was.changing:
            del self.changing[record.job.id]
        if self.notes is not None:
            self._note(self.notes, record, record.state, now_us)

    def follow_rules(self, record: Record, now_us: int, reason: Reason, cause: Event | None) -> None:
        """Have a job that holds nothing wait or be queued, as the rules have it now.

        ``reason`` is that of being queued; while it waits, the first rule's that keeps it back is.
        """
        kept_back = self.chain.reason(record.job.id)
        if kept_back is None:
            if record.state is WAITING:
                self.become(record, QUEUED, now_us, reason, cause)
        elif record.state is QUEUED or kept_back != record.reason:
            self.become(record, WAITING, now_us, kept_back, cause)

    def take_last_places(self, passed: Sequence[Record], came: Sequence[Record]) -> None:
        """Jobs that have passed the last rule stand behind all that were queued before, ahead of those that come now.

        ``passed`` are not in the queue yet, ``came`` are; each in order of arrival.
        """
        ranks = [*(record.rank for record in came), *range(self.ranks, self.ranks + len(passed))]
        self.ranks += len(passed)
        for record, rank in zip((*passed, *came), ranks, strict=True):
            if record.state is QUEUED:
                self.queue.remove(record.job)
                record.rank = rank
                self.queue.add(record.job, rank)
            else:
                record.rank = rank

    def running(self) -> Iterator[Record]:
        """The jobs that hold processors, in the order in which they came."""
        return (record for record in self.records.values() if record.holding.counted)

    def holding(self) -> Iterator[Record]:
        """The same jobs, by their predicted ends; costs nothing for those that wait."""
        return (self.records[job_id] for _, job_id, _ in self.ends)

    def _note_end(self, record: Record) -> None:
        insort(self.ends, (record.end_us, record.job.id, record.holding.allocation.procs))

    def _forget_end(self, record: Record) -> None:
        del self.ends[bisect_left(self.ends, (record.end_us, record.job.id, record.holding.allocation.procs))]

    def _leave(self, record: Record, was: JobState) -> None:
        """Forget a job that has ended."""
        job_id = record.job.id
        if record.holding.counted:
            self._forget_end(record)
        self.changing.pop(job_id, None)
        del self.records[job_id]
        if was is WAITING or self.aside.jobs:
            self.chain.drop(job_id)
        if self.gates.rules is not None:
            self.gates.ended[job_id] = Ended(record.state, record.story[-1][0])
