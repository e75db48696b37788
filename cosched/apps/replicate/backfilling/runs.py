"""The whole log with its users' estimates under EASY and under conservative backfilling with each of the four choices.

Table 2, the last row of Table 3 and the guarantees are read off these runs.
"""

from typing import Final

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


def calls(setup: Setup) -> list[Call]:
    """One simulation for each run."""
    return [Call(simulate_log, (setup.load, policy, select), 2.0) for policy, select in RUNS.values()]


def schedules(setup: Setup, answers: list[tuple[Times, Times]]) -> dict[str, Schedule]:
    """The schedule of each run, by name."""
    load = setup.load
    return {
        name: Schedule(load, start_us, start_us + load.run_us, promised_us)
        for name, (start_us, promised_us) in zip(RUNS, answers, strict=True)
    }


def slowdowns(schedule: Schedule) -> Floats:
    """Bounded slowdown of each job, threshold 10 s, never below 1."""
    return np.asarray(per_job(schedule).bounded_slowdown)
