"""What a pass would do if nodes that sleep were there: tried on a copy of the state, which is thrown away."""

from collections.abc import Sequence
from typing import Final

import msgspec

from cosched.model.job import JobState
from cosched.model.node import Node
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.snapshot import SavedChanges, SavedState
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Policy

#: So many of the jobs that wait are looked at, the first ones. A pass over all of a deep queue with nodes that are new
#: takes seconds under conservative backfilling, in the thread that accepts jobs.
MOST_WAITING: Final = 100


def nodes_used(
    state: SchedulerState, policy: Policy, rules: MachineRules, nodes: Sequence[Node], now_us: int
) -> tuple[str, ...]:
    """On which of these nodes, did they join now, a job that waits would start. The state stays as it is.

    What would start without them has started before they join. Of a queue of more than :data:`MOST_WAITING` jobs the
    first are tried, as by a scheduler that has just been restarted: what the policy remembers is of all of them. Raises
    what the policy raises.
    """
    trial = SchedulerState.restore(policy, rules, _first_waiting(state))
    now_us = max(now_us, trial.now_us)
    trial.handle(ev.Boundary(), now_us)
    for node in nodes:
        trial.handle(ev.NodeJoined(node), now_us)
        trial.handle(ev.NodeResumed(node.name), now_us)
    starts = [each for each in trial.handle(ev.Boundary(), now_us) if isinstance(each, Start)]
    used = {share.node for start in starts for share in start.allocation.nodes}
    return tuple(node.name for node in nodes if node.name in used)


def _first_waiting(state: SchedulerState) -> SavedState:
    """The state with the first jobs of its queue alone."""
    saved, line = state.snapshot(), state.queue.line()
    if len(line) <= MOST_WAITING:
        return saved
    first = {job.id for _, job in line[:MOST_WAITING]}
    jobs = tuple(each for each in saved.jobs if each.state is not JobState.QUEUED or each.job.id in first)
    return msgspec.structs.replace(saved, jobs=jobs, aside=(), changes=SavedChanges(), memory=None, forgotten=True)
