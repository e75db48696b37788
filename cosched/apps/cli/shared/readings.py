"""What is to be known of a log's jobs before and beside a simulation: those that never ran, and a machine guessed."""

import sys
from pathlib import Path

import msgspec

from cosched.apps.cli.shared.progress import Progress
from cosched.config.experiment import Experiment
from cosched.metrics.summary import Summary, summarise
from cosched.workload import catalogue
from cosched.workload.rules import NeverRan, Workload
from space_scheduler.simulator.experiment import prepare_workload, run

#: Above this part of a log's jobs the summary has both readings.
SHOWN_ABOVE = 0.01
#: A guessed machine on which the queue grows without end: the guess is too small.
_HOPELESS = 1.2


def warn(experiment: Experiment, load: Workload) -> None:
    """Say on standard error, before the run, what would turn its result."""
    if load.guessed and _HOPELESS < load.offered_load < float("inf"):
        sys.stderr.write(
            f"warning: {load.name}: the machine's {load.procs_total} processors are a guess, {load.procs_total_from}; "
            f"the offered load on them is {load.offered_load:.2f}, so the queue grows for as long as jobs come: "
            "--procs N\n"
        )
    if load.never_ran and experiment.never_ran == NeverRan.DROP and _first_time("never-ran"):
        sys.stderr.write(
            f"note, told once: {load.name}: {load.never_ran} jobs that never ran are left out; earlier editions had "
            "them wait and run one second: --never-ran wait\n"
        )


def _first_time(what: str) -> bool:
    """Whether this user has not been told of it; from now on he has."""
    told = catalogue.cache_folder().with_name("told") / what
    try:
        told.parent.mkdir(parents=True, exist_ok=True)
        told.touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:  # no place to remember it: told again next time
        pass
    return True


def readings(
    experiment: Experiment, name: str | None, path: Path, load: Workload, summary: Summary
) -> dict[NeverRan, Summary]:
    """The measures by what becomes of jobs that never ran: those of this run, and of another one where they differ."""
    chosen = experiment.never_ran
    other = NeverRan.WAIT if chosen == NeverRan.DROP else NeverRan.DROP
    if not load.never_ran:
        return {chosen: summary, other: summary}
    if other == NeverRan.DROP and load.never_ran >= len(load):
        return {chosen: summary}
    differing = msgspec.structs.replace(experiment, never_ran=other)
    others = prepare_workload(differing, path)
    with Progress(f"simulating {load.name}, jobs that never ran: {other}", len(others)) as progress:
        return {chosen: summary, other: summarise(run(differing, name, others, progress=progress))}


def share(load: Workload, found: dict[NeverRan, Summary]) -> float:
    """The part of the log's jobs that never ran."""
    ran = found[NeverRan.DROP].jobs if NeverRan.DROP in found else 0
    return load.never_ran / (ran + load.never_ran) if load.never_ran else 0.0
