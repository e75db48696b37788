"""The whole log with its users' estimates under EASY and under conservative backfilling with each of the four choices.

Table 2, the last row of Table 3 and the guarantees are read off these runs.
"""

from collections.abc import Hashable, Mapping
from typing import Any, Final

import numpy as np

from cosched.apps.replicate.backfilling.setup import Setup
from cosched.apps.replicate.pool import Call
from cosched.config.experiment import Experiment
from cosched.metrics.summary import Floats, per_job
from cosched.workload.rules import Times, Workload
from cosched.workload.schedule import Schedule
from space_scheduler.simulator.experiment import run

EASY: Final = "easy"
CONSERVATIVE: Final = "conservative"
#: Run -> (policy, selection). The four choices at an early termination are those of the paper's section 2.1.
RUNS: Final[dict[str, tuple[str, str | None]]] = {
    EASY: (EASY, None),
    CONSERVATIVE: (CONSERVATIVE, "conservative(arrival)"),
    "schedule": (CONSERVATIVE, "conservative(schedule)"),
    "none": (CONSERVATIVE, "conservative(none)"),
    "anew": (CONSERVATIVE, "conservative(anew)"),
}


def simulate_log(load: Workload, policy: str, select: str | None) -> tuple[Times, Times]:
    """Starts and first promises of all jobs under one policy."""
    outcome = run(Experiment(select=select), policy, load)
    return outcome.start_us, outcome.promised_us


def calls(setup: Setup) -> dict[Hashable, Call]:
    """One simulation for each run."""
    return {("log", name): Call(simulate_log, (setup.load, *which), 2.0) for name, which in RUNS.items()}


def schedules(setup: Setup, answers: Mapping[Hashable, Any]) -> dict[str, Schedule]:
    """The schedule of each run, by name."""
    load, found = setup.load, {name: answers["log", name] for name in RUNS}
    return {name: Schedule(load, us, us + load.run_us, promised_us) for name, (us, promised_us) in found.items()}


def slowdowns(schedule: Schedule) -> Floats:
    """Bounded slowdown of each job, threshold 10 s, never below 1."""
    return np.asarray(per_job(schedule).bounded_slowdown)
