"""What the owners of a job's nodes do to it, for the job's user: by their word, and by being there."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from cosched.config.cluster import ClusterConfig
from cosched.model.allocation import Share
from cosched.model.job import JobState
from cosched.wire.api import LimitedDoc, PausedDoc
from space_scheduler.service.journal.records import JobRecord, View
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.launch.sharing import policy_of, shares_nodes

_HOLDS = (JobState.STARTING, JobState.RUNNING, JobState.ENDING)


def paused_on(record: JobRecord, book: NodeBook, config: ClusterConfig) -> list[PausedDoc]:
    """The nodes of a job whose owners have paused it, in the allocation's order.

    A job's first node keeps its time limit, which stands still in a pause; where nodes are shared the limit counts
    work, of which nothing is done then.
    """
    return [
        PausedDoc(
            node,
            entry.paused_at.isoformat(timespec="seconds") if entry.paused_at else None,
            entry.beat.paused,
            at == 0 or shares_nodes(policy_of(config)),
        )
        for at, (node, entry) in enumerate(_entries(record, book))
        if entry is not None and entry.beat is not None and entry.beat.paused
    ]


def held_procs(view: View) -> dict[str, int]:
    """How many processors jobs hold on each node."""
    held: Counter[str] = Counter()
    for each in view.jobs.values():
        for share in _shares(each):
            held[share.node] += share.procs
    return held


def _shares(record: JobRecord) -> tuple[Share, ...]:
    """What a job holds of each of its nodes."""
    return record.allocation.nodes if record.allocation is not None and record.state in _HOLDS else ()


def _entries(record: JobRecord, book: NodeBook) -> Iterator[tuple[str, NodeEntry | None]]:
    """The nodes of a job, each with what the book has of it."""
    return ((share.node, book.get(share.node)) for share in _shares(record))


def limited_on(record: JobRecord, held: Callable[[], Mapping[str, int]], book: NodeBook) -> list[LimitedDoc]:
    """The nodes of a job whose ceiling for parallel work is below what jobs hold there together.

    ``held`` counts that (:func:`held_procs`), over all jobs: it is asked where a node has a ceiling alone.
    The ceiling is the contract's: by how much less it is while somebody waits there is not told, nor by whom.
    """
    return [
        LimitedDoc(
            node,
            entry.limited_at.isoformat(timespec="minutes") if entry.limited_at else None,
            entry.public_limit_cpus,
        )
        for node, entry in _entries(record, book)
        if entry is not None and entry.public_limit_cpus is not None and entry.public_limit_cpus < held().get(node, 0)
    ]
