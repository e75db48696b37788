"""The introduction's example, exact: 100 processors, a job of 64 runs, one of 40 comes.

Work and times are ours (the paper gives processors alone): A has a work of 6400 processor-seconds, B, rigid, 1200.
"""

from typing import Final

import numpy as np

from cosched.apps.replicate.adaptive import claims
from cosched.apps.replicate.adaptive.setup import EQUIPARTITION, FIRST_FIT
from cosched.apps.replicate.claims import judge
from cosched.apps.replicate.result import Result
from cosched.model.time import US_PER_S
from cosched.report.table import Table
from cosched.workload import shapes
from cosched.workload.log import FIELDS, Field, Header, Log
from cosched.workload.rules import Workload, prepare
from cosched.workload.schedule import Schedule
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import simulate

PROCS: Final = 100
#: (submitted, run time, processors) of A and B, in seconds.
_JOBS: Final = ((0.0, 100.0, 64), (10.0, 30.0, 40))


def traditional() -> Workload:
    """A and B with a number of processors each."""
    rows = np.full((len(_JOBS), FIELDS), -1.0)
    rows[:, Field.JOB] = range(1, len(_JOBS) + 1)
    for at, column in enumerate((Field.SUBMIT_S, Field.RUN_S, Field.PROCS_REQUESTED)):
        rows[:, column] = [job[at] for job in _JOBS]
    rows[:, Field.PROCS_ALLOCATED] = rows[:, Field.PROCS_REQUESTED]
    rows[:, Field.STATUS] = 1
    return prepare(Log(Header({}, ()), rows, name="example"), procs_total=PROCS)


def adaptive() -> Workload:
    """A may have 32 to 64 processors."""
    return shapes.apply(traditional(), {1: shapes.Line(least=32, most=64)})


def report(result: Result) -> None:
    """Add the schedule under both schedulers, and the claims."""
    table = Table(
        f"The introduction's example on {PROCS} processors: starts and ends, s",
        ("jobs", "job", "submitted", "start", "end", "processors"),
    )
    runs: dict[str, Schedule] = {
        "adaptive": simulate(adaptive(), resolve(EQUIPARTITION)),
        "traditional": simulate(traditional(), resolve(None, select=FIRST_FIT), holdings=True),
    }
    for kind, ran in runs.items():
        for row, job in enumerate("AB"):
            held = [str(each.processes) for each in ran.holdings or () if each.row == row]
            times = (float(each[row] / US_PER_S) for each in (ran.workload.submit_us, ran.start_us, ran.end_us))
            table.add(kind, job, *times, ", ".join(held))
    result.tables["example"] = table
    prefixes = {"adaptive": "", "traditional": "rigid-"}
    for kind, ran in runs.items():
        for row, job in enumerate("ab"):
            end_s = float(ran.end_us[row] / US_PER_S)
            result.claims.append(judge(claims.EXAMPLE[prefixes[kind] + job], end_s))
