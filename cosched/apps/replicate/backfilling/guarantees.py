"""Sections 2.1 and 2.2: which promises are kept on the whole log.

Under conservative backfilling a job is promised a start when it is submitted; under EASY the head of the queue is,
when it becomes the head. The premises hold here: FCFS order, jobs killed at their estimates, a machine that keeps its
size. A job that starts in the very pass that first sees it was promised nothing and cannot be late.
"""

from cosched.apps.replicate.backfilling import claims
from cosched.apps.replicate.backfilling.runs import RUNS, slowdowns
from cosched.apps.replicate.claims import judge
from cosched.apps.replicate.result import Result
from cosched.model.time import US_PER_S
from cosched.report.table import Table
from cosched.workload.schedule import Schedule


def report(schedules: dict[str, Schedule], result: Result) -> None:
    """Add the table and the claims."""
    table = Table(
        "Guarantees: starts against the first promise, whole log, users' estimates",
        ("run", "selection", "jobs promised", "late jobs", "largest delay s", "bounded slowdown"),
        notes=["a promise under EASY is the head's reservation; under conservative every waiting job has one"],
    )
    for name, schedule in schedules.items():
        promised = schedule.promised_us >= 0
        delay_us = (schedule.start_us - schedule.promised_us)[promised]
        late = int((delay_us > 0).sum())
        largest_s = max(0, int(delay_us.max(initial=0))) / US_PER_S
        policy, select = RUNS[name]
        table.add(name, select or policy, int(promised.sum()), late, largest_s, float(slowdowns(schedule).mean()))
        result.claims.append(judge(claims.PREDICATES[name], late))
    result.tables["guarantees"] = table
