"""Jobs that change shape, and a machine of interchangeable CPUs on which they go at changing rates: values and a clock.

What ``folding`` and ``equipartition`` have in common, and no policy. Times are whole microseconds; work is counted in
CPU-microseconds of a job with linear speed-up (in units of its ``speeds`` otherwise). What is done is a fraction and
never rounded: a job ends at the first whole microsecond at which its work is done.

**At each instant** ends come first, then submissions, then what jobs notice themselves; then one pass decides. A change
takes effect at that instant. Of each job the instant leaves one row, what it holds after the pass, and none if that is
what it held before; a job that loses all of its CPUs has a row that says so, and another if it starts again at once.

**Limits.** With ``kill`` an estimate is a limit too, and counts work, not time: a job ends when as much is done as it
asked for. Without, an estimate only predicts. A job without one has no limit, and nobody knows when it will end.

**Predicted ends** (where a policy uses them, ``predicts``) follow from the estimate and the rate of now. When such an
end comes and the job is still there, the estimate grows to what is done and what the job does in the largest size that
the machine has, not folded, within the next of ``CORRECTIONS_S``; and a pass is made.
"""

from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil
from typing import Any, Generic, NamedTuple, TypeVar

SECOND = 1_000_000

#: How far the predicted end of an overrunning job moves, again and again (Tsafrir et al. 2007): 1, 5, 15, 30 minutes,
#: 1, 2, 5, 10, 20, 50, 100 hours, and 100 hours from then on.
CORRECTIONS_S = (60, 300, 900, 1800, 3600, 7200, 18_000, 36_000, 72_000, 180_000, 360_000)


@dataclass(frozen=True)
class Job:
    number: int
    submit: int
    sizes: tuple[int, ...]  # how many processes it can have, rising; one for a rigid job
    work: int  # at least 1
    estimate: int | None = None  # of its work
    malleable: bool = False  # can be given another size of its range while it runs
    long: bool = False
    foldable: bool = True
    speeds: tuple[int, ...] = ()  # work done in a microsecond, for each of the sizes; linear if there are none
    evolve: tuple[
        tuple[Fraction, int], ...
    ] = ()  # (part of the work done, CPUs more or fewer it then asks for), rising

    @property
    def rank(self) -> tuple[int, int]:
        """Its place in the queue, and in all ties."""
        return self.submit, self.number

    def speed(self, processes: int) -> int:
        return self.speeds[self.sizes.index(processes)] if self.speeds else processes


class Change(NamedTuple):
    """What a job holds from a time on."""

    at: int
    processes: int
    cpus: int


@dataclass
class Outcome:
    """What became of a job. ``start`` is the last one; None: never started, never ended."""

    start: int | None = None
    end: int | None = None
    changes: list[Change] = field(default_factory=list)

    @property
    def times_s(self) -> tuple[Any, ...]:
        """Start and end in seconds; None for never."""
        return tuple(None if at is None else at / SECOND for at in (self.start, self.end))

    @property
    def held(self) -> list[tuple[float, int]]:
        """Since when, in seconds, it held how many CPUs."""
        return [(change.at / SECOND, change.cpus) for change in self.changes]


@dataclass(eq=False)
class Running:
    job: Job
    processes: int
    started: int  # the last start
    cpus: int = 0
    rate: Fraction = Fraction(0)  # work in a microsecond
    done: Fraction = Fraction(0)
    as_of: int = 0  # when that much was done
    stalled_until: int = 0  # no work before
    expected: Fraction | None = None  # how much work it is thought to be, by its estimate and the corrections
    corrections: int = 0

    def __post_init__(self) -> None:
        if self.expected is None and self.job.estimate is not None:
            self.expected = Fraction(self.job.estimate)

    @property
    def age(self) -> tuple[int, tuple[int, int]]:
        """Oldest first: the earliest last start, ties by submission and number."""
        return self.started, self.job.rank

    def advance(self, now: int) -> None:
        self.done += self.rate * max(0, now - max(self.as_of, self.stalled_until))
        self.as_of = now

    def moment(self, work: Fraction | int) -> int | None:
        """The first whole microsecond at which so much is done if the rate stays; None: never."""
        left = work - self.done
        if left <= 0:
            return self.as_of
        return max(self.as_of, self.stalled_until) + ceil(left / self.rate) if self.rate else None

    def predicted_end(self) -> int | None:
        return None if self.expected is None else self.moment(self.expected)


AnyRunning = TypeVar("AnyRunning", bound=Running)


class Machine(Generic[AnyRunning]):
    """A policy is a subclass: ``decide`` is its pass, ``rate`` says how fast a job goes with what it holds."""

    predicts = False

    def __init__(self, cpus: int, jobs: list[Job], *, kill: bool = True) -> None:
        self.cpus = cpus
        self.kill = kill
        self.now = 0
        self.to_come = sorted(jobs, key=lambda job: job.rank)
        self.queue: list[Job] = []
        self.running: list[AnyRunning] = []
        self.outcomes = {job.number: Outcome() for job in jobs}

    def decide(self) -> None:
        raise NotImplementedError

    def rate(self, running: AnyRunning) -> Fraction:
        raise NotImplementedError

    def never(self, job: Job) -> bool:
        """Whether a job is refused at its submission: the machine is too small for it."""
        return job.sizes[0] > self.cpus

    def notice(self, running: AnyRunning) -> None:
        """Something may have come about in a job by its work."""

    def moments(self, running: AnyRunning) -> list[int | None]:
        """When something will come about in a job, besides its end."""
        return [running.predicted_end()] if self.predicts else []

    # what a policy may do

    def free(self) -> int:
        return self.cpus - sum(running.cpus for running in self.running)

    def in_order(self) -> list[AnyRunning]:
        return sorted(self.running, key=lambda running: running.age)

    def begin(self, running: AnyRunning, cpus: int) -> None:
        self.queue.remove(running.job)
        self.running.append(running)
        running.started = running.as_of = self.now
        self.outcomes[running.job.number].start = self.now
        self.hold(running, cpus)

    def hold(self, running: AnyRunning, cpus: int) -> None:
        running.cpus = cpus
        running.rate = self.rate(running)

    def take_away(self, running: AnyRunning, processes: int = 0) -> None:
        """A job loses all of its CPUs, and waits again at its old rank; ``processes``: those that are still there."""
        self.running.remove(running)
        self.queue = sorted([*self.queue, running.job], key=lambda job: job.rank)
        self.outcomes[running.job.number].changes.append(Change(self.now, processes, 0))

    # the clock

    def play(self) -> dict[int, Outcome]:
        while moments := self.next_moments():
            self.now = min(moments)
            for running in self.running:
                running.advance(self.now)
            for running in [running for running in self.running if running.done >= self.total(running)]:
                self.running.remove(running)
                self.outcomes[running.job.number].end = self.now
            self.queue += [job for job in self.to_come if job.submit == self.now and not self.never(job)]
            self.to_come = [job for job in self.to_come if job.submit > self.now]
            for running in self.in_order():
                self.correct(running)
                self.notice(running)
            self.decide()
            assert self.free() >= 0
            for running in self.running:
                self.write(running)
        return self.outcomes

    def next_moments(self) -> list[int]:
        moments: list[int | None] = [job.submit for job in self.to_come]
        for running in self.running:
            moments += [running.moment(self.total(running)), *self.moments(running)]
        return [moment for moment in moments if moment is not None]

    def total(self, running: AnyRunning) -> int:
        """After how much work a job ends."""
        job = running.job
        return min(job.work, job.estimate) if self.kill and job.estimate is not None else job.work

    def correct(self, running: AnyRunning) -> None:
        if self.predicts and running.expected is not None and running.done >= running.expected:
            step_s = CORRECTIONS_S[min(running.corrections, len(CORRECTIONS_S) - 1)]
            running.corrections += 1
            largest = max(size for size in running.job.sizes if size <= self.cpus)
            running.expected = running.done + step_s * SECOND * running.job.speed(largest)

    def write(self, running: AnyRunning) -> None:
        changes = self.outcomes[running.job.number].changes
        row = Change(self.now, running.processes, running.cpus)
        if not changes or changes[-1][1:] != row[1:]:
            changes.append(row)
