"""The verdict of each claim that runs decide."""

from itertools import pairwise
from typing import Final

import numpy as np

from cosched.apps.replicate.claims import Claim, Measured, cannot_judge, judge, judge_every, not_comparable
from cosched.apps.replicate.coallocation import claims
from cosched.apps.replicate.coallocation.cells import RANDOM, at_jumps, at_threshold, phased_jumps
from cosched.apps.replicate.coallocation.runs import ALL, Runs
from cosched.apps.replicate.coallocation.setup import FCFS, HIGH, Cell, Scale, fpfs, simulated
from cosched.apps.replicate.coallocation.shares import CRITERIA
from cosched.model.components import Partition

#: Jobs of the run in which FPFS(0) is held against FCFS.
_SAME_JOBS: Final = 5_000
_BY_SIZE: Final = tuple(CRITERIA["S"])
_BY_WIDEST: Final = tuple(CRITERIA["W"])
_UP_TO: Final = 10


def judged(scale: Scale, runs: Runs) -> list[Claim]:
    """All of them, in the order of the paper's figures."""
    return [*_figure1(runs), *_figure2(scale, runs), *_figure3(scale, runs), *_figure4(scale, runs)]


def _figure1(runs: Runs) -> list[Claim]:
    fcfs = at_jumps(0)
    groups = [name for criterion in CRITERIA.values() for name in criterion]
    starts = [simulated(Cell(policy), _SAME_JOBS).start_us for policy in (FCFS, fpfs(0))]
    differ = float(np.count_nonzero(starts[0] != starts[1]))
    return [
        judge(claims.SAME, differ, f"of {_SAME_JOBS} jobs"),
        judge_every(claims.BETTER, {name: runs.relative(RANDOM, fcfs, name) for name in groups}, _reached(runs, fcfs)),
        judge_every(claims.FCFS_ALIKE, _spread(runs, fcfs), _reached(runs, fcfs)),
        judge(claims.FCFS_SMALL, runs.between(fcfs, "S4", "S1"), _reached(runs, fcfs)),
        judge_every(claims.APART, _spread(runs, RANDOM)),
        judge_every(claims.BY_SIZE, _rising(runs, _BY_SIZE)),
        judge_every(claims.BY_WIDEST, _rising(runs, _BY_WIDEST)),
        judge_every(
            claims.TWO_COMPONENTS, {f"C2 to {name}": runs.between(RANDOM, "C2", name) for name in ("C1", "C3", "C4")}
        ),
        judge(claims.EQUAL_SIZE, runs.between(RANDOM, "C4", "C2")),
        judge(
            claims.EXPLAINS, runs.explained(RANDOM, lambda kind: kind.widest, lambda kind: kind.size), "under FPFS(10)"
        ),
        judge_every(claims.WORSE_THAN_MEAN, {name: runs.between(RANDOM, name, ALL) for name in ("S4", "W4")}),
    ]


def _reached(runs: Runs, cell: Cell) -> str:
    """What to know of a run that is not as precise as the others."""
    found = runs[cell].reached
    return f"FCFS: {found.jobs} jobs, precise to {100 * found.precision:.1f} %"


def _spread(runs: Runs, cell: Cell) -> dict[str, Measured]:
    """Each criterion's worst group against its best."""
    found: dict[str, Measured] = {}
    for criterion, groups in CRITERIA.items():
        means = {name: runs.mean(cell, name).mean for name in groups}
        worst, best = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
        found[f"{criterion}: {worst} to {best}"] = runs.between(cell, worst, best)
    return found


def _rising(runs: Runs, names: tuple[str, ...]) -> dict[str, Measured]:
    return {f"{above} to {below}": runs.between(RANDOM, above, below) for below, above in pairwise(names)}


def _figure2(scale: Scale, runs: Runs) -> list[Claim]:
    jumps = [each for each in scale.jumps if each <= _UP_TO]
    improves: dict[str, Measured] = {
        f"{name}, {low} to {high}": runs.relative(at_jumps(high), at_jumps(low), name)
        for low, high in pairwise(jumps)
        for name in (*_BY_SIZE, *_BY_WIDEST)
    }
    flat: dict[str, Measured] = {
        f"{name} at {each}": runs.relative(at_jumps(each), RANDOM, name)
        for each in scale.jumps
        if _UP_TO < each < HIGH
        for name in (*_BY_SIZE, *_BY_WIDEST)
    }
    poorer: dict[str, Measured] = {
        f"maxJumps {each}": runs.between(at_jumps(each), "S4", "S1") for each in scale.jumps if each
    }
    unfair: dict[str, Measured] = {f"{low} to {high}": _ratio_grows(runs, low, high) for low, high in pairwise(jumps)}
    rate = {name: _early(runs, name) for name in (*_BY_SIZE, *_BY_WIDEST)} if 2 in scale.jumps else {}
    at_once = (
        judge(claims.AT_ONCE, runs.mean(at_jumps(HIGH), "S1"))
        if HIGH in scale.jumps
        else cannot_judge(claims.AT_ONCE, f"maxJumps {HIGH} was not run")
    )
    return [
        judge_every(claims.IMPROVES, improves),
        judge_every(claims.FLAT, flat),
        judge_every(claims.RATE, rate),
        judge_every(claims.LARGE_POORER, poorer),
        at_once,
        judge_every(claims.UNFAIR, unfair),
    ]


def _ratio_grows(runs: Runs, low: int, high: int) -> Measured:
    """S4's mean response over S1's, less that at a lower maxJumps."""
    both = runs.together(at_jumps(low), at_jumps(high))
    before, after = (both.mean(at_jumps(each), "S4") / both.mean(at_jumps(each), "S1") for each in (low, high))
    return (after - before).interval()


def _early(runs: Runs, name: str) -> Measured:
    """The part of what maxJumps 10 gains over FCFS that 2 gains."""
    cells = [at_jumps(each) for each in (0, 2, _UP_TO)]
    all_three = runs.together(*cells)
    none, two, ten = (all_three.mean(cell, name) for cell in cells)
    return ((none - two) / (none - ten)).interval()


def _figure3(scale: Scale, runs: Runs) -> list[Claim]:
    pairs = {each: (at_jumps(each, Partition.PHASED), at_jumps(each)) for each in phased_jumps(scale)}
    better: dict[str, Measured] = {
        f"{name} at {each}": runs.relative(*both, name) for each, both in pairs.items() if each for name in ("S1", "S4")
    }
    gaps: dict[str, Measured] = {f"maxJumps {each}": _gap(runs, *both) for each, both in pairs.items()}
    under_fcfs: dict[str, Measured] = {name: runs.relative(*pairs[0], name) for name in ("S1", "S4")}
    return [
        judge_every(claims.PHASED, better),
        judge_every(claims.PHASED_FCFS, under_fcfs, _reached(runs, at_jumps(0))),
        judge_every(claims.PHASED_GAP, gaps),
    ]


def _gap(runs: Runs, ours: Cell, base: Cell) -> Measured:
    """How far S4 and S1 are apart in one cell, less that in another."""
    both = runs.together(ours, base)
    apart, other = (both.mean(cell, "S4") - both.mean(cell, "S1") for cell in (ours, base))
    return (apart - other).interval()


def _figure4(scale: Scale, runs: Runs) -> list[Claim]:
    steady = [each for each in scale.thresholds if not runs[at_threshold(each)].unstable]
    if len(steady) < 2:
        why = "the queue grows"
        return [not_comparable(claims.THRESHOLD, why), not_comparable(claims.THRESHOLD_MOST, why)]
    grows: dict[str, Measured] = {
        f"{name}, {low} to {high}": runs.relative(at_threshold(high), at_threshold(low), name)
        for low, high in pairwise(steady)
        for name in (ALL, "S4")
    }
    lowest = at_threshold(steady[0])
    most: dict[str, Measured] = {}
    for each in steady[1:]:
        both = runs.together(at_threshold(each), lowest)
        large, small = (both.mean(at_threshold(each), name).against(both.mean(lowest, name)) for name in ("S4", "S1"))
        most[f"thres {each}"] = (large - small).interval()
    return [judge_every(claims.THRESHOLD, grows), judge_every(claims.THRESHOLD_MOST, most)]
