"""A machine of interchangeable processors, in lists: what waits, what runs, and a clock that jumps between events."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar

from cosched.workload.rules import Workload
from reference.shaped import CORRECTIONS_S


@dataclass(eq=False)
class Job:
    number: int
    submit: int
    procs: int
    estimate: int
    run: int
    start: int = -1  # until it starts
    expected_end: int = 0
    corrections: int = 0
    promised: int | None = None

    @property
    def end(self) -> int:
        assert self.start >= 0
        return self.start + self.run


AnyJob = TypeVar("AnyJob", bound=Job)
World_contra = TypeVar("World_contra", contravariant=True)


@dataclass
class News(Generic[AnyJob]):
    """What happened since the last pass."""

    submitted: list[AnyJob] = field(default_factory=list)
    ended: list[AnyJob] = field(default_factory=list)
    overrun: bool = False


class Rule(Protocol[World_contra]):
    """A policy: look at the world, start jobs in it."""

    def decide(self, world: World_contra, news: News[Any]) -> None: ...

    def wants_to_look_at(self, world: World_contra) -> list[int]:
        """Times after now at which something is to start, come what may."""
        ...


def jobs_of(load: Workload) -> list[Job]:
    columns = (load.submit_us, load.procs, load.estimate_us, load.run_us)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [Job(number, *row) for number, row in enumerate(rows)]


class World(Generic[AnyJob]):
    def __init__(
        self, total: int, jobs: Sequence[AnyJob], key: Callable[[AnyJob], Any], *, sequential: bool, kill: bool
    ) -> None:
        self.jobs = sorted(jobs, key=lambda job: (job.submit, job.number))
        self.total = total
        self.key = key
        self.sequential = sequential
        self.kill = kill
        self.now = 0
        self.waiting: list[AnyJob] = []
        self.running: list[AnyJob] = []  # in order of start

    # what a rule may ask and do

    def queue(self) -> list[AnyJob]:
        return sorted(self.waiting, key=self.key)

    def holding(self) -> list[AnyJob]:
        """What holds processors. With one pass per event, a job at its limit holds none even before its end is seen."""
        if self.kill and self.sequential:
            return [job for job in self.running if job.expected_end > self.now]
        return self.running

    def free(self) -> int:
        return self.total - sum(job.procs for job in self.holding())

    def fits(self, job: AnyJob) -> bool:
        return job.procs <= self.free()

    def lasting(self, job: AnyJob, work: int) -> int:
        """How long a job that runs takes for so much of its estimate."""
        return work

    def start(self, job: AnyJob) -> None:
        assert self.fits(job)
        self.waiting.remove(job)
        self.running.append(job)
        job.start = self.now
        job.expected_end = self.now + job.estimate

    # the clock

    def play(self, rule: Rule[Self]) -> Self:
        to_come = list(self.jobs)
        while to_come or self.running or self.waiting:
            times = [job.submit for job in to_come[:1]]
            times += [job.end for job in self.running]
            times += rule.wants_to_look_at(self)
            self.now = min(times)
            arrivals = [job for job in to_come if job.submit == self.now]
            to_come = to_come[len(arrivals) :]
            departures = [job for job in self.running if job.end == self.now]
            if self.sequential:
                for job in arrivals:
                    self.waiting.append(job)
                    self.pass_(rule, News(submitted=[job]))
                for job in departures:
                    self.running.remove(job)
                    self.pass_(rule, News(ended=[job]))
                self.pass_(rule, News())
            else:
                self.waiting += arrivals
                for job in departures:
                    self.running.remove(job)
                self.pass_(rule, News(arrivals, departures))
        return self

    def pass_(self, rule: Rule[Self], news: News[AnyJob]) -> None:
        if not (self.kill and self.sequential):
            for job in self.running:
                while job.expected_end <= self.now:
                    step = CORRECTIONS_S[min(job.corrections, len(CORRECTIONS_S) - 1)]
                    job.corrections += 1
                    job.expected_end = self.now + self.lasting(job, step * 1_000_000)
                    news.overrun = True
        rule.decide(self, news)
