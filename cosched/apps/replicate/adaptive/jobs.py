"""What the jobs are like: their speed-up (the paper has a curve); shares of other kinds; requests of their own."""

from itertools import product
from typing import Final

from msgspec import structs

from cosched.apps.replicate.adaptive import claims
from cosched.apps.replicate.adaptive.runs import Runs
from cosched.apps.replicate.adaptive.setup import Cell, Mix, Scale, traditional
from cosched.apps.replicate.adaptive.sweep import Sweep, adaptive
from cosched.apps.replicate.claims import Measured, Predicate, Verdict, judge_every
from cosched.apps.replicate.result import Result
from cosched.workload.generators.kale02 import HALF_EFFICIENT

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


def _curves(scale: Scale) -> dict[tuple[float, str], Cell]:
    return {
        (load, name): adaptive(scale, load)._replace(speed_up=curve)
        for load in scale.sweep_loads
        for name, curve in SPEED_UPS.items()
    }


def _evolving(scale: Scale, load: float, share: float, how: str) -> Cell:
    policy = f"equipartition({how})"
    return adaptive(scale, load)._replace(policy=policy, speed_up="linear", mix=Mix(evolving=share))


def sweeps(scale: Scale) -> dict[str, Sweep]:
    """By the reading of Fig. 6, by shares of other kinds of jobs, and by what becomes of requests."""
    loads = scale.sweep_loads
    return {
        "speed-up": Sweep(
            f"By the speed-up curve: {scale.sweep_jobs} adaptive jobs against traditional ones, response time, s",
            "speed-up",
            {key: (cell, traditional(cell)) for key, cell in _curves(scale).items()},
        ),
        "mix": Sweep(
            f"By the shares of rigid and moldable jobs, under equipartition, against malleable ones: "
            f"{scale.sweep_jobs} jobs, response time, s",
            "jobs",
            {
                (load, name): (adaptive(scale, load)._replace(mix=mix), adaptive(scale, load))
                for load, (name, mix) in product(loads, MIXES.items())
            },
        ),
        "evolving": Sweep(
            f"A part of the jobs evolving, the others malleable, by what becomes of a request that does not fit, "
            f"against keep: {scale.sweep_jobs} jobs of linear speed-up, response time, s",
            "requests",
            {
                (load, f"{share:.0%} evolving, {how}"): (
                    _evolving(scale, load, share, how),
                    _evolving(scale, load, share, REQUESTS[0]),
                )
                for load, share, how in product(loads, EVOLVING, REQUESTS)
            },
        ),
    }


def judge(scale: Scale, runs: Runs, result: Result) -> None:
    """Add to the claims on both systems what becomes of them by the reading of Fig. 6."""
    readings = {
        claims.RESPONSE_LONG: (None, True),
        claims.UTILISATION_LONG: ("allocated", False),
        claims.USEFUL_LONG: ("useful", False),
    }
    for predicate, (what, only_steady) in readings.items():
        found = {name: _verdict(scale, runs, predicate, name, what, only_steady=only_steady) for name in SPEED_UPS}
        at = next(i for i, each in enumerate(result.claims) if each.id == predicate.id)
        result.claims[at] = structs.replace(result.claims[at], readings=found)


def _verdict(
    scale: Scale, runs: Runs, predicate: Predicate, name: str, what: str | None, *, only_steady: bool
) -> Verdict:
    """A claim under one reading, from the jobs of the sweeps."""
    cells = [cell for (_, curve), cell in _curves(scale).items() if curve == name]
    if only_steady:
        cells = [cell for cell in cells if runs.steady(cell, traditional(cell))]
    found: dict[str, Measured] = {
        f"load factor {cell.load:g}": runs.difference(cell, traditional(cell), what)
        if what
        else runs.against_traditional(cell)
        for cell in cells
    }
    return judge_every(predicate, found).verdict
