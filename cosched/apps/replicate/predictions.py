"""Tsafrir, Etsion & Feitelson 2007: EASY with run times that the system predicts in place of users' estimates.

EASY++ predicts a job's run time as the mean of its user's last two, lengthens a prediction that is outrun, kills at the
user's estimate alone, and backfills the shortest job first; EASY+ is the same in order of arrival. Two claims, on two
logs of the Parallel Workloads Archive: mean wait and mean bounded slowdown are below EASY's. Differences are paired job
by job; intervals are those of a moving-block bootstrap over weeks, for a log has no replications.
"""

from collections.abc import Mapping
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
import numpy as np

from cosched.apps.replicate.cells import each_once
from cosched.apps.replicate.claims import BELOW, Measured, Predicate, judge_every
from cosched.apps.replicate.papers import TITLES, Request, log_name, required_log, scale_of, thanks
from cosched.apps.replicate.pool import Begin, Call
from cosched.apps.replicate.result import Plot, Result
from cosched.config.experiment import Experiment
from cosched.errors import BadInput
from cosched.metrics.intervals import Interval, block_bootstrap
from cosched.metrics.summary import Floats, per_job
from cosched.model.time import US_PER_S
from cosched.report.intervals import MARKERS, reach, three
from cosched.report.palette import COLOURS
from cosched.report.table import Table
from cosched.workload.rules import Workload
from space_scheduler.simulator.experiment import prepare_workload, run
from space_scheduler.simulator.predicting import HISTORY

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PAPER: Final = "predictions"
LOGS: Final = ("SDSC-SP2-1998-4.2-cln", "KTH-SP2-1996-2.1-cln")
#: Jobs of each log of a quick run.
QUICK_JOBS: Final = 10_000
BOOTSTRAP: Final = 2000
BOOTSTRAP_SEED: Final = 2007
_WEEK_US: Final = 7 * 86_400 * US_PER_S
EASY: Final = "EASY"


class Arm(NamedTuple):
    """A scheduler: its policy, whose run times it goes by, and what it is."""

    policy: str
    estimates: str
    about: str


ARMS: Final[dict[str, Arm]] = {
    EASY: Arm("easy", "user", "users' estimates, backfilled in order of arrival"),
    "EASY, shortest first": Arm("sjbf", "user", "users' estimates, the shortest backfilled first"),
    "EASY+": Arm("easy", "predicted", "predictions, backfilled in order of arrival"),
    "EASY++": Arm("sjbf", "predicted", "predictions, the shortest backfilled first"),
}
MEASURES: Final[dict[str, str]] = {"wait": "mean wait, s", "slowdown": "mean bounded slowdown"}
WIDE: Final = "mean wait of jobs on half of the machine or more, s"
CLAIMS: Final = {
    name: Predicate(
        id=f"{name}-below-easy",
        text=f"{what.removesuffix(', s')} under EASY++ is below EASY's on every log",
        quantity=f"EASY++ / EASY - 1, {what.removesuffix(', s')}, paired by job",
        region=BELOW,
    )
    for name, what in MEASURES.items()
}


class Found(NamedTuple):
    """One log under one scheduler, arrays of shape (n,): waits in seconds, bounded slowdowns."""

    wait: Floats
    slowdown: Floats


#: (log, arm) -> what was found.
Runs = Mapping[tuple[str, str], Found]


def simulated(load: Workload, arm: Arm) -> Found:
    """A log under one scheduler."""
    jobs = per_job(run(Experiment(estimates=arm.estimates), arm.policy, load))
    return Found(jobs.wait_s, jobs.bounded_slowdown)


def replicate(request: Request, begin: Begin) -> Result:
    """Run all experiments. Raises :class:`BadInput` for what there is not."""
    if request.seeds is not None:
        raise BadInput("--seeds", str(request.seeds), "none: nothing is drawn, the logs are what they are")
    jobs = scale_of(request, None, QUICK_JOBS, of_log=True)
    paths = [required_log(name, name) for name in ((request.log,) if request.log else LOGS)]
    loads = {log_name(path): prepare_workload(Experiment(), path) for path in paths}
    if jobs is not None:
        loads = {name: load.only(slice(jobs)) for name, load in loads.items()}
    cells = list(product(loads, ARMS))
    calls = {(name, arm): Call(simulated, (loads[name], ARMS[arm]), len(loads[name])) for name, arm in cells}
    runs: Runs = each_once(calls, request, begin)
    result = Result(PAPER, TITLES[PAPER], _configuration(loads, request), paths)
    against = {
        (name, arm, what): _relative(loads[name], getattr(runs[name, arm], what), getattr(runs[name, EASY], what))
        for (name, arm), what in product(cells, MEASURES)
        if arm != EASY
    }
    result.tables["measures"] = _measures(loads, runs, against)
    for what, claim in CLAIMS.items():
        cases: dict[str, Measured] = {name: against[name, "EASY++", what] for name in loads}
        result.claims.append(judge_every(claim, cases))
    result.plots["against-easy"] = Plot(partial(draw, against=against, logs=list(loads)), (9.0, 4.5))
    result.notes += _notes(loads)
    return result


def _relative(load: Workload, ours: Floats, base: Floats) -> Interval:
    """mean(ours) / mean(base) - 1, resampled by weeks."""
    weeks = (load.submit_us - load.submit_us[0]) // _WEEK_US
    return block_bootstrap(
        weeks,
        lambda rows: float(rows[:, 0].sum() / rows[:, 1].sum() - 1),
        np.column_stack([ours, base]),
        np.random.default_rng(BOOTSTRAP_SEED),
        samples=BOOTSTRAP,
    )


def _measures(loads: Mapping[str, Workload], runs: Runs, against: Mapping[tuple[str, str, str], Interval]) -> Table:
    table = Table(
        "Means of each log by scheduler, and relative differences from EASY with 95 % intervals",
        ["log", "scheduler", "measure", "mean", "against EASY", "low", "high"],
    )
    for (name, arm), found in runs.items():
        for what, told in MEASURES.items():
            interval = against.get((name, arm, what))
            compared = [None] * 3 if interval is None else three(interval)
            table.add(name, arm, told, float(getattr(found, what).mean()), *compared)
        wide = loads[name].procs >= loads[name].procs_total / 2
        table.add(name, arm, WIDE, float(found.wait[wide].mean()), None, None, None)
    table.notes += [f"{name}: {arm.about}" for name, arm in ARMS.items()]
    return table


def draw(axes: "Axes", against: Mapping[tuple[str, str, str], Interval], logs: list[str]) -> None:
    """Relative differences from EASY, a row for each log and scheduler."""
    rows = [(log, arm) for log in logs for arm in ARMS if arm != EASY]
    for column, (what, told) in enumerate(MEASURES.items()):
        found = [against[log, arm, what] for log, arm in rows]
        means, errors = reach([three(each) for each in found], 100)
        places = np.arange(len(rows)) + (column - 0.5) * 0.25
        style: dict[str, Any] = {"linestyle": "none", "marker": MARKERS[column], "color": COLOURS[column], "capsize": 3}
        axes.errorbar(means, places, xerr=errors, label=told.removesuffix(", s"), **style)
    axes.axvline(0, color="grey", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [f"{log.partition('-')[0]}, {arm}" for log, arm in rows])
    axes.invert_yaxis()
    axes.set(xlabel="against EASY (%; bars: 95 % intervals over weeks)")
    axes.set_title("Predicted run times in place of users' estimates", loc="left")
    axes.grid(alpha=0.3, axis="x")
    axes.legend(frameon=False)


def _configuration(loads: Mapping[str, Workload], request: Request) -> dict[str, Any]:
    return {
        "quick": request.quick,
        "logs": {name: len(load) for name, load in loads.items()},
        "schedulers": {name: arm._asdict() for name, arm in ARMS.items()},
        "history": HISTORY,
        "rules": msgspec.to_builtins(Experiment().input_rules),
        "bootstrap": {"blocks": "weeks, 4 at a time", "samples": BOOTSTRAP, "seed": BOOTSTRAP_SEED},
    }


def _notes(loads: Mapping[str, Workload]) -> list[str]:
    return [
        f"A prediction is made at submission, of the user's last {HISTORY} jobs by submission among those that have "
        "ended by then, at most the user's estimate; with fewer such jobs it is the estimate. One that is outrun is "
        "lengthened by 1, 5, 15 and 30 min, then 1, 2, 5, 10, 20, 50 and 100 h, the last of which may be beyond the "
        "estimate; a job is killed at its estimate.",
        *thanks(loads),
    ]
