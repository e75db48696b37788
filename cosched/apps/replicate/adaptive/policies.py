"""How jobs are admitted (in order, EASY, first fit), among rigid jobs and malleable ones; and the two strategies."""

from itertools import product
from typing import Final

import numpy as np

from cosched.apps.replicate.adaptive import claims
from cosched.apps.replicate.adaptive.runs import RESPONSE, Runs
from cosched.apps.replicate.adaptive.setup import FIRST_FIT, Cell, Scale
from cosched.apps.replicate.adaptive.sweep import Sweep, adaptive
from cosched.apps.replicate.claims import Measured, judge_every
from cosched.apps.replicate.result import Result
from cosched.metrics.intervals import Floats, of_replications

#: How jobs are admitted: among rigid ones, among malleable ones.
ADMISSION: Final = {
    "in order": ("fcfs", "equipartition(in-order)"),
    "EASY": ("easy", "equipartition(easy)"),
    "first fit": (FIRST_FIT, "equipartition"),
}
_KINDS: Final = ("rigid", "malleable")
WATERFILL: Final = "equipartition(waterfill)"


def _admitted(scale: Scale, load: float, kind: str, how: str) -> Cell:
    malleable = kind == "malleable"
    return Cell(ADMISSION[how][malleable], malleable, load, scale.sweep_jobs)


def _waterfill(scale: Scale, load: float) -> Cell:
    return adaptive(scale, load)._replace(policy=WATERFILL)


def sweeps(scale: Scale) -> dict[str, Sweep]:
    """Each way of admission among both kinds of jobs; and the other strategy."""
    loads = scale.sweep_loads
    return {
        "admission": Sweep(
            f"How jobs are admitted, against in order: {scale.sweep_jobs} jobs, response time, s",
            "jobs",
            {
                (load, f"{kind}, {how}"): (_admitted(scale, load, kind, how), _admitted(scale, load, kind, "in order"))
                for load, kind, how in product(loads, _KINDS, ADMISSION)
            },
        ),
        "strategy": Sweep(
            f"Waterfill (equal totals) against equal leftovers: {scale.sweep_jobs} jobs, response time, s",
            "strategy",
            {
                (load, name): (cell, adaptive(scale, load))
                for load in loads
                for name, cell in (("equal", adaptive(scale, load)), ("waterfill", _waterfill(scale, load)))
            },
        ),
    }


def judge(scale: Scale, runs: Runs, result: Result) -> None:
    """Add the claims on backfilling."""
    gains: dict[str, Measured] = {}
    kinds: dict[str, Measured] = {}
    for load in scale.sweep_loads:
        case = f"load factor {load:g}"
        cells = {(kind, how): _admitted(scale, load, kind, how) for kind in _KINDS for how in ADMISSION}
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
