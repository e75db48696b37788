"""What jobs have on named nodes, what keeps a node from taking a task, and which fields of jobs a place looks at."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from cosched.model.job import Job


class Limit(StrEnum):
    """What keeps a node from taking any task of a job, by itself."""

    AVOIDED = "a launch of the job has failed there"
    BANNED = "its owner does not take this user's jobs"
    PLACES = "no place is free"
    MEMORY = "too little memory is left"
    CPU = "more of its CPUs would be used than the policy admits"
    KIND = "its company there would be of its own kind"


class Resident(NamedTuple):
    """What a job has on one node: so many tasks, of its kind, each with so much memory and so much of a CPU."""

    job_id: int
    tasks: int
    memory_bytes: int
    kind: str
    cpu_permille: int


def resident(job: Job, tasks: int) -> Resident:
    """What the job has on a node with so many of its tasks."""
    return Resident(job.id, tasks, job.memory_bytes, job.kind, job.cpu_permille)


class Field(StrEnum):
    """A field of a job that a place may look at, beside processors, estimate, memory and nodes to avoid."""

    KIND = "kind"
    CPU = "cpu_permille"


FIELDS: Final = frozenset(Field)

#: Of nodes that take everybody's jobs.
NO_BANS: Final[Mapping[int, frozenset[str]]] = {}
