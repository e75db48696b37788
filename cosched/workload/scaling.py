"""Load, and its change by stretching or compressing the time between submissions.

Offered load = Σ run · processors / (processors of the machine · span of the submissions). Multiplying every distance
between submissions by one factor divides the load by it and leaves everything else of a log alone: run times, sizes and
their order. (It also stretches the daily cycle, the price of this method; Feitelson and Weil 1998, section 3.1, and
Lublin and Feitelson 2003 vary load this way.)
"""

import math

import numpy as np

from cosched.errors import BadInput
from cosched.workload.log import Field, Header, Log
from cosched.workload.rules import InputRules, machine_size, prepare


def offered_load(log: Log, *, procs_total: int | None = None, rules: InputRules | None = None) -> float:
    """The offered load of a log's jobs as ``rules`` admit them; infinite when all are submitted at one instant."""
    workload = prepare(log, rules, procs_total=procs_total)
    if not len(workload):
        raise BadInput(log.name, "no job is left to compute a load from", "jobs with a size and a run time")
    return workload.offered_load


def by_factor(log: Log, factor: float) -> Log:
    """The log with every distance between submissions multiplied by ``factor``; its first submission stays."""
    if not (math.isfinite(factor) and factor > 0):
        raise BadInput("factor", f"{factor}", "a positive number")
    rows = log.rows.copy()
    submit = rows[:, Field.SUBMIT_S]
    start = submit[submit >= 0].min(initial=np.inf)
    rows[:, Field.SUBMIT_S] = np.where(submit >= 0, np.round(start + (submit - start) * factor, 6), submit)
    note = f"; Note: distances between submissions multiplied by {factor!r}"
    header = Header(log.header.entries, (*log.header.lines, note))
    return Log(header, rows, log.name, log.line_numbers, log.skipped)


def to_load(log: Log, load: float, *, procs_total: int | None = None, rules: InputRules | None = None) -> Log:
    """The log with its inter-arrivals scaled so that its offered load is ``load``."""
    if not (math.isfinite(load) and load > 0):
        raise BadInput("load", f"{load}", "a positive number, 1 being all the machine can do")
    machine_size(log, procs_total)  # its own message, if there is none
    now = offered_load(log, procs_total=procs_total, rules=rules)
    if not math.isfinite(now):
        raise BadInput(log.name, "all jobs are submitted at one instant", "submissions that can be spread out")
    return by_factor(log, now / load)
