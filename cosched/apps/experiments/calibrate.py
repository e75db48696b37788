"""What jobs cost each other on shared nodes: the lab's programs alone, in pairs and in fours, beside owners or not.

All jobs of a mix run at the same time, one task of each on every node, and each is measured while all others are there
(``cosched.apps.experiments.corun``). A job's *pace* is what it does in a second against alone. What the fair share of
the CPU does not explain is what sharing costs (``space_scheduler.progress``), by least squares for each mode and kind.
"""

import itertools
import random
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cosched.apps.experiments.attempts import Attempts, Say
from cosched.apps.experiments.corun import CoRun, Rate
from cosched.apps.experiments.interference import InterferenceWatch, WatchedRun
from cosched.apps.experiments.jobs import Jobs
from cosched.apps.experiments.matrix import grouped, spread
from cosched.client.client import Client
from cosched.config.coefficients import OWNER, Cost
from cosched.model.allocation import Allocation, Share
from cosched.model.coscheduling import Mode
from cosched.model.job import Job
from space_scheduler.progress import ALONE_PPM, NodeCpu, Occupancy, Sharing

KINDS: Final = {"cg": "comm", "is": "comm", "mg": "cpu", "bt": "cpu"}
#: A size of which each does several iterations in a second.
CLASSES: Final = dict.fromkeys(KINDS, "W")
#: Four at a time: of different kinds, and two of each of two programs.
FOURS: Final = (("cg", "is", "mg", "bt"), ("cg", "cg", "mg", "mg"), ("is", "is", "bt", "bt"))
#: What the contract leaves to parallel work beside an owner.
OWNED_CPUS: Final = 0.5
#: Which part of the time owners compute, in thousandths: an XWindows user at one desk, an Internet user at the other.
OWNERS_PERMILLE: Final = (150, 200)
#: How often each is measured alone in a round.
TIMES_ALONE: Final = 3
_RESAMPLED: Final = 400


class Mix(NamedTuple):
    """Programs that run at the same time, beside owners or not."""

    programs: tuple[str, ...]
    owned: bool = False

    @property
    def is_alone(self) -> bool:
        """Whether nobody is there beside it."""
        return len(self.programs) == 1 and not self.owned

    def __str__(self) -> str:
        return "+".join(self.programs) + (", owner" if self.owned else "")


def each_alone(*, owned: bool = False) -> list[Mix]:
    """Each program by itself."""
    return [Mix((name,), owned) for name in KINDS]


def shared() -> list[Mix]:
    """All pairs, and some fours."""
    return [*(Mix(pair) for pair in itertools.combinations_with_replacement(KINDS, 2)), *map(Mix, FOURS)]


class Paced(WatchedRun, frozen=True):
    """One job of a mix: how many iterations it did in a second, which part of the time was communication, and which
    part of the time its ranks were on a CPU.
    """

    mode: str
    programs: list[str]
    owned: bool
    program: str
    iterations_per_s: float
    comm_ratio: float
    cpu_ratio: float = 1.0

    @property
    def is_alone(self) -> bool:
        """Whether it is what the others are held against."""
        return Mix(tuple(self.programs), self.owned).is_alone


class Calibration(Attempts):
    """Runs mixes through a cluster's client."""

    def __init__(self, client: Client, nodes: int, seconds: float, say: Say, lab: str | None = None) -> None:
        super().__init__(say, InterferenceWatch(lab, say))
        self._jobs = Jobs(client)
        self._nodes = nodes
        self._seconds = seconds

    def run(self, mixes: Sequence[Mix], modes: Sequence[str], rounds: int, *, seed: int = 1) -> Iterator[Paced]:
        """All mixes under all modes, in an order of its own in each round.

        Programs by themselves, which all else is held against, run more often, and under no mode.
        """
        rng = random.Random(seed)
        for number in range(rounds):
            wanted = [mix for mix in mixes for _ in range(TIMES_ALONE if mix.is_alone else 1)]
            for mix in rng.sample(wanted, len(wanted)):
                for mode in ["none"] if mix.is_alone else rng.sample(list(modes), len(modes)):
                    yield from self._one(number, mix, mode)

    def _one(self, number: int, mix: Mix, mode: str) -> Iterator[Paced]:
        what = f"{mix} | {mode}"
        if what in self.refused:
            return
        programs = [(name, CLASSES[name]) for name in mix.programs]
        mixed = CoRun(self._jobs, programs, self._nodes)
        make = partial(mixed.rates, mode, self._seconds)
        for rates, taken in self.attempt(what, make, _worded, number):
            for each in rates:
                told = each.program, each.iterations_per_s, each.comm_ratio, min(1.0, each.cpu_ratio)
                yield Paced(mode, list(mix.programs), mix.owned, *told, **taken)


def _worded(rates: Sequence[Rate]) -> str:
    return ", ".join(f"{each.iterations_per_s:.2f}/s" for each in rates)


class Observed(NamedTuple):
    """A job's pace against the one its share of the CPU explains, and what was there beside it."""

    mode: str
    kind: str
    cost: float
    beside: Mapping[str, float]


def observed(campaigns: Sequence[Sequence[Paced]]) -> list[Observed]:
    """All runs, held against the same program alone in its campaign; those without one are left out."""
    found = []
    for runs in campaigns:
        alone = grouped((run.program, run) for run in runs if run.is_alone)
        rates = {name: float(np.median([run.iterations_per_s for run in each])) for name, each in alone.items()}
        # a rank that polls or yields while it waits asks for the whole of a CPU, one that sleeps for less
        asked = {name: round(1000 * float(np.median([run.cpu_ratio for run in each]))) for name, each in alone.items()}
        for run in runs:
            if not run.is_alone and set(run.programs) <= set(rates):
                pace = run.iterations_per_s / rates[run.program]
                found.append(_observed(run, pace, asked))
    return found


def _observed(run: Paced, pace: float, asked: Mapping[str, int]) -> Observed:
    expected = fair_pace(run, asked)
    others = list(run.programs)
    others.remove(run.program)
    beside: dict[str, float] = {OWNER: 1.0} if run.owned else {}
    for name in others:
        beside[KINDS[name]] = beside.get(KINDS[name], 0.0) + 1.0
    return Observed(run.mode, KINDS[run.program], expected / pace - 1, beside)


def fair_pace(run: Paced, asked: Mapping[str, int]) -> float:
    """What a job's share of a node would make of it, if sharing cost nothing."""
    occupancy = Occupancy(Sharing(Mode(run.mode)))
    for bursts in OWNERS_PERMILLE:
        node_cpu = NodeCpu(OWNED_CPUS, 1, True, bursts_permille=bursts) if run.owned else NodeCpu(1.0, 1)
        occupancy.nodes[f"desk{len(occupancy.nodes)}"] = node_cpu
    places = Allocation(len(occupancy.nodes), tuple(Share(name, 1) for name in occupancy.nodes))
    for job_id, name in enumerate(run.programs):
        occupancy.enter(Job(job_id, places.procs, 1, 0, kind=KINDS[name], cpu_permille=asked[name]), places)
    return float(occupancy.rates_ppm(occupancy.nodes)[run.programs.index(run.program)] / ALONE_PPM)


def fitted(found: Sequence[Observed], seed: int = 1) -> dict[str, dict[str, dict[str, Cost]]]:
    """Costs by mode, own kind and other's kind: least squares over the runs, intervals by resampling them."""
    rng = np.random.default_rng(seed)
    costs: dict[str, dict[str, dict[str, Cost]]] = {}
    for mode in sorted({each.mode for each in found}):
        for kind in sorted({each.kind for each in found}):
            rows = [each for each in found if (each.mode, each.kind) == (mode, kind)]
            others = sorted({other for each in rows for other in each.beside})
            if not rows:
                continue
            values = np.array([each.cost for each in rows])
            design = np.array([[each.beside.get(other, 0.0) for other in others] for each in rows])
            best = _least_squares(design, values)
            samples = rng.integers(0, len(rows), (_RESAMPLED, len(rows)))
            drawn = np.array([_least_squares(design[which], values[which]) for which in samples])
            low, high = np.nanpercentile(drawn, [2.5, 97.5], axis=0)
            runs = (design > 0).sum(axis=0)
            costs.setdefault(mode, {})[kind] = {
                other: Cost(_rounded(best[at]), _rounded(low[at]), _rounded(high[at]), int(runs[at]))
                for at, other in enumerate(others)
            }
    return costs


def _rounded(value: float) -> float:
    return round(float(value), 4)


def _least_squares(design: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """The solution; what no row has anything of is not known."""
    known = design.any(axis=0)
    found = np.full(design.shape[1], np.nan)
    if known.any():
        found[known] = np.linalg.lstsq(design[:, known], values, rcond=None)[0]
    return found


def paces(campaigns: Sequence[Sequence[Paced]]) -> dict[tuple[str, str, str], tuple[float, float, float, int]]:
    """(mode, mix, program) -> median pace, its interval and how many runs, for a table."""
    by: dict[tuple[str, str, str], list[float]] = {}
    for runs in campaigns:
        alone = grouped((run.program, run.iterations_per_s) for run in runs if run.is_alone)
        for run in runs:
            if not run.is_alone and run.program in alone:
                key = run.mode, str(Mix(tuple(run.programs), run.owned)), run.program
                by.setdefault(key, []).append(run.iterations_per_s / float(np.median(alone[run.program])))
    found = {}
    for key, values in sorted(by.items()):
        middle = spread(values)
        found[key] = (middle.median, middle.low, middle.high, len(values))
    return found
