"""The simulated part: five policies at four loads in every reading, many seeds; tables, figures, verdicts.

Every seed has its own jobs, the same under all policies: differences are paired. A simulation that several readings
have in common is run once.
"""

from functools import partial
from typing import Any, Final

import msgspec

from cosched.apps.replicate.bfm import figures, judging, setup, tables
from cosched.apps.replicate.bfm.claims import CLASSES
from cosched.apps.replicate.bfm.judging import Found
from cosched.apps.replicate.bfm.measures import measured
from cosched.apps.replicate.bfm.setup import BFA, BFM, LOADS, MAIN, POLICIES, PROCS, Reading, Scale, run_of
from cosched.apps.replicate.cells import each_once
from cosched.apps.replicate.papers import TITLES, Request, scale_of
from cosched.apps.replicate.pool import Begin, Call
from cosched.apps.replicate.result import Plot, Result

PAPER: Final = "bfm"
#: In which readings it is looked at what becomes of expired jobs.
_EXPIRING: Final = (MAIN.name, setup.LARGEST_OR_NONE.name, setup.WRONG_ESTIMATES.name)
#: How wide rigid jobs are at most: the whole machine, and what folding can make room for.
_RIGID_PROCS: Final = (PROCS, 32)
#: At which loads that and the share of rigid jobs are swept.
_SWEPT_LOADS: Final = LOADS[:2]


def replicate(request: Request, begin: Begin) -> Result:
    """Run the simulated part, full or quick. Raises :class:`BadInput` for what there is not."""
    return replicate_at(scale_of(request, setup.FULL, setup.QUICK, "seeds", "reading_seeds"), request, begin)


def replicate_at(scale: Scale, request: Request, begin: Begin) -> Result:
    """Run it at a given scale."""
    readings = scale.readings()
    fates = {base.name: _fates(base) for base in readings if base.name in _EXPIRING}
    shares = [_rigid(readings[0], most, share) for most in _RIGID_PROCS for share in scale.rigid]
    pairs = [*(each for fate in fates.values() for each in fate.values()), *shares]
    wanted = [*((each, POLICIES) for each in readings), *((each, (BFA, BFM)) for each in pairs)]
    asked = {
        run_of(reading, preset, load, seed): reading.steady
        for reading, presets in wanted
        for load in reading.loads
        for preset in presets
        for seed in range(1, scale.seeds_of(reading) + 1)
    }
    calls = {run: Call(measured, (run, steady), run.jobs * run.load) for run, steady in asked.items()}
    runs = each_once(calls, request, begin)

    def found(reading: Reading) -> Found:
        return Found(reading, scale.seeds_of(reading), runs)

    result = Result(PAPER, TITLES[PAPER], _configuration(scale, request))
    result.tables["mix"] = tables.mix(scale.jobs)
    _figures(found(readings[0]), "", result)
    for each in readings:
        if each.steady:
            _figures(found(each), f"-{each.jobs}-jobs", result)
    every = [found(each) for each in readings]
    result.claims = judging.together(every)
    result.tables |= {
        "expired": tables.expired(
            {base: {fate: found(each) for fate, each in of.items()} for base, of in fates.items()}
        ),
        "gains": (gains := tables.gains(every)),
        "readings": tables.verdicts(result.claims, [each.name for each in readings]),
        "rigid": (rigid := tables.rigid([found(each) for each in shares])),
    }
    result.plots |= {
        "gains": Plot(lambda axes: figures.gains(axes, gains), (8.0, 5.5)),
        **{f"rigid-{most}": Plot(partial(figures.rigid, table=rigid, most=most), (7.5, 4.5)) for most in _RIGID_PROCS},
    }
    result.notes += _notes()
    return result


def _fates(base: Reading) -> dict[str, Reading]:
    """A reading by what becomes of expired jobs: FJT1+BFA with these options; FJT1+BFM folds."""
    others = {fate: base.also(f"{base.name}, {fate}", BFA, f"expired={fate}") for fate in ("remain", "suspend")}
    base = msgspec.structs.replace(base, name=f"{base.name}, abort or fold")
    fates = {"abort": base, "fold": base, **others}
    return {fate: msgspec.structs.replace(each, loads=_SWEPT_LOADS) for fate, each in fates.items()}


def _rigid(base: Reading, most: int, share: float) -> Reading:
    mix = {"rigid": share, "rigid_procs": most}
    return msgspec.structs.replace(base, name=f"rigid {share:g} of {most}", loads=_SWEPT_LOADS, mix=mix)


def _figures(found: Found, suffix: str, result: Result) -> None:
    """Figs 3 to 6 of a reading, and what backfilling did there."""
    for name, (_, caption) in tables.FIGURES.items():
        table = tables.figure(name, found)
        result.tables[name + suffix] = table
        what = caption.partition(": ")[2]
        for kind in CLASSES:
            draw = partial(figures.by_load, table=table, kind=kind, what=what)
            result.plots[f"{name}{suffix}-{kind}"] = Plot(draw, (6.5, 4.5))
    result.tables["events" + suffix] = tables.events(found)


def _configuration(scale: Scale, request: Request) -> dict[str, Any]:
    return {
        "quick": request.quick,
        "scale": msgspec.to_builtins(scale),
        "procs": PROCS,
        "policies": list(POLICIES),
        "readings": [
            msgspec.to_builtins(each) | {"seeds": f"1 to {scale.seeds_of(each)}"} for each in scale.readings()
        ],
        "warm_up_ratio": setup.WARM_UP_RATIO,
        "model": "utrera05",
        "swept_loads": list(_SWEPT_LOADS),
        "rigid_procs": list(_RIGID_PROCS),
    }


def _notes() -> list[str]:
    return [
        f"A claim's verdict is that of the reading {MAIN.name}, chosen before any run: {MAIN.about}; Table 2 as parts "
        "of the work, linear speed-up, folding at no cost but the share of the processors. Each other reading differs "
        "in one respect; its verdicts stand beside.",
        "With 120 jobs there is no steady state, in the paper neither: means are over all jobs of a workload, its "
        "beginning and its drain included. With 10 000 jobs a load at which the queue grows is not judged.",
        "Open in the paper, chosen here: the mix (120 jobs in ten minutes cannot follow from Tables 1 and 2), which "
        "minimum FJT keeps, times as of a job's last start, a partition as its mean over the execution. Of the "
        "policies: docs/replications/bfm.md.",
        "BFM end to end on real processes: --real. The rate of a folded MPI job: ./run bench folding. real: not run "
        "yet: the mapping of processes by neighbourhood (a question of what messages cost, of which the simulator has "
        "no model).",
    ]
