"""``cosched simulate``: one policy over one log."""

import os
import time
from pathlib import Path
from typing import Any

import click
import msgspec

from cosched.apps.cli.shared import readings, show
from cosched.apps.cli.shared.options import experiment as make_experiment
from cosched.apps.cli.shared.options import settings
from cosched.apps.cli.shared.outputs import GROUPINGS, check_targets, checked_log, event_log, expected_of, leave, left
from cosched.apps.cli.shared.progress import Progress
from cosched.apps.cli.shared.values import refuse
from cosched.apps.cli.shared.verb import echo, echo_json
from cosched.config.experiment import Experiment
from cosched.errors import BadInput
from cosched.metrics.summary import grouped, summarise, with_intervals
from cosched.report import schedule_file
from cosched.report.table import STDOUT
from cosched.workload.rules import NeverRan
from space_scheduler.simulator.experiment import policy_of, prepare_workload, run
from space_scheduler.simulator.host import Outcome


@click.command("simulate")
@click.argument("log", required=False)
@click.option("--policy", metavar="NAME", help="A policy's name (see 'cosched policies'), or module:name.")
@settings
@click.option("--by", type=click.Choice(list(GROUPINGS)), multiple=True, help="Also measures by group.")
@click.option(
    "--schedule",
    type=click.Path(path_type=Path),
    help="Write starts and ends: .csv, .parquet, .swf, .swf.gz; -: print.",
)
@click.option(
    "--changes", type=click.Path(path_type=Path), help="Write what each job held from when on: job_id,at_s,processes,…"
)
@click.option(
    "--placements", type=click.Path(path_type=Path), help="Write where components lay: job_id,start,cluster,width."
)
@click.option(
    "--events",
    type=click.Path(path_type=Path),
    help="Write every event and decision with its reason, as JSON lines; -: print.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="DIR", help="Write schedule, tables, plots and a manifest."
)
@click.option(
    "--repeat",
    type=click.Path(path_type=Path),
    metavar="MANIFEST",
    help="Repeat a run; compare its outputs byte for byte.",
)
@click.option("--intervals", is_flag=True, help="Also 95 % intervals of the means, by batch means.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    log: str | None,
    policy: str | None,
    by: tuple[str, ...],
    schedule: Path | None,
    changes: Path | None,
    placements: Path | None,
    events: Path | None,
    out: Path | None,
    repeat: Path | None,
    intervals: bool,
    as_json: bool,
    **given: Any,
) -> int:
    """Run one scheduling policy over a log of a real machine (Standard Workload Format, also gzipped).

    LOG is a file, or the name of a public log such as KTH-SP2-1996-2.1-cln.

    \b
    Examples:
      cosched simulate KTH-SP2-1996-2.1-cln.swf.gz --policy easy
      cosched simulate KTH-SP2-1996-2.1-cln.swf.gz --policy conservative --schedule starts.csv --json
      cosched simulate LOG --select 'backfill(4)' --estimates factor:4 --seed 7 --out results
      cosched simulate --repeat results/manifest.json
    """
    expected = expected_of(repeat, "simulate", given | {"policy": policy}) if repeat else None
    given |= {"policies": [policy] if policy else None, "log": log}
    experiment = expected.configuration if expected else make_experiment(given)
    name = _one_policy(experiment, placements)
    label = show.policy_label(experiment, name)
    if schedule:
        schedule_file.check_format(schedule)
    path = checked_log(log, experiment, out, expected, repeat)
    check_targets((schedule, changes, placements, events), path)
    piped = STDOUT in (schedule, changes, placements, events)
    if piped and as_json:
        raise BadInput("--json", "two outputs on standard output", "a file for one of them")
    load = prepare_workload(experiment, path)
    readings.warn(experiment, load)
    with Progress(f"simulating {load.name}", len(load)) as progress, event_log(events) as observer:
        outcome = run(experiment, name, load, observer=observer, progress=progress, holdings=changes is not None)

    summary = summarise(outcome)
    wall_s, cpu_s = round(_process_age_s(), 3), round(time.process_time(), 3)
    both = readings.readings(experiment, name, path, load, summary)
    groups = {what: grouped(outcome, GROUPINGS[what](outcome)) for what in by}
    batches = with_intervals(outcome) if intervals else {}
    _write(outcome, schedule, changes, placements)
    differing = leave(out, "simulate", experiment, path, {label: outcome}, expected)
    if as_json:
        document = {
            "policy": label,
            **msgspec.to_builtins(summary),
            "never_ran": experiment.never_ran,
            "never_ran_jobs": load.never_ran,
            "mean_bounded_slowdown_all": both[NeverRan.WAIT].mean_bounded_slowdown,
            "readings": both,
            "wall_s": wall_s,
            "cpu_s": cpu_s,
            "procs": load.procs_total,
            "procs_from": load.procs_total_from,
            "skipped": load.skipped,
            "adjusted": load.adjusted,
            "starts_by_reason": outcome.reasons,
            "passes": outcome.passes,
            **({"groups": groups} if groups else {}),
            **({"intervals": batches} if batches else {}),
            **({"repeated": not differing, "differing_outputs": differing} if expected else {}),
        }
        echo_json(document)
        return 1 if differing else 0
    shown = {label: summary}
    if readings.share(load, both) > readings.SHOWN_ABOVE:
        shown |= {f"{label} (--never-ran {rule})": each for rule, each in both.items() if rule != experiment.never_ran}
    tables = [
        show.summaries(shown, load, show.without_nodes(experiment)),
        *([show.intervals(batches, len(load))] if batches else []),
        *(show.groups(what, label, rows) for what, rows in groups.items()),
    ]
    echo([*tables, *left(out, expected, differing)], err=piped)
    return 1 if differing else 0


def _write(outcome: Outcome, schedule: Path | None, changes: Path | None, placements: Path | None) -> None:
    for path, write in (
        (schedule, schedule_file.write),
        (changes, schedule_file.write_holdings),
        (placements, schedule_file.write_placements),
    ):
        if path:
            write(outcome, path)


def _process_age_s() -> float:
    """Wall-clock seconds since this process was started, to a hundredth: what ``cpu_s`` is to be compared with."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _one_policy(experiment: Experiment, placements: Path | None = None) -> str | None:
    """The name of the one policy to run, None where order and selection say it all; refuses what cannot be."""
    names = experiment.policies
    several, one_cluster = len(names) > 1, placements and not experiment.clusters
    none = not names and not experiment.order and not experiment.select
    refuse(
        (one_cluster, "--placements", "one cluster", "several: --clusters 20,20,20"),
        (several, "policies", f"found {len(names)}: {', '.join(names)}", "one (several: cosched compare)"),
        (none, "--policy", "no policy given", "a name from 'cosched policies', or --order and --select"),
    )
    name = names[0] if names else None
    policy_of(experiment, name)
    return name
