"""Jobs that change their shape in simulated faults: a policy that shrinks, widens and moves them, and what must hold.

Whatever is lost, late or restarted meanwhile: a job of which the core counts one allocation and no change has just that
on every node, and no node that it does not count has a living group of it, unless nothing new is started there.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from kit.reshaper import Reshaper

from cosched.model.job import JobState
from cosched.model.width import Range

if TYPE_CHECKING:
    from faults.node import Node
    from faults.scheduler import Scheduler

#: How settings name it.
POLICY = "faults.shapes:MIXED"
MIXED = Reshaper(seed=3, requeues_until=0, scripts_stay=True)


def width(tasks: int) -> Range:
    """Of a job that asks for so many."""
    return Range(1, max(4, tasks))


def wrong(scheduler: "Scheduler", nodes: "Mapping[str, Node]") -> Iterator[str]:
    """What does not hold just now, in words, where this scheduler is alive."""
    for job_id, record in scheduler.core.state.records.items():
        kept = scheduler.core.records.get(job_id)
        if record.state is not JobState.RUNNING or record.change is not None or kept is None:
            continue
        assert record.allocation is not None
        counted = {share.node: share.tasks for share in record.allocation.nodes}
        for name, node in nodes.items():
            group = node.model.groups.get((job_id, kept.attempt))
            if group is None or group.ending:
                continue
            if name not in counted and _kept_out(scheduler, name):
                continue
            if name not in counted:
                yield f"{name} has a living group of job {job_id}, which is counted on {sorted(counted)}"
            elif group.tasks != counted[name]:
                yield f"{name} has {group.tasks} tasks of job {job_id}, which is counted with {counted[name]}"


def _kept_out(scheduler: "Scheduler", name: str) -> bool:
    """Whether nothing new is started on a node: its guard is away, say, and cannot be told to end what is there."""
    entry = scheduler.rules.book.entry(name)
    return entry.size is None or not entry.agreed or bool(scheduler.drained(name))
