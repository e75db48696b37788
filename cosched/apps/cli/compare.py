"""``cosched compare``: several policies over one log, side by side."""

import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from cosched.apps.cli.shared import readings, show
from cosched.apps.cli.shared.options import experiment as make_experiment
from cosched.apps.cli.shared.options import settings
from cosched.apps.cli.shared.outputs import GROUPINGS, checked_log, expected_of, leave, left
from cosched.apps.cli.shared.progress import Progress
from cosched.apps.cli.shared.values import refuse
from cosched.apps.cli.shared.verb import Answer, says
from cosched.apps.replicate.pool import Call, carry_out
from cosched.config.experiment import Experiment
from cosched.metrics.intervals import Interval, block_bootstrap
from cosched.metrics.summary import grouped, per_job, summarise
from cosched.model.time import US_PER_S
from cosched.report.table import Table
from cosched.workload.rules import Workload
from space_scheduler.simulator.experiment import policy_of, prepare_workload, run
from space_scheduler.simulator.host import Outcome

_WEEK_US = 7 * 86_400 * US_PER_S


@click.command("compare")
@click.argument("log", required=False)
@click.option("--policies", metavar="A,B,C", help="Policies' names, separated by commas; the first is the baseline.")
@settings
@click.option("--by", type=click.Choice(list(GROUPINGS)), multiple=True, help="Also measures by group.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write schedules, tables, plots and a manifest."
)
@click.option(
    "--repeat",
    type=click.Path(path_type=Path),
    metavar="MANIFEST",
    help="Repeat a run; compare its outputs byte for byte.",
)
@click.option("--jobs", type=click.IntRange(1, 64), default=2, show_default=True, help="Policies simulated at a time.")
@says
def command(
    log: str | None,
    policies: str | None,
    by: tuple[str, ...],
    out: Path | None,
    repeat: Path | None,
    jobs: int,
    **given: Any,
) -> Answer:
    """Run several policies over one log and compare them job by job.

    Differences are to the first policy, with 95 % intervals from a paired moving-block bootstrap over weeks.

    \b
    Example: cosched compare KTH-SP2-1996-2.1-cln.swf.gz --policies easy,conservative,sjbf
    """
    names = _names(policies) if policies is not None else None
    expected = expected_of(repeat, "compare", given | {"policies": policies}) if repeat else None
    experiment = expected.configuration if expected else make_experiment(given | {"policies": names, "log": log})
    _check_policies(experiment)
    path = checked_log(log, experiment, out, expected, repeat)
    load = prepare_workload(experiment, path)
    readings.warn(experiment, load)

    labels = [show.policy_label(experiment, name) for name in experiment.policies]
    calls = [Call(run, (experiment, name, load)) for name in experiment.policies]
    found: list[Outcome] = carry_out(calls, min(jobs, len(calls)), Progress, f"comparing on {load.name}")
    outcomes = dict(zip(labels, found, strict=True))

    summaries = {name: summarise(outcome) for name, outcome in outcomes.items()}
    groups = {what: {name: grouped(o, GROUPINGS[what](o)) for name, o in outcomes.items()} for what in by}
    differences = _differences(outcomes, np.random.default_rng(experiment.seed))
    differing = leave(out, "compare", experiment, path, dict(outcomes), expected)
    document = {
        "log": load.name,
        "procs": load.procs_total,
        "policies": summaries,
        "differences": differences,
        "never_ran": experiment.never_ran,
        "never_ran_jobs": load.never_ran,
        "skipped": load.skipped,
        "adjusted": load.adjusted,
        **({"groups": groups} if groups else {}),
        **({"repeated": not differing, "differing_outputs": differing} if expected else {}),
    }
    tables = [
        show.summaries(summaries, load, show.without_nodes(experiment)),
        _difference_table(differences, experiment, load),
        *(show.groups(what, name, rows) for what, named in groups.items() for name, rows in named.items()),
    ]
    return Answer(document, [*tables, *left(out, expected, differing)], status=1 if differing else 0)


def _names(policies: str) -> list[str]:
    """The policies of a list; commas in parentheses are the policy's own."""
    return [name.strip() for name in re.split(r",(?![^()]*\))", policies) if name.strip()]


def _check_policies(experiment: Experiment) -> None:
    """Refuse what cannot be compared."""
    select, names = experiment.select, experiment.policies
    refuse(
        (select, "--select", f"{select!r} for all policies", "policies that differ, by their names"),
        (len(names) < 2, "--policies", f"found {len(names)}", "at least two names, such as easy,conservative"),
        (len(set(names)) < len(names), "--policies", "the same policy twice", "each policy once"),
    )
    for name in names:
        policy_of(experiment, name, where="--policies")


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """How a policy differs from the baseline."""

    policy: str
    baseline: str
    starts_that_differ: int
    mean_wait_s: Interval
    mean_bounded_slowdown: Interval


def _differences(outcomes: dict[str, Outcome], rng: np.random.Generator) -> list[Difference]:
    (baseline, base), *others = outcomes.items()
    weeks = (base.workload.submit_us - base.workload.submit_us.min()) // _WEEK_US
    measured = per_job(base)

    def interval(differences: NDArray[np.float64]) -> Interval:
        return block_bootstrap(weeks, lambda rows: float(rows.mean()), differences, rng)

    return [
        Difference(
            policy=name,
            baseline=baseline,
            starts_that_differ=int((other.start_us != base.start_us).sum()),
            mean_wait_s=interval(jobs.wait_s - measured.wait_s),
            mean_bounded_slowdown=interval(jobs.bounded_slowdown - measured.bounded_slowdown),
        )
        for name, other, jobs in ((name, other, per_job(other)) for name, other in others)
    ]


def _difference_table(differences: list[Difference], experiment: Experiment, load: Workload) -> Table:
    rows: list[Sequence[object]] = [
        (
            each.policy,
            f"{each.starts_that_differ} of {len(load)}",
            *_shown(each.mean_wait_s, 1),
            *_shown(each.mean_bounded_slowdown, 2),
        )
        for each in differences
    ]
    return Table(
        f"Against {show.policy_label(experiment, experiment.policies[0])}, paired by job",
        ("policy", "starts that differ", "wait s", "95 % interval", "bounded slowdown", "95 % interval "),
        rows,
        ["negative: better than the baseline; intervals from a moving-block bootstrap over weeks (4 at a time)"],
    )


def _shown(found: Interval, digits: int) -> tuple[float, str]:
    """A mean and its interval."""
    between = f"{found.low:.{digits}f} … {found.high:.{digits}f}"
    return round(found.mean, digits), "too few weeks" if math.isinf(found.high) else between
