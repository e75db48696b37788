"""What the page is sent of jobs and nodes: short rows, made from the published view and from what nodes said last.

Moments are milliseconds since 1970 by the wall clock. Who sits at a desk is not told: a node is *free*, *limited* or
*not available* (docs/design/page.md).
"""

from collections.abc import Callable, Collection
from itertools import accumulate, chain, islice
from typing import Final

import msgspec

from cosched.config.cluster import ClusterConfig
from cosched.linux.wakeups import BOUNDS_S
from cosched.model.job import JobState
from space_scheduler.machine.explain import promise_to_come
from space_scheduler.reasons import Why
from space_scheduler.service.journal.clock import Clock
from space_scheduler.service.journal.records import JobRecord, View
from space_scheduler.service.launch.nodes import CLOSED, NodeBook, NodeEntry
from space_scheduler.service.launch.owners import public_reason

#: So many jobs that have not ended are sent, those that hold nodes first; of nodes the first by name.
MOST_JOBS: Final = 2000
MOST_NODES: Final = 1000
#: Of a user's own jobs that are not among these, so many more.
MOST_OWN: Final = 100
LONGEST_TEXT: Final = 200
_NOT_STARTED: Final = (JobState.QUEUED, JobState.WAITING)


class JobRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A job. ``end_ms``: when it ended, ``limit_ms`` how long it may run.

    ``why``: of a job that is queued, that nodes in service have no place for it even while they are empty, else
    nothing; of all others, why their last step was decided.
    """

    id: int
    name: str
    user: str
    state: str
    tasks: int
    cpus: int
    submit_ms: int
    start_ms: int | None
    end_ms: int | None
    limit_ms: int
    promised_ms: int | None
    why: str
    nodes: list[str]


class NodeRow(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A node. The contract's shares of CPU and memory are what jobs may have while its owner is there.

    ``limit_cpus``: the ceiling in force now, None where there is none. ``woke_ms``: as :func:`woke_ms` has it.
    ``heard_ms``: None while its agent is connected.
    """

    name: str
    state: str
    availability: str
    note: str
    cpus: int
    memory_bytes: int
    cpu_share: float
    memory_share: float
    mpl: int
    limit_cpus: float | None
    woke_ms: float | None
    heard_ms: int | None


class ClusterRow(msgspec.Struct, frozen=True, gc=False):
    """The cluster in figures. ``more_jobs`` and ``more_nodes`` are there and are not sent."""

    name: str
    policy: str
    note: str
    problem: str
    accepting: bool
    procs: int
    free_procs: int
    running: int
    waiting: int
    more_jobs: int
    more_nodes: int


class Rows:
    """Makes rows. A job's is made anew when its record is another value, or its promised start has passed."""

    def __init__(self, config: ClusterConfig, book: NodeBook, clock: Clock, policy: Callable[[], str]) -> None:
        self._config = config
        self._book = book
        self._clock = clock
        self._policy = policy
        self._made: dict[int, tuple[JobRecord, Why | None, JobRow]] = {}

    def jobs(self, view: View) -> dict[int, JobRow]:
        """The jobs alive that are sent: what holds nodes, then the queue in its order, then what waits."""
        kept, self._made = self._made, {}
        for job_id in islice(self._in_order(view), MOST_JOBS):
            record = view.jobs[job_id]
            waits, made = _waits(view, job_id), kept.get(job_id)
            current = made is not None and made[0] is record and made[1] is waits
            if made is None or not current or (made[2].promised_ms and self._is_past(record)):
                made = record, waits, self.job(record, waits)
            self._made[job_id] = made
        return {job_id: row for job_id, (*_, row) in self._made.items()}

    def forget(self) -> None:
        """Nobody looks on: rows that were made are not needed."""
        self._made = {}

    def own(self, view: View, users: Collection[str]) -> dict[str, list[JobRow]]:
        """Of those users, jobs alive that were not sent, the first ones of each; nothing while all are sent."""
        found: dict[str, list[JobRow]] = {user: [] for user in users}
        if users and len(view.jobs) > len(self._made):
            for job_id in islice(self._in_order(view), MOST_JOBS, None):
                mine = found.get(view.jobs[job_id].user)
                if mine is not None and len(mine) < MOST_OWN:
                    mine.append(self.job(view.jobs[job_id], _waits(view, job_id)))
        return found

    @staticmethod
    def _in_order(view: View) -> chain[int]:
        holding = (each.id for each in view.jobs.values() if each.state not in _NOT_STARTED)
        kept_back = (each.id for each in view.jobs.values() if each.state is JobState.WAITING)
        return chain(holding, (job.id for _, job in view.line if job.id in view.jobs), kept_back)

    def job(self, record: JobRecord, waits: Why | None = None) -> JobRow:
        """A job's row, alive or ended. ``waits``: why, where more than its place in the queue keeps it."""
        allocation, why = record.allocation, waits
        if why is None and record.state is not JobState.QUEUED:
            why = next((step.reason.why for step in reversed(record.history) if step.reason is not None), None)
        return JobRow(
            record.id,
            shown(record.submission.name),
            record.user,
            record.state.value,
            record.job.procs if allocation is None else allocation.processes,
            record.job.procs if allocation is None else allocation.procs,
            self._ms(record.submit_us),
            None if record.start_us is None else self._ms(record.start_us),
            None if record.end_us is None else self._ms(record.end_us),
            (record.limit_us or record.job.estimate_us) // 1000,
            None if record.state is not JobState.QUEUED or self._is_past(record) else self._ms(record.promised_us or 0),
            why or "",
            [share.node for share in allocation.nodes] if allocation is not None else [],
        )

    def nodes(self, view: View) -> tuple[dict[str, NodeRow], int]:
        """The nodes by name, and how many more there are."""
        busy = {share.node for each in view.jobs.values() if each.allocation for share in each.allocation.nodes}
        members = self._book.members(busy)
        sent = {each.name: self._node(each, busy=each.name in busy) for each in members[:MOST_NODES]}
        return sent, len(members) - len(sent)

    def _node(self, entry: NodeEntry, *, busy: bool) -> NodeRow:
        hello, state = entry.hello, entry.state(busy=busy)
        contract = self._config.contract.stricter(hello.owner) if hello is not None else self._config.contract
        size = entry.size or (entry.offers(self._config.contract) if hello is not None else None)
        return NodeRow(
            entry.name,
            state,
            entry.availability.value.replace("_", " "),
            "" if entry.asleep else shown(public_reason(entry.reason).removeprefix(CLOSED)),  # the state says it
            0 if size is None else size.cpus or size.procs,
            0 if size is None else size.memory_bytes,
            contract.cpu_ratio,
            contract.memory_ratio,
            contract.mpl,
            entry.public_limit_cpus,
            woke_ms(entry),
            None if entry.connected or entry.heard_at is None else int(entry.heard_at.timestamp() * 1000),
        )

    def cluster(self, view: View, jobs: int, more_nodes: int) -> ClusterRow:
        """The cluster's row; ``jobs`` of those alive are sent."""
        waiting = sum(view.waiting.values())
        return ClusterRow(
            self._config.name,
            self._policy(),
            shown(self._config.note),
            shown(view.problem),
            view.accepting,
            view.procs_total,
            max(0, view.free_procs),
            len(view.jobs) - waiting,
            waiting,
            len(view.jobs) - jobs,
            more_nodes,
        )

    def _is_past(self, record: JobRecord) -> bool:
        """Whether there is no promised start of a job that is still to come."""
        return promise_to_come(record.promised_us, self._clock.now_us()) is None

    def _ms(self, core_us: int) -> int:
        return int(self._clock.when(core_us).timestamp() * 1000)


def _waits(view: View, job_id: int) -> Why | None:
    if job_id in view.aside:
        return Why.SET_ASIDE
    reason = view.without_place.get(job_id)
    return None if reason is None else reason.why


def woke_ms(entry: NodeEntry) -> float | None:
    """Within how many milliseconds 99 of 100 wake-ups at the desk came, since its guard started; below 0: later than
    so many. None where that is not measured.
    """
    report = entry.report
    counts = report.wakeups.counts if report is not None and report.wakeups is not None else ()
    if len(counts) != len(BOUNDS_S) + 1 or not sum(counts):
        return None
    below, enough = accumulate(counts[:-1]), 0.99 * sum(counts)
    within = (bound for bound, count in zip(BOUNDS_S, below, strict=True) if count >= enough)
    return 1000 * next(within, -BOUNDS_S[-1])


def shown(text: str) -> str:
    """A text of anybody's for a page: what is not printable (direction marks are not) becomes U+FFFD, of long ones the
    beginning.
    """
    cut = text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"
    return cut if cut.isprintable() else "".join(each if each.isprintable() else "�" for each in cut)
