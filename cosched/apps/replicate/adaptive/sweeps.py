"""The sweeps: rows of cells at each load factor, each against a base that met the same jobs.

What a reconfiguration may cost (stalls after each resize, and the threshold below which no job is resized); how jobs
are admitted (in order, EASY, first fit) among rigid jobs and malleable ones, and the two strategies; and what the jobs
are like: their speed-up (the paper has a curve), shares of other kinds, requests of their own.
"""

from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from msgspec import structs

from cosched.apps.replicate.adaptive import claims
from cosched.apps.replicate.adaptive.runs import RESPONSE, Runs, Wanted
from cosched.apps.replicate.adaptive.setup import EQUIPARTITION, FIRST_FIT, Cell, Mix, Scale, traditional
from cosched.apps.replicate.claims import Measured, judge_every
from cosched.apps.replicate.result import Plot, Result
from cosched.metrics.intervals import Floats, of_replications
from cosched.report.intervals import framed, in_row, line, three
from cosched.report.table import Table
from cosched.workload.generators.kale02 import HALF_EFFICIENT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The yardstick of the paper's reference [3], a stall of five seconds.
YARDSTICK_S: Final = 5.0
#: Where the plot of stalls ends: beyond that it does not matter how much slower jobs are.
_MOST_PERCENT: Final = 110
#: How jobs are admitted: among rigid ones, among malleable ones.
ADMISSION: Final = {
    "in order": ("fcfs", "equipartition(in-order)"),
    "EASY": ("easy", "equipartition(easy)"),
    "first fit": (FIRST_FIT, "equipartition"),
}
_KINDS: Final = ("rigid", "malleable")
WATERFILL: Final = "equipartition(waterfill)"
#: Readings of Fig. 6, by what they say of 64 processors.
SPEED_UPS: Final = {
    "linear": "linear",
    "Amdahl, efficiency 0.75": "amdahl:0.005291005",
    "Amdahl, efficiency 0.5": HALF_EFFICIENT,
    "Amdahl, efficiency 0.25": "amdahl:0.047619048",
    "Downey, A = 64, sigma = 1 (efficiency 0.67)": "downey:64,1",
}
MIXES: Final = {
    "all malleable": Mix(),
    **{f"{share:.0%} rigid": Mix(rigid=share) for share in (0.25, 0.5, 0.75)},
    "all rigid": Mix(rigid=1.0),
    "50% moldable": Mix(moldable=0.5),
    "all moldable": Mix(moldable=1.0),
}
#: Which part of the jobs asks for other processors half-way; and what becomes of requests that do not fit.
EVOLVING: Final = (0.1, 0.5)
REQUESTS: Final = ("keep", "wait", "part")
#: A cell and the one that it is held against, by load factor and name.
Rows = dict[tuple[float, str], tuple[Cell, Cell]]


def adaptive(scale: Scale, load: float) -> Cell:
    """The paper's adaptive jobs, as many as the sweeps have."""
    return Cell(EQUIPARTITION, adaptive=True, load=load, jobs=scale.sweep_jobs)


class Sweep(NamedTuple):
    """A table of the sweeps: ``rows`` has for each (load factor, name) a cell, and the one that it is held against."""

    caption: str
    what: str
    rows: Rows

    def wanted(self, scale: Scale) -> Wanted:
        """Its cells, and the same jobs as traditional ones."""
        cells = [each for cell, base in self.rows.values() for each in (cell, base, traditional(cell))]
        return dict.fromkeys(cells, scale.sweep_seeds)

    def table(self, runs: Runs) -> Table:
        """Response times against those of the bases."""
        made = Table(
            self.caption,
            ("load factor", self.what, "response", "against", "low", "high", "allocated", "useful", "resizes a job",
             "unstable"),
        )  # fmt: skip
        for (load, name), (cell, base) in self.rows.items():
            if stuck := runs.stuck(cell):
                made.add(load, name, *[None] * 7, f"{stuck} of {len(runs[cell])} runs stuck")
                continue
            response, *others = (
                float(runs.values(cell, how).mean()) for how in (RESPONSE, "allocated", "useful", "resizes")
            )
            against = three(runs.relative(cell, base, RESPONSE))
            made.add(load, name, response, *against, *others, "" if runs.steady(cell) else "yes")
        return made


def sweeps(scale: Scale) -> dict[str, Sweep]:
    """All of them, by the names of their tables."""
    costs, thresholds, admission, strategy, curves, mixes, evolving = (Rows() for _ in range(7))
    for load in scale.sweep_loads:
        costs |= {(load, f"{cost:g}"): (cell, traditional(cell)) for cost, cell in _costs(scale, load).items()}
        admitted = _admitted(scale, load)
        admission |= {
            (load, f"{kind}, {how}"): (cell, admitted[kind, "in order"]) for (kind, how), cell in admitted.items()
        }
        ours = adaptive(scale, load)
        strategy |= {
            (load, "equal"): (ours, ours),
            (load, "waterfill"): (ours._replace(policy=WATERFILL), ours),
        }
        curves |= {(load, name): (cell, traditional(cell)) for name, cell in _curves(scale, load).items()}
        mixes |= {(load, name): (ours._replace(mix=mix), ours) for name, mix in MIXES.items()}
        for share in EVOLVING:
            asking = ours._replace(speed_up="linear", mix=Mix(evolving=share))
            cells = {how: asking._replace(policy=f"equipartition({how})") for how in REQUESTS}
            evolving |= {
                (load, f"{share:.0%} evolving, {how}"): (cell, cells[REQUESTS[0]]) for how, cell in cells.items()
            }
    for cost_s, load, threshold in product((0.0, YARDSTICK_S), scale.sweep_loads, (0, *scale.thresholds)):
        base = adaptive(scale, load)._replace(cost_s=cost_s)
        cell = base._replace(policy=f"equipartition(threshold={threshold})") if threshold else base
        thresholds[load, f"{threshold or 'none'}, stall {cost_s:g} s"] = cell, base
    jobs = f"{scale.sweep_jobs} jobs"
    against = f"{scale.sweep_jobs} adaptive jobs against traditional ones, response time, s"
    return {
        "cost": Sweep(f"A stall after each resize: {against}", "stall, s", costs),
        "threshold": Sweep(
            "A threshold below which no job is resized, against none at the same stall: response time, s",
            "threshold",
            thresholds,
        ),
        "admission": Sweep(f"How jobs are admitted, against in order: {jobs}, response time, s", "jobs", admission),
        "strategy": Sweep(
            f"Waterfill (equal totals) against equal leftovers: {jobs}, response time, s", "strategy", strategy
        ),
        "speed-up": Sweep(f"By the speed-up curve: {against}", "speed-up", curves),
        "mix": Sweep(
            "By the shares of rigid and moldable jobs, under equipartition, against malleable ones: "
            f"{jobs}, response time, s",
            "jobs",
            mixes,
        ),
        "evolving": Sweep(
            "A part of the jobs evolving, the others malleable, by what becomes of a request that does not fit, "
            f"against keep: {jobs} of linear speed-up, response time, s",
            "requests",
            evolving,
        ),
    }


def _costs(scale: Scale, load: float) -> dict[float, Cell]:
    return {cost: adaptive(scale, load)._replace(cost_s=cost) for cost in (0.0, *scale.costs_s)}


def _admitted(scale: Scale, load: float) -> dict[tuple[str, str], Cell]:
    """Each way of admission among both kinds of jobs."""
    return {
        (kind, how): Cell(ADMISSION[how][kind == "malleable"], kind == "malleable", load, scale.sweep_jobs)
        for kind, how in product(_KINDS, ADMISSION)
    }


def _curves(scale: Scale, load: float) -> dict[str, Cell]:
    return {name: adaptive(scale, load)._replace(speed_up=curve) for name, curve in SPEED_UPS.items()}


def judge_costs(scale: Scale, runs: Runs, result: Result) -> None:
    """Add the notes and the plot to the table of stalls, and the claims on five seconds."""
    table = result.tables["cost"]
    faster: dict[str, Measured] = {}
    slower: dict[str, Measured] = {}
    for load in scale.sweep_loads:
        without = adaptive(scale, load)
        cell, rigid = without._replace(cost_s=YARDSTICK_S), traditional(without)
        if runs.steady(cell, rigid, without):
            faster[f"load factor {load:g}"] = runs.relative(cell, rigid, RESPONSE)
            slower[f"load factor {load:g}"] = runs.relative(cell, without, RESPONSE)
        costs = _costs(scale, load)
        gone = [cost for cost in scale.costs_s if runs.against_traditional(costs[cost]).high >= 0]
        when = f"from {gone[0]:g} s on no gain is left that is sure" if gone else "a gain is left at all of these"
        table.notes.append(f"load factor {load:g}: {when}")
    result.plots["cost"] = Plot(partial(_draw_costs, scale=scale, table=table))
    result.claims.append(judge_every(claims.COST, faster, f"{scale.sweep_jobs} jobs"))
    result.claims.append(judge_every(claims.COST_SMALL, slower, f"{scale.sweep_jobs} jobs"))


def _draw_costs(axes: "Axes", scale: Scale, table: Table) -> None:
    """Against traditional jobs, by the stall; a line for each load factor."""
    for at, load in enumerate(scale.sweep_loads):
        rows = [row for row in table.as_dicts() if row["load factor"] == load]
        line(axes, {float(row["stall, s"]): in_row(row, "against") for row in rows}, at, f"{load:g}", unit=100)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xscale("symlog", linthresh=1)
    axes.set_xticks([0, *scale.costs_s], [f"{each:g}" for each in (0, *scale.costs_s)])
    axes.set_xlim(left=-0.1)
    axes.set_ylim(-90, _MOST_PERCENT)
    axes.minorticks_off()
    labels = ("stall after each resize (s)", "response time against traditional jobs (%)")
    framed(axes, *labels, "What a reconfiguration may cost", title="load factor")


def judge_admission(scale: Scale, runs: Runs, result: Result) -> None:
    """Add the claims on backfilling."""
    gains: dict[str, Measured] = {}
    kinds: dict[str, Measured] = {}
    for load in scale.sweep_loads:
        cells, case = _admitted(scale, load), f"load factor {load:g}"
        if runs.steady(*cells.values()):
            rigid, malleable = (_relative(runs, cells[kind, "EASY"], cells[kind, "in order"]) for kind in _KINDS)
            gains[case] = of_replications(malleable - rigid)
        if runs.steady(*(cells[kind, how] for kind in _KINDS for how in ("EASY", "first fit"))):
            rigid, malleable = (
                np.abs(_relative(runs, cells[kind, "EASY"], cells[kind, "first fit"])) for kind in _KINDS
            )
            kinds[case] = of_replications(malleable - rigid)
    result.claims.append(judge_every(claims.BACKFILLING, gains, f"{scale.sweep_jobs} jobs"))
    result.claims.append(judge_every(claims.BACKFILLING_KIND, kinds, f"{scale.sweep_jobs} jobs"))


def _relative(runs: Runs, cell: Cell, base: Cell) -> Floats:
    """The relative difference of response times in each workload, shape (seeds,)."""
    found: Floats = runs.values(cell, RESPONSE) / runs.values(base, RESPONSE) - 1
    return found


def judge_readings(scale: Scale, runs: Runs, result: Result) -> None:
    """Add to the claims on both systems what becomes of them by the reading of Fig. 6, by the jobs of the sweeps."""
    curves = [_curves(scale, load) for load in scale.sweep_loads]
    for predicate, what in (
        (claims.RESPONSE_LONG, RESPONSE),
        (claims.UTILISATION_LONG, "allocated"),
        (claims.USEFUL_LONG, "useful"),
    ):
        verdicts = {}
        for name in SPEED_UPS:
            pairs = [(each[name], traditional(each[name])) for each in curves]
            if what == RESPONSE:
                pairs = [both for both in pairs if runs.steady(*both)]
            found = {f"load factor {cell.load:g}": runs.held(cell, base, what) for cell, base in pairs}
            verdicts[name] = judge_every(predicate, found).verdict
        at = next(i for i, each in enumerate(result.claims) if each.id == predicate.id)
        result.claims[at] = structs.replace(result.claims[at], readings=verdicts)
