"""The whole replication: what is simulated, in one go, and what is then told of it."""

from pathlib import Path
from typing import Any, Final

import msgspec

from cosched.apps.replicate import steady
from cosched.apps.replicate.adaptive import claims, example, figures, reshaped, setup, sweeps
from cosched.apps.replicate.adaptive.runs import carried_out
from cosched.apps.replicate.adaptive.setup import FULL, QUICK, Scale
from cosched.apps.replicate.claims import cannot_judge
from cosched.apps.replicate.papers import TITLES, Request, scale_of
from cosched.apps.replicate.pool import Begin
from cosched.apps.replicate.result import Result
from cosched.workload.generators import kale02

PAPER: Final = "adaptive"
REAL_ALONE: Final = "decided by real runs alone (--real)"


def replicate(request: Request, begin: Begin) -> Result:
    """Run all experiments that simulation can decide, full or quick."""
    return replicate_at(scale_of(request, FULL, QUICK, "long_seeds", "sweep_seeds"), request, begin)


def replicate_at(scale: Scale, request: Request, begin: Begin) -> Result:
    """Run them at a given scale."""
    swept = sweeps.sweeps(scale)
    wanted = [figures.wanted(scale), *(each.wanted(scale) for each in swept.values())]
    runs = carried_out(wanted, request, begin)
    result = Result(PAPER, TITLES[PAPER], _configuration(scale, request))
    example.report(result)
    figures.report(scale, runs, result)
    result.tables |= {name: each.table(runs) for name, each in swept.items()}
    sweeps.judge_costs(scale, runs, result)
    sweeps.judge_admission(scale, runs, result)
    sweeps.judge_readings(scale, runs, result)
    result.claims += [cannot_judge(each, REAL_ALONE) for each in claims.REAL_RUNS]
    measured = reshaped.read(Path(request.reshaped) if request.reshaped else None)
    result.claims += reshaped.judged(measured)
    result.configuration["reshaped"] = msgspec.to_builtins(measured)
    result.notes += _notes(scale, measured)
    return result


def _configuration(scale: Scale, request: Request) -> dict[str, Any]:
    """Everything that decides the outcome."""
    return {
        "quick": request.quick,
        "scale": msgspec.to_builtins(scale),
        "short_jobs": setup.SHORT_JOBS,
        "procs": setup.PROCS,
        "workload": {
            "execution_s": kale02.EXECUTION_S,
            "mean_iterations": kale02.MEAN_ITERATIONS,
            "speed_up": kale02.HALF_EFFICIENT,
        },
        "traditional": setup.FIRST_FIT,
        "adaptive": setup.EQUIPARTITION,
        "admission": {how: list(each) for how, each in sweeps.ADMISSION.items()},
        "speed_ups": dict(sweeps.SPEED_UPS),
        "mixes": {name: mix._asdict() for name, mix in sweeps.MIXES.items()},
        "evolving": {"shares": list(sweeps.EVOLVING), "requests": list(sweeps.REQUESTS)},
        "unstable": {"growth_above": steady.GROWTH_LIMIT, "and_backlog_above": steady.BACKLOG_FLOOR},
    }


def _notes(scale: Scale, measured: reshaped.Reshaped) -> list[str]:
    """Rules, what the paper leaves open, and what is not there."""
    return [
        "Open in the paper, chosen here before the runs: the load factors of its figures; the curve of Fig. 6 "
        "(Amdahl's law, half efficient on 64 processors, other curves beside it); whether both kinds of jobs have the "
        "same numbers of processors, job by job (they have); whether utilisation counts processors held or work done "
        "(both are shown).",
        f"All jobs of a run count, its beginning and its drain included. Long runs have {scale.long_jobs} jobs, the "
        f"sweeps {scale.sweep_jobs}.",
        "Work done counts a processor of a job that is half efficient as half. Where no queue grows it is what the "
        "arrivals bring, whatever the policy, but for the end of the run.",
        "Tables 1 to 5 and Figs 2 to 5 are measurements of a runtime system; ours are those of ./run bench reshape and "
        f"adaptive_jobs, measured {measured.made}, {measured.machine} (docs/measured/reshape.md).",
    ]
