"""The experiment on a mixed workload: four jobs of different kinds on the same nodes, with owners at some desks or not.

The paper's claim (Hanzich et al. 2005, section 4) is that jobs of a mixed workload run 15 to 24 % shorter than under
plain Linux. Here the mix is held constant: two programs that communicate and two that compute, one task of each on
every node, and each is measured while all others are there. ``plain`` is what Linux does with all in one group.
"""

import math
import random
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final, NamedTuple

import msgspec

from cosched.apps.experiments.attempts import Attempts, Say
from cosched.apps.experiments.calibrate import CLASSES
from cosched.apps.experiments.corun import PLAIN, CoRun, Rate
from cosched.apps.experiments.interference import TRIES, InterferenceWatch, WatchedRun
from cosched.apps.experiments.jobs import Jobs
from cosched.apps.experiments.matrix import Spread, spread
from cosched.apps.experiments.testbed import Testbed

#: Where runs are kept, in the directory of results.
RUNS: Final = "mixed-runs"
#: The paper's gain over plain Linux, the lesser of the two ends of its range.
FLOOR: Final = 0.15
MIX: Final = tuple(CLASSES.items())


class MixedRun(WatchedRun, frozen=True):
    """One program of a run: its iterations for each second beside all others. ``desks``: how many have their owners.

    ``number``: the round, in which all modes are held against each other.
    """

    number: int
    desks: int
    mode: str
    program: str
    iterations_per_s: float
    cpu_ratio: float


class MixedRuns(NamedTuple):
    """What to run; ``polls``: whether the message library polls while it waits, or yields.

    A run that is disturbed is made ``tries`` times at most.
    """

    modes: Sequence[str]
    desks: Sequence[int]
    rounds: int
    seconds: float
    polls: bool
    seed: int = 1
    tries: int = TRIES


#: A cluster with so many owners, until the block is left.
Places = Callable[[int], AbstractContextManager[Testbed]]


class Experiment(Attempts):
    """Runs the mix under each mode; ``refused``: in some round."""

    def __init__(self, places: Places, plan: MixedRuns, say: Say) -> None:
        super().__init__(say)
        self._places = places
        self._plan = plan

    def run(self) -> Iterator[MixedRun]:
        """Round by round, each number of owners in a place of its own, modes in an order of its own."""
        plan = self._plan
        rng = random.Random(plan.seed)
        for number in range(plan.rounds):
            for desks in rng.sample(list(plan.desks), len(plan.desks)):
                with self._places(desks) as where:
                    for mode in rng.sample(list(plan.modes), len(plan.modes)):
                        yield from self._one(number, desks, mode, where)

    def _one(self, number: int, desks: int, mode: str, where: Testbed) -> Iterator[MixedRun]:
        plan = self._plan
        mixed = CoRun(Jobs(where.client), MIX, where.nodes)
        self._watch = InterferenceWatch(where.lab, self._say, tries=plan.tries)
        make = partial(mixed.rates, mode, plan.seconds, polls=plan.polls)
        for rates, taken in self.attempt(f"{worded(desks)} | {mode}", make, _rates_worded, number):
            for each in rates:
                yield MixedRun(number, desks, mode, each.program, each.iterations_per_s, each.cpu_ratio, **taken)


def _rates_worded(rates: Sequence[Rate]) -> str:
    return ", ".join(f"{each.program} {each.iterations_per_s:.2f}/s" for each in rates)


class MixedCell(msgspec.Struct, frozen=True, kw_only=True):
    """A mode with so many owners. ``change``: of the programs' time against plain Linux's (-0.2: a fifth shorter).

    The geometric mean over the programs, so that each counts the same, for each round; the spread is over rounds.
    ``programs``: the medians of each by itself.
    """

    desks: int
    mode: str
    runs: int
    change: Spread
    programs: dict[str, float]

    @property
    def misses(self) -> bool:
        """Whether the median is not as much shorter as the floor asks for."""
        return self.change.median > -FLOOR


def judged(campaigns: Sequence[Sequence[MixedRun]]) -> list[MixedCell]:
    """All cells that were measured in rounds in which plain Linux was, too. Disturbed runs do not count."""
    times: dict[tuple[int, str], list[dict[str, float]]] = {}
    for runs in campaigns:
        whole: dict[tuple[int, int, str], dict[str, float]] = {}
        for run in runs:
            if not run.disturbed:
                whole.setdefault((run.number, run.desks, run.mode), {})[run.program] = run.iterations_per_s
        for (number, desks, mode), rates in whole.items():
            plain = whole.get((number, desks, PLAIN), {})
            if mode != PLAIN and set(rates) == set(plain) and min(rates.values()) > 0:
                times.setdefault((desks, mode), []).append({name: plain[name] / rates[name] for name in rates})
    return [
        MixedCell(
            desks=desks,
            mode=mode,
            runs=len(found),
            change=spread([_mean(each.values()) - 1 for each in found]),
            programs={name: statistics.median(each[name] for each in found) - 1 for name in found[0]},
        )
        for (desks, mode), found in sorted(times.items())
    ]


def _mean(ratios: Iterable[float]) -> float:
    return math.exp(statistics.fmean(math.log(max(ratio, 1e-9)) for ratio in ratios))


def worded(desks: int) -> str:
    """For a reader: how many owners are there."""
    return {0: "nobody", 1: "one owner"}.get(desks, f"{desks} owners")
