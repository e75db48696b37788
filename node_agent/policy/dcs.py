"""Dynamic coscheduling, the paper's baseline: whoever has a message waiting goes first. No budget, no balance."""

from cosched.model.coscheduling import Receives
from node_agent.policy.raising import Job


def wants(job: Job) -> bool:
    """Whether arrivals have to be looked for."""
    return job.receives is not Receives.NOTHING


def raised(job: Job) -> bool:
    """Whether the job goes first now."""
    return wants(job) and job.waiting
