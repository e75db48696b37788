"""What the owners of a job's nodes have done to it, for the job's user."""

from cosched.config.cluster import ClusterConfig
from cosched.model.job import JobState
from cosched.wire.api import PausedDoc
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.launch.sharing import shared

_HOLDS = (JobState.STARTING, JobState.RUNNING, JobState.ENDING)


def paused_on(record: JobRecord, book: NodeBook, config: ClusterConfig) -> list[PausedDoc]:
    """The nodes of a job whose owners have paused it, in the allocation's order.

    A job's first node keeps its time limit, which stands still in a pause; where nodes are shared the limit counts
    work, of which nothing is done then.
    """
    if record.allocation is None or record.state not in _HOLDS:
        return []
    found, by_work = [], shared(config)
    for at, share in enumerate(record.allocation.nodes):
        entry = book.get(share.node)
        if entry is not None and entry.beat is not None and entry.beat.paused:
            since = entry.paused_at.isoformat(timespec="seconds") if entry.paused_at else None
            found.append(PausedDoc(share.node, since, entry.beat.paused, at == 0 or by_work))
    return found
