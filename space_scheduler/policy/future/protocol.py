"""What a selection asks of the future, whatever the machine: the one protocol, and the part that keeps reservations.

There are three: ``counted`` (interchangeable processors), ``named`` (nodes by name), ``shared`` (nodes whose jobs slow
each other down, so that predicted ends move). A selection is written once, over these questions.

A place is found by the question and taken by what follows: ``start`` after :meth:`Future.now`, ``reserve`` after
:meth:`Future.earliest`, for the same job and with nothing in between. Times are all that a selection handles.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from cosched.model.job import Job
from space_scheduler.policy.interface import PlannedStart
from space_scheduler.reasons import Reason, Why


class Future(Protocol):
    """What is free now and will be, with what this pass has started and reserved in it."""

    #: The moment of the pass, in microseconds.
    now_us: int
    #: Processors that are free now, after the starts of this pass.
    free_procs: int
    #: Whether a start can make room for another job: then a pass is over only when nobody more starts.
    by_company: bool
    #: Whether a start can make room for others by where those would lie: then they are asked again after each start.
    by_cluster: bool

    def obstacle(self, job: Job) -> Why | None:
        """What keeps a job from starting now, whatever is reserved; None: nothing."""
        ...

    def now(self, job: Job) -> bool:
        """Whether a job may start now: there is a place, and no reservation moves to a later time."""
        ...

    def earliest(self, job: Job) -> int:
        """The earliest start beside what runs and what is reserved; FOREVER_US while nodes that it needs are away."""
        ...

    def reserve(self, job: Job, start_us: int) -> None:
        """Set the place aside that :meth:`earliest` has just found; at FOREVER_US there is none."""
        ...

    def lasts_us(self, job: Job) -> int:
        """How long a job is predicted to take alone where :meth:`now` has just found a place for it."""
        ...

    def start(self, job: Job, reason: Reason) -> PlannedStart:
        """Give a job its place now. Raises ValueError where there is none."""
        ...

    def begin(self, start: PlannedStart) -> None:
        """Take away what a start holds that this pass has made already."""
        ...

    def beside(self, shadow_us: int) -> Reason:
        """Why a job may start that ends after the one reservation, which is at the shadow time."""
        ...


class KeepingFuture(Future, Protocol):
    """A future whose reservations can be kept from one pass to the next: predicted ends stay what they were."""

    #: Each queued job's reserved start, in µs; FOREVER_US while nodes that it needs are away. To be read.
    starts_us: dict[int, int]

    def place(self, job: Job) -> None:
        """Reserve the earliest hole for a job; while nodes that it needs are away it has none."""
        ...

    def compress(self, queue: Iterable[Job]) -> dict[int, int]:
        """In this order take each job's reservation out and place it again in the earliest hole; the others stay.

        A job without one, or of one that is not after now or FOREVER_US, is left as it is. Gives the starts, in µs,
        that those had who have moved.
        """
        ...

    def due(self) -> list[int]:
        """The jobs that are reserved from now on, or earlier; each is then to be started."""
        ...

    def start_reserved(self, job: Job, reason: Reason) -> PlannedStart:
        """Give a job now what is reserved for it from now on."""
        ...

    def kept(self) -> tuple[Any, int]:
        """The reservations as a memory, and the next that falls due, in µs, or FOREVER_US."""
        ...


def found_no_place(job: Job, obstacle: object) -> ValueError:
    """A policy starts a job that has no place."""
    return ValueError(f"job {job.id} has no place: {obstacle}")
