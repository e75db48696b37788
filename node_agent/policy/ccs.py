"""Cooperating coscheduling (Hanzich et al. 2005, section 1): a receiver goes first, as long as it keeps its share.

Which lever helps depends on how a job receives (docs/design/linux.md). One that blocks, or yields, can use the CPU
when a message comes: it is raised then, while its budget lasts. For one that polls, or yields to nobody, more weight
would only be taken from its neighbours: it needs its peers to run at the same time, and has slots where all of its
nodes agree on them. One that has slots is not raised besides. One that receives nothing has nothing to gain, nor have
those that block among themselves: each leaves the CPU when it waits, so whoever gets a message soon has it.
"""

from collections.abc import Iterable

from cosched.model.coscheduling import Receives
from node_agent.policy.budget import Budget
from node_agent.policy.raising import Job


def wants(job: Job, here: Iterable[Job]) -> bool:
    """Whether arrivals have to be looked for; ``here`` are the jobs of the node, itself or not."""
    if job.rows or job.receives not in (Receives.BLOCKS, Receives.YIELDS):
        return False
    return job.receives is Receives.YIELDS or any(
        other.receives is not Receives.BLOCKS for other in here if other.key != job.key
    )


def raised(job: Job, here: Iterable[Job], budget: Budget) -> bool:
    """Whether the job goes first now."""
    return wants(job, here) and job.waiting and budget.open
