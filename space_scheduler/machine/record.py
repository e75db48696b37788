"""What the machine keeps of one live job, and the errors that tell its story."""

from cosched.model.allocation import Allocation
from cosched.model.job import TERMINAL, TRANSITIONS, Job, JobState
from cosched.model.time import plain_seconds


class IllegalTransition(RuntimeError):
    """Somebody asked for a change of state that a job's life does not have."""


class UnknownJob(KeyError):
    """An event names a job that is not alive here."""

    def __str__(self) -> str:
        return (
            f"job {self.args[0]} is not queued, starting or running here (never submitted, refused, or already ended)"
        )


class Infeasible(ValueError):
    """A job that could never start, whatever ends: refused, not queued."""


class Record:
    """One live job. Times in microseconds; ``end_us`` is the predicted end while it holds processors."""

    __slots__ = (
        "allocation",
        "end_us",
        "first_promise_us",
        "job",
        "promise_us",
        "rank",
        "released",
        "started_us",
        "state",
        "story",
    )

    def __init__(self, job: Job, rank: int, now_us: int) -> None:
        self.job = job
        self.rank = rank
        self.state = JobState.QUEUED
        self.story: list[tuple[int, JobState]] = [(now_us, JobState.QUEUED)]
        self.started_us: int | None = None
        self.end_us = 0
        self.allocation: Allocation | None = None
        self.released = False
        self.promise_us: int | None = None
        self.first_promise_us: int | None = None

    def become(self, state: JobState, now_us: int) -> None:
        """Change state, legally, or raise :class:`IllegalTransition` with the job's story."""
        if state not in TRANSITIONS[self.state]:
            raise self.illegal(state, now_us)
        self.state = state
        self.story.append((now_us, state))

    def illegal(self, state: JobState, now_us: int) -> IllegalTransition:
        """The error that says why this job cannot go there: its story."""
        return IllegalTransition(
            f"job {self.job.id} cannot go from {self.state} to {state} at {plain_seconds(now_us)} s; its story: "
            + ", ".join(f"{was} at {plain_seconds(at)} s" for at, was in self.story)
        )

    @property
    def holds_processors(self) -> bool:
        """Whether its processors are not free."""
        return self.allocation is not None and not self.released and self.state not in TERMINAL
