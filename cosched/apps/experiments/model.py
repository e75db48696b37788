"""Is the simulator right? Real jobs that come one after the other and share nodes, to be held against its prediction.

A *series*: each shape of job alone, then a dozen jobs of all shapes, submitted at random moments to a service that has
up to three tasks on a CPU, then each alone again. Company changes all the time, of up to three, also on one of a job's
nodes alone: nothing of this is what the coefficients were fitted to, pairs and fours of jobs that are there throughout.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Final, NamedTuple

from cosched.apps.experiments.calibrate import KINDS
from cosched.apps.experiments.interference import InterferenceWatch, Taken, WatchedRun
from cosched.apps.experiments.jobs import LONGEST_S, Cannot, Jobs, moment_s, program
from cosched.client.client import Client
from cosched.wire.api import JobDoc

#: Tasks on a CPU: calibrated are one, two and four.
LEVEL: Final = 3
Say = Callable[[str], None]


class Shape(NamedTuple):
    """A job: program, size, iterations (some seven seconds alone), and tasks, each on a node of its own."""

    program: str
    size: str
    iterations: int
    tasks: int

    @property
    def kind(self) -> str:
        """The program's; one task alone talks to nobody."""
        return KINDS[self.program] if self.tasks > 1 else "cpu"

    def __str__(self) -> str:
        return f"{self.program} {self.size} x {self.iterations}, {self.tasks} task{'s' if self.tasks > 1 else ''}"


SHAPES: Final = (
    Shape("cg", "W", 30, 2),
    Shape("is", "W", 50, 2),
    Shape("mg", "A", 5, 2),
    Shape("bt", "W", 130, 2),
    Shape("cg", "W", 40, 1),
    Shape("bt", "W", 130, 1),
)
BY_NAME: Final = {str(shape): shape for shape in SHAPES}


class Ran(WatchedRun, frozen=True):
    """A job of a series as it ran: times in seconds since the series began, tasks by node.

    ``alone``: it had the nodes to itself, as one of those that the others are held against. ``cpu_ratio``: which part
    of the time its ranks were on a CPU.
    """

    series: int
    mode: str
    shape: str
    alone: bool
    nodes: Mapping[str, int]
    submit_s: float
    start_s: float
    run_s: float
    cpu_ratio: float


#: What a series submits: each shape as often, with such a mean time between two (exponential).
TIMES_EACH: Final = 2
GAP_S: Final = 3.5


class Series:
    """Runs series through a cluster's client, nodes of one CPU each."""

    def __init__(self, client: Client, mode: str, say: Say, lab: str | None = None) -> None:
        self._jobs = Jobs(client)
        self._mode = mode
        self._say = say
        self._quiet = InterferenceWatch(lab, say)

    def run(self, number: int) -> Iterator[Ran]:
        """One series: its jobs as they ran. Raises :class:`Cannot` where one fails."""
        rng = random.Random(number)
        yield from self._alone(number, rng)
        order = rng.sample(SHAPES * TIMES_EACH, len(SHAPES) * TIMES_EACH)
        gaps_s = [rng.expovariate(1 / GAP_S) for _ in order]
        found, taken = self._quiet.run(lambda: self._together(order, gaps_s), f"series {number}")
        yield from self._told(number, found, taken, alone=False)
        yield from self._alone(number, rng)

    def _alone(self, number: int, rng: random.Random) -> Iterator[Ran]:
        for shape in rng.sample(SHAPES, len(SHAPES)):
            found, taken = self._quiet.run(lambda each=shape: self._together([each], [0.0]), str(shape))  # type: ignore[misc]
            yield from self._told(number, found, taken, alone=True)

    def _together(self, order: Sequence[Shape], gaps_s: Sequence[float]) -> list[tuple[Shape, JobDoc, float]]:
        """Submit these, each after its gap, and wait for all; with the part of each that was on a CPU."""
        submissions = (partial(self._jobs.submit, _script(shape), self._mode, shape.tasks) for shape in order)
        ended = self._jobs.played(zip(accumulate(gaps_s), submissions, strict=True), LONGEST_S)
        return [
            (shape, job, _cpu_ratio(self._jobs.output(job.job_id))) for shape, job in zip(order, ended, strict=True)
        ]

    def _told(
        self, number: int, found: Sequence[tuple[Shape, JobDoc, float]], taken: Taken, *, alone: bool
    ) -> Iterator[Ran]:
        began_s = min(moment_s(job.submit_time) for _, job, _ in found)
        for shape, job, cpu_ratio in found:
            assert job.run_s is not None
            nodes = {share.name: share.tasks for share in job.nodes}
            submit_s, start_s = moment_s(job.submit_time) - began_s, moment_s(job.start_time) - began_s
            self._say(f"series {number}, {self._mode}: {shape}{', alone' if alone else ''}: {job.run_s:.2f} s")
            times_s = round(submit_s, 3), round(start_s, 3), job.run_s
            yield Ran(number, self._mode, str(shape), alone, nodes, *times_s, cpu_ratio, **taken._asdict())


def _script(shape: Shape) -> str:
    asked = ["--iterations", str(shape.iterations), "--json"]
    return f"#!/bin/sh\nexec {program(shape.program, shape.size, *asked)}\n"


def _cpu_ratio(output: str) -> float:
    try:
        return min(1.0, float(json.loads(output.splitlines()[-1])["cpu_ratio"]))
    except (IndexError, ValueError, KeyError):
        raise Cannot(f"a program told nothing of itself: {output[-200:]!r}") from None
