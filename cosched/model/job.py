"""What a job is, and the states of its life (design, section 3)."""

from enum import StrEnum
from fractions import Fraction
from typing import Final

import msgspec

from cosched.model.width import Range, Rigid, Shape, Width

#: What a node covers with directories of the job's own.
PRIVATE_PLACES: Final = ("/tmp/", "/dev/shm/")
#: Of a job whose submitter says none; what most systems give their users.
DEFAULT_UMASK: Final = 0o022


class After(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A job follows ``job_id``: it may be queued ``think_us`` (microseconds) after the end of that.

    ``ended_us``: when that has ended, core time, if it had when this job was submitted; None: it is alive.
    """

    job_id: int
    think_us: int = 0
    ended_us: int | None = None


class Job(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A job as a policy may see it: what the user said, never how long it will really run.

    ``estimate_us`` is the user's estimate of the time alone on idle nodes, in microseconds, at least 1; on a dedicated
    machine it is also the limit at which the job is killed when the rules say so. ``procs`` is at least 1: one for each
    task. ``memory_bytes`` is what each task needs; it counts where nodes have names. ``avoid`` names nodes that it is
    not put on: a launch of it has failed there. ``requeue``: if it loses a node it waits again, and runs from its
    beginning. ``kind`` is its orientation, "cpu" or "comm" (empty: not known); ``cpu_permille`` the share of a CPU that
    each task uses when it has one for itself. ``shape`` says which other widths it can have (``cosched.model.width``;
    None: none); ``procs`` is one of them then, and the estimate is the time in that one. Jobs of one ``program`` (empty
    where that is not known) behave alike. ``coscheduling`` is its own mode (``cosched.model.coscheduling.Mode``; empty:
    the machine's).

    ``work_us`` is the estimate as work, for a job of other widths: microseconds at speed 1, which is one process where
    its shape has no ``speeds``; the estimate is that divided by its speed in its own width, rounded up (0: the estimate
    is exact). ``crossing_ppm``: by how many millionths of its time it is slower on several clusters, where that is
    known of it (None: as its kind is, ``cosched.model.components.Between``). ``long``: of the class of long jobs
    (Utrera et al. 2005, Table 1). ``foldable``: its user lets its processes share processors (:attr:`may_be_folded`).
    ``after``: the job that it follows, for the rule *dependency* (``space_scheduler.eligibility``).
    """

    id: int
    procs: int
    estimate_us: int
    submit_us: int
    user: int = -1
    memory_bytes: int = 0
    avoid: tuple[str, ...] = ()
    requeue: bool = False
    kind: str = ""
    cpu_permille: int = 1000
    shape: Shape | None = None
    program: str = ""
    coscheduling: str = ""
    work_us: int = 0
    long: bool = False
    foldable: bool = True
    crossing_ppm: int | None = None
    after: After | None = None

    @property
    def alone_us(self) -> int | Fraction:
        """The time alone that was estimated, in its own width, before it was rounded up to microseconds."""
        if not self.work_us:
            return self.estimate_us
        exact = Fraction(self.work_us, self.shape.speed(self.procs) if isinstance(self.shape, Range) else self.procs)
        return exact.numerator if exact.denominator == 1 else exact

    @property
    def width(self) -> Width:
        """How wide it can be."""
        return self.shape or Rigid(self.procs)

    @property
    def resident(self) -> bool:
        """Whether all of its processes are there while it runs, and some of them sleep (``cosched.model.width``)."""
        return isinstance(self.shape, Range) and self.shape.resident

    @property
    def may_be_folded(self) -> bool:
        """Whether its processes may share processors: a resident job is shrunk instead, never folded."""
        return self.foldable and not self.resident

    def at(self, procs: int) -> "Job":
        """The job as one that is so wide, for whatever asks where it fits."""
        return self if procs == self.procs else msgspec.structs.replace(self, procs=procs)


class JobState(StrEnum):
    """Where a job is in its life. The last six are terminal: every accepted job reaches exactly one of them.

    A job is *waiting* while a rule of ``space_scheduler.eligibility`` keeps it out of the queue.
    """

    WAITING = "waiting"
    HELD = "waiting"  # the name in version 0.1, which policies written for it may use; read for one release
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    ENDING = "ending"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed out"
    LAUNCH_FAILED = "launch failed"
    NODE_LOST = "node lost"

    @classmethod
    def _missing_(cls, value: object) -> "JobState | None":
        """``held`` as journals and clients of version 0.1 write it: such a job waits, by the rule *hold*."""
        return cls.WAITING if value == "held" else None


#: The states of every job's life, for code that is run for each: in CPython 3.11 a member of an enum that is looked up
#: in its class takes as long as a call.
WAITING: Final = JobState.WAITING
QUEUED: Final = JobState.QUEUED
STARTING: Final = JobState.STARTING
RUNNING: Final = JobState.RUNNING
ENDING: Final = JobState.ENDING
COMPLETED: Final = JobState.COMPLETED
TIMED_OUT: Final = JobState.TIMED_OUT
NODE_LOST: Final = JobState.NODE_LOST

TERMINAL: Final = frozenset(
    {
        JobState.COMPLETED,
        JobState.FAILED,
        JobState.CANCELLED,
        JobState.TIMED_OUT,
        JobState.LAUNCH_FAILED,
        JobState.NODE_LOST,
    }
)

#: The legal transitions. Anything else is an error that tells the story of the job.
TRANSITIONS: Final[dict[JobState, frozenset[JobState]]] = {
    # to waiting: another rule is the first by which it may not be queued
    JobState.WAITING: frozenset({JobState.WAITING, JobState.QUEUED, JobState.CANCELLED}),
    JobState.QUEUED: frozenset({JobState.WAITING, JobState.STARTING, JobState.CANCELLED}),
    JobState.STARTING: frozenset(
        {
            JobState.RUNNING,
            JobState.ENDING,
            JobState.LAUNCH_FAILED,
            JobState.NODE_LOST,
            JobState.CANCELLED,
            JobState.QUEUED,  # its launch has failed before the script ran: it is tried again on other nodes
        }
    ),
    # to queued: it has lost a node, and wanted to wait again
    JobState.RUNNING: frozenset({JobState.ENDING, JobState.QUEUED}) | (TERMINAL - {JobState.LAUNCH_FAILED}),
    JobState.ENDING: TERMINAL | {JobState.QUEUED},
    **{state: frozenset() for state in TERMINAL},
}
