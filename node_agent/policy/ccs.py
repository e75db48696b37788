"""Cooperating coscheduling (Hanzich et al. 2005, section 1): a receiver goes first, as long as it keeps its share.

Which lever helps depends on how a job receives (linux.md, "Coscheduling"). One that blocks, or yields, can use the CPU
when a message comes: it is raised then, while its budget lasts. For one that polls, or yields to nobody, more weight
would only be taken from its neighbours: it needs its peers to run at the same time, and has slots where all of its
nodes agree on them. One that has slots is not raised besides. One that receives nothing has nothing to gain.
"""

from cosched.model.coscheduling import Receives
from node_agent.policy.budget import Budget
from node_agent.policy.raising import Job


def wants(job: Job) -> bool:
    """Whether arrivals have to be looked for."""
    return not job.rows and job.receives in (Receives.BLOCKS, Receives.YIELDS)


def raised(job: Job, budget: Budget) -> bool:
    """Whether the job goes first now."""
    return wants(job) and job.waiting and budget.open
