"""What the owners of a job's nodes do to it, for the job's user: by their word, and by being there."""

from collections import Counter
from collections.abc import Mapping

from cosched.config.cluster import ClusterConfig
from cosched.model.allocation import Share
from cosched.model.job import JobState
from cosched.wire.api import LimitedDoc, PausedDoc
from space_scheduler.service.journal.records import JobRecord, View
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.launch.sharing import policy_of, shares_nodes

_HOLDS = (JobState.STARTING, JobState.RUNNING, JobState.ENDING)


def paused_on(record: JobRecord, book: NodeBook, config: ClusterConfig) -> list[PausedDoc]:
    """The nodes of a job whose owners have paused it, in the allocation's order.

    A job's first node keeps its time limit, which stands still in a pause; where nodes are shared the limit counts
    work, of which nothing is done then.
    """
    found = []
    for at, share in enumerate(_shares(record)):
        entry = book.get(share.node)
        if entry is not None and entry.beat is not None and entry.beat.paused:
            since = entry.paused_at.isoformat(timespec="seconds") if entry.paused_at else None
            found.append(PausedDoc(share.node, since, entry.beat.paused, at == 0 or shares_nodes(policy_of(config))))
    return found


def held_procs(view: View) -> dict[str, int]:
    """How many processors jobs hold on each node."""
    held: Counter[str] = Counter()
    for each in view.jobs.values():
        held.update({share.node: share.procs for share in _shares(each)})
    return held


def _shares(record: JobRecord) -> tuple[Share, ...]:
    """What a job holds of each of its nodes."""
    return record.allocation.nodes if record.allocation is not None and record.state in _HOLDS else ()


def limited_on(record: JobRecord, held: Mapping[str, int], book: NodeBook) -> list[LimitedDoc]:
    """The nodes of a job whose ceiling for parallel work is below what jobs hold there together (``held``).

    The ceiling is the contract's: by how much less it is while somebody waits there is not told, nor by whom.
    """
    found = []
    for share in _shares(record):
        entry = book.get(share.node)
        cpus = entry.public_limit_cpus if entry is not None else None
        if entry is not None and cpus is not None and cpus < held.get(share.node, 0):
            since = entry.limited_at.isoformat(timespec="minutes") if entry.limited_at else None
            found.append(LimitedDoc(share.node, since, cpus))
    return found
