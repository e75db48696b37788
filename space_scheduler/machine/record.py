"""What the machine keeps of one live job, and the errors that tell its story."""

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import QUEUED, Job, JobState
from cosched.model.time import plain_seconds
from space_scheduler.lookahead import Progress
from space_scheduler.machine.events import Event
from space_scheduler.machine.holding import NOTHING, Holding
from space_scheduler.progress import ALONE_PPM, Rate
from space_scheduler.reasons import ACCEPTED, Reason


class IllegalTransition(RuntimeError):
    """Somebody asked for a change of state that a job's life does not have."""


class UnknownJob(KeyError):
    """An event names a job that is not alive here."""

    def __str__(self) -> str:
        return (
            f"job {self.args[0]} is not queued, starting or running here (never submitted, refused, or already ended)"
        )


class Infeasible(ValueError):
    """A job that could never start, whatever ends: refused, not queued. ``reason`` says by which limit."""

    def __init__(self, job_id: int, reason: Reason) -> None:
        super().__init__(f"job {job_id}: {reason}")
        self.reason = reason


class Record:
    """One live job. Times in microseconds; ``end_us`` is the predicted end while it holds processors.

    ``holding`` is what it holds and is to hold, and the last that it held when it has ended.

    Where jobs share nodes, or it has another width than it asked for, it had ``left`` to do ``as_of_us`` and does
    ``rate_ppm`` of it each microsecond from then on (``rates``). ``asks``: how many processes more, or fewer, it asks
    for, each request for itself, those since ``asked_us``; ``given``: how many it was given since it started, all
    together. ``waits``: it does nothing until it has been answered.
    ``retry_us``: until then what it holds is not to be changed, since its nodes have refused to.
    ``failed_launches`` counts those that were tried again, ``overruns`` how often its predicted end has been moved on.
    ``overdue_us``: the end that was predicted before it was moved on for the first time; None: none has passed.
    ``reason``, ``decided_us`` and ``cause`` are of the last decision about it: why, when, and the event that led to it.
    """

    __slots__ = (
        "as_of_us",
        "asked_us",
        "asks",
        "cause",
        "decided_us",
        "end_us",
        "failed_launches",
        "first_promise_us",
        "given",
        "holding",
        "job",
        "left",
        "overdue_us",
        "overruns",
        "promise_us",
        "rank",
        "rate_ppm",
        "reason",
        "retry_us",
        "started_us",
        "state",
        "story",
        "waits",
    )

    def __init__(self, job: Job, rank: int, now_us: int, cause: Event | None = None) -> None:
        self.job = job
        self.rank = rank
        self.state = QUEUED
        self.story: tuple[tuple[int, JobState], ...] = ((now_us, QUEUED),)
        self.started_us: int | None = None
        self.end_us = 0
        self.left: Rate = 0
        self.rate_ppm: Rate = ALONE_PPM
        self.as_of_us = now_us
        self.holding: Holding = NOTHING
        self.failed_launches = 0
        self.asks: tuple[int, ...] = ()
        self.asked_us = self.given = self.retry_us = 0
        self.waits = False
        self.overruns = 0
        self.overdue_us: int | None = None
        self.promise_us: int | None = None
        self.first_promise_us: int | None = None
        self.reason = ACCEPTED
        self.decided_us = now_us
        self.cause = cause

    def wait_again(self) -> None:
        """It is queued after an attempt that came to nothing; it is promised nothing."""
        self.started_us = self.overdue_us = self.promise_us = None
        self.end_us = self.overruns = self.left = self.given = self.asked_us = self.retry_us = 0
        self.asks = ()
        self.waits = False
        self.rate_ppm = ALONE_PPM

    def begin_work(self, estimate_us: Rate, now_us: int) -> None:
        """From now on it has so much to do in the width it asked for, by the rate it has."""
        self.left = estimate_us * ALONE_PPM
        self.as_of_us = now_us

    def settle(self, now_us: int) -> None:
        """Count what it has done until now, at the rate it had."""
        self.left = self.progress().left_at(now_us)
        self.as_of_us = max(now_us, self.as_of_us)

    def progress(self) -> Progress:
        """How far it is, while it holds nodes."""
        return Progress(self.job, self.allocation, self.left, self.as_of_us, self.rate_ppm)

    def decided(self, reason: Reason, now_us: int, cause: Event | None) -> None:
        """Keep a decision about this job."""
        self.reason = reason
        self.decided_us = now_us
        self.cause = cause

    def illegal(self, state: JobState, now_us: int) -> IllegalTransition:
        """The error that says why this job cannot go there: its story."""
        return IllegalTransition(
            f"job {self.job.id} cannot go from {self.state} to {state} at {plain_seconds(now_us)} s; its story: "
            + ", ".join(f"{was} at {plain_seconds(at)} s" for at, was in self.story)
        )

    @property
    def allocation(self) -> Allocation:
        """What it is to hold, as plans count it; nothing while it waits."""
        return self.holding.allocation


def avoiding(job: Job, nodes: tuple[str, ...]) -> Job:
    """The same job, not to be put on these nodes either."""
    return msgspec.structs.replace(job, avoid=(*job.avoid, *(name for name in nodes if name not in job.avoid)))
