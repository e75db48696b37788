"""What the link between two clusters costs the lab's programs: each across it, against the same on one cluster.

A program runs alone, one task on each of two nodes with a CPU each: on a lab of one cluster, then on labs of two, a
node in each, whose link holds packets for a delay. Its *slowdown* is how many iterations it does in a second on one
cluster against across the link. What is more than 1 of it is the link's cost, as a part of the time on one cluster,
which the scheduler counts with by the job's kind (``cosched.model.components.Between``).
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Final

from cosched.apps.experiments.attempts import Attempts, Say
from cosched.apps.experiments.calibrate import CLASSES, KINDS
from cosched.apps.experiments.corun import CoRun
from cosched.apps.experiments.interference import InterferenceWatch, WatchedRun
from cosched.apps.experiments.jobs import Jobs
from cosched.apps.experiments.matrix import Spread, grouped, spread
from cosched.apps.experiments.testbed import Testbed
from cosched.model.components import Between

#: Where both nodes are in one cluster.
ONE_CLUSTER: Final = -1
_PPM: Final = 1_000_000


class Crossed(WatchedRun, frozen=True):
    """A program's rate with a link of that delay (one way) between its two tasks, or :data:`ONE_CLUSTER`."""

    delay_us: int
    program: str
    iterations_per_s: float
    comm_ratio: float


def measured(place: Testbed, delay_us: int, seconds: float, say: Say) -> Iterator[Crossed]:
    """Each program once, for so many seconds; one that cannot be run is said and left out."""
    jobs, attempts = Jobs(place.client), Attempts(say, InterferenceWatch(place.lab, say, tries=2))
    components = None if delay_us == ONE_CLUSTER else (1,) * place.nodes
    for program, letter in CLASSES.items():
        alone = CoRun(jobs, [(program, letter)], place.nodes, components)
        what = f"{program} on one cluster" if components is None else f"{program} across {delay_us / 1000:g} ms"
        make = partial(alone.rates, "none", seconds)
        for (rate,), taken in attempts.attempt(what, make, "{0[0].iterations_per_s:.3f} iterations/s".format):
            yield Crossed(delay_us, program, rate.iterations_per_s, rate.comm_ratio, **taken)


def slowdowns(campaigns: Sequence[Sequence[Crossed]]) -> dict[tuple[int, str], tuple[Spread, int]]:
    """(delay, program) -> its slowdown across the link, and of how many runs; each held against its own campaign."""
    found: dict[tuple[int, str], list[float]] = {}
    for runs in campaigns:
        near = grouped((run.program, run.iterations_per_s) for run in runs if run.delay_us == ONE_CLUSTER)
        for run in runs:
            if run.delay_us != ONE_CLUSTER and run.program in near and run.iterations_per_s > 0:
                slowdown = statistics.median(near[run.program]) / run.iterations_per_s
                found.setdefault((run.delay_us, run.program), []).append(slowdown)
    return {key: (spread(values), len(values)) for key, values in sorted(found.items())}


def iterations_s(campaigns: Sequence[Sequence[Crossed]]) -> dict[str, float]:
    """How long an iteration of each program takes on one cluster, in seconds: the median of all runs."""
    near = grouped(
        (run.program, run.iterations_per_s)
        for run in chain.from_iterable(campaigns)
        if run.delay_us == ONE_CLUSTER and run.iterations_per_s > 0
    )
    return {program: 1 / statistics.median(rates) for program, rates in near.items()}


def between(found: Mapping[tuple[int, str], tuple[Spread, int]], delay_us: int) -> Between:
    """What a link of that delay costs, by kind: the mean of its programs' medians; of jobs of no kind, that of all."""
    costs: dict[str, list[float]] = {}
    for (delay, program), (slowdown, _) in found.items():
        if delay == delay_us:
            for kind in (KINDS[program], ""):
                costs.setdefault(kind, []).append(max(0.0, slowdown.median - 1))
    return Between({kind: round(_PPM * statistics.fmean(each)) for kind, each in sorted(costs.items())})
