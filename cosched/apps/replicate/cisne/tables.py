"""The tables behind figures 8 and 9, of simulated and of real runs alike."""

from collections.abc import Mapping
from typing import Final

from cosched.apps.replicate.paired import Values
from cosched.metrics.intervals import Interval, of_replications
from cosched.report.intervals import columns
from cosched.report.table import Table

#: Figure 8's columns, by the measure of a run that each has.
USERS: Final = {"wait": "wait_s", "execution": "execution_s", "turnaround": "turnaround_s"}
#: (workload, policy) -> for each measure a value of each seed, in one order.
Cells = Mapping[tuple[str, str], Mapping[str, Values]]


def users(caption: str, cells: Cells) -> Table:
    """Fig. 8: what users wait for, means with 95 % intervals."""
    table = Table(caption, ["workload", "policy", *columns(*USERS)])
    for (workload, policy), found in cells.items():
        table.add(workload, policy, *(value for what in USERS.values() for value in _three(found[what])))
    return table


def makespans(caption: str, cells: Cells) -> Table:
    """Fig. 9: makespans with 95 % intervals, and against Basic's on the same workload (None where it was not run)."""
    table = Table(caption, ["workload", "policy", "makespan", "low", "high", "against Basic"])
    for (workload, policy), found in cells.items():
        middle, low, high = _three(found["makespan_s"])
        basic = cells.get((workload, "basic"))
        against = None if basic is None else middle / _three(basic["makespan_s"])[0] - 1
        table.add(workload, policy, middle, low, high, against)
    return table


def _three(values: Values) -> tuple[float, float, float]:
    interval: Interval = of_replications(values)
    return interval.mean, interval.low, interval.high
