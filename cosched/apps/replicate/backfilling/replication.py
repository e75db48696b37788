"""The whole replication: what is simulated, in one go, and what is then told of it."""

from typing import Any, Final

import msgspec

from cosched.apps.replicate import steady
from cosched.apps.replicate.backfilling import (
    figure11,
    figures9_10,
    guarantees,
    runs,
    situations,
    sweep,
    table1,
    table2,
    table3,
)
from cosched.apps.replicate.backfilling.setup import FULL, QUICK, RULES, Scale, Setup, read
from cosched.apps.replicate.cells import Cells, each_once
from cosched.apps.replicate.papers import TITLES, Request, log_name, scale_of, thanks
from cosched.apps.replicate.pool import Begin
from cosched.apps.replicate.result import Result
from cosched.metrics.summary import BOUND_S
from cosched.workload.generators.registry import model

PAPER: Final = "backfilling"


def replicate(request: Request, begin: Begin) -> Result:
    """Run all experiments of the paper, full or quick."""
    return replicate_at(scale_of(request, FULL, QUICK, "seeds", of_log=True), request, begin)


def replicate_at(scale: Scale, request: Request, begin: Begin) -> Result:
    """Run all experiments at a given scale."""
    setup = read(request.log, scale)
    other = table1.find() if scale.table1 else None
    swept = sweep.wanted(scale)
    calls = runs.calls(setup) | table2.calls(setup) | table3.calls(setup) | table1.calls(other)
    answers = each_once({**calls, **sweep.calls(swept)}, request, begin)

    result = Result(PAPER, TITLES[PAPER], _configuration(setup, request), [setup.path])
    schedules = runs.schedules(setup, answers)
    if scale.table1:
        table1.report(other, answers, result)
    table2.report(setup, schedules, result)
    table2.report_parts(setup, answers, result)
    table3.report(setup, answers, schedules, result)
    guarantees.report(schedules, result)
    situations.report(result)
    found: sweep.Sweep = Cells.of(swept, answers)
    figures9_10.figure9(scale, found, result)
    figures9_10.figure10(scale, found, result)
    figure11.report(setup, result)
    result.notes += _notes(setup)
    return result


def _configuration(setup: Setup, request: Request) -> dict[str, Any]:
    """Everything that decides the outcome."""
    rules = msgspec.to_builtins(RULES)
    used = ("ties", "procs_from", "never_ran", "negative_times", "at_limit", "launch_delay")
    return {
        "log": setup.load.name,
        "quick": request.quick,
        "rules": {name: rules[name] for name in used},
        "bounded_slowdown_threshold_s": BOUND_S,
        "scale": msgspec.to_builtins(setup.scale),
        "seeds": f"1 to {setup.scale.seeds}",
        "log_runs": {name: select or policy for name, (policy, select) in runs.RUNS.items()},
        "bootstrap": {
            "blocks": "weeks, 4 at a time",
            "table2_seed": table2.BOOTSTRAP_SEED,
            "figure11_seed": figure11.BOOTSTRAP_SEED,
        },
        "sweep": {
            "procs": sweep.PROCS,
            "load_by": {name: parameter for name, (parameter, _) in sweep.ARRIVALS.items()},
            "policies": list(sweep.POLICIES),
            "warm_up_ratio": sweep.WARM_UP_RATIO,
            "unstable": {"growth_above": steady.GROWTH_LIMIT, "and_backlog_above": steady.BACKLOG_FLOOR},
            "models": {name: msgspec.to_builtins(model(name)) for name in sweep.MODELS},
        },
        "table1": {"log": table1.LOG, "procs": list(table1.SIZES), "estimates": "exact"},
    }


def _notes(setup: Setup) -> list[str]:
    """Rules, parameters, what the paper leaves open, and whom to acknowledge."""
    load = setup.load
    parameters = {
        name: ", ".join(f"{key}={value}" for key, value in msgspec.to_builtins(model(name)).items())
        for name in sweep.MODELS
    }
    notes = [
        "Rules: all events of an instant, then one pass; processors as allocated; a job runs at most its request; "
        "estimate = max(request, run time); bounded slowdown max(1, response / max(run time, 10 s)).",
        *(f"Model {name} ({sweep.MODELS[name]}): {text or 'no parameters'}." for name, text in parameters.items()),
        "Open in the paper, chosen here: the early-termination rule of its runs (compression one by one in order "
        "of arrival, the second of the two ways of section 2.1), ties (intervals are half-open), the draws of "
        "Table 3 (one there, many here), and for Figs 9 and 10 machine, run length, load scaling, warm-up, and what "
        "counts as backfilled (started before a job submitted earlier). The constants of feitelson96 are in part "
        "reconstructed (its table of job sizes and its unit of time were not at hand): see its module.",
    ]
    for cause, counts in (("skipped", load.skipped), ("adjusted", load.adjusted)):
        if counts:
            told = ", ".join(f"{n} {what.replace('_', ' ')}" for what, n in counts.items())
            notes.append(f"{load.name}: {cause} {told}.")
    return notes + thanks(log_name(path) for path in (setup.path, table1.find()) if path)
