"""What is measured of a run: by Long and Short jobs what the paper's Figs 3 to 6 show, and what backfilling did.

Times are of a job's last start: what an aborted job did before is part of its queue wait, as the paper has it (6.4.2).
A job's partition is the mean over its execution of the processors that it held.
"""

from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from cosched.apps.replicate.bfm.claims import ALL, LONG, SHORT
from cosched.apps.replicate.bfm.setup import WARM_UP_RATIO, Run, simulated
from cosched.apps.replicate.steady import Thirds, backlog_thirds
from cosched.metrics.summary import Floats
from cosched.model.time import US_PER_S
from cosched.workload.schedule import Schedule
from space_scheduler.reasons import Why

Bools = NDArray[np.bool_]
#: The reason of a start behind the head.
_BACKFILLED: Final = Why.BACKFILLED_MOULDED.name.lower()
_FOLDED: Final = Why.FOLDED.name.lower()


class OfClass(msgspec.Struct, frozen=True, kw_only=True):
    """Means over the jobs of a class; ``deviation_s`` is the standard deviation of their queue waits.

    ``procs``: processors held; ``shrunk``: the part of their execution with fewer processors than processes.
    """

    response_s: float
    execution_s: float
    wait_s: float
    deviation_s: float
    procs: float
    shrunk: float


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One run. Starts behind the head, folds and aborts are counted; ``lost_s`` is what aborted attempts held.

    ``lost_s`` in processor-seconds, ``lost`` as a ratio of all work; ``thirds`` as in ``steady``.
    """

    classes: dict[str, OfClass]
    backfilled: int
    folds: int
    aborts: int
    lost_s: float
    lost: float
    thirds: Thirds


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """What each job held from its last start to its end, shape (n,): processor-µs, and µs with too few of them.

    ``lost_us``: processor-microseconds that its aborted attempts held.
    """

    procs_us: Floats
    shrunk_us: Floats
    lost_us: Floats


def held(schedule: Schedule) -> Held:
    """What each job held, by its schedule's holdings."""
    count = len(schedule.workload)
    procs_us, shrunk_us, lost_us = (np.zeros(count) for _ in range(3))
    since: dict[int, tuple[int, int, int]] = {}

    def close(row: int, until_us: int) -> None:
        at_us, processes, procs = since.pop(row)
        procs_us[row] += procs * (until_us - at_us)
        shrunk_us[row] += (until_us - at_us) * (procs < processes)

    for row, at_us, processes, procs, _ in schedule.holdings or ():
        if row in since:
            close(row, at_us)
        if processes:
            since[row] = at_us, processes, procs
        else:
            lost_us[row] += procs_us[row]
            procs_us[row] = shrunk_us[row] = 0.0
    ends = schedule.end_us.tolist()
    for row in list(since):
        close(row, ends[row])
    return Held(procs_us=procs_us, shrunk_us=shrunk_us, lost_us=lost_us)


def of(schedule: Schedule, backfilled: int, first: int = 0) -> Measured:
    """The measures of a schedule; means leave out the jobs before ``first``."""
    load = schedule.workload
    found = held(schedule)
    is_long = np.array([shaped is not None and shaped.long for shaped in load.shapes])
    counted = np.arange(len(load)) >= first
    wait_s = (schedule.start_us - load.submit_us) / US_PER_S
    execution_s = (schedule.end_us - schedule.start_us) / US_PER_S

    def of_class(member: Bools) -> OfClass:
        waits, executions = wait_s[member], execution_s[member]
        return OfClass(
            response_s=float((waits + executions).mean()),
            execution_s=float(executions.mean()),
            wait_s=float(waits.mean()),
            deviation_s=float(waits.std()),
            procs=float((found.procs_us[member] / US_PER_S / executions).mean()),
            shrunk=float(found.shrunk_us[member].sum() / US_PER_S / executions.sum()),
        )

    holdings = schedule.holdings or ()
    lost_s = float(found.lost_us.sum()) / US_PER_S
    work_s = float(np.dot(load.procs, load.run_us.astype(np.float64))) / US_PER_S
    return Measured(
        classes={ALL: of_class(counted), LONG: of_class(counted & is_long), SHORT: of_class(counted & ~is_long)},
        backfilled=backfilled,
        folds=sum(each.why == _FOLDED for each in holdings),
        aborts=sum(not each.processes for each in holdings),
        lost_s=lost_s,
        lost=lost_s / work_s,
        thirds=backlog_thirds(schedule),
    )


def measured(run: Run, steady: bool) -> Measured:
    """Simulate and measure; ``steady``: without the jobs of the warm-up."""
    outcome = simulated(run)
    first = round(run.jobs * WARM_UP_RATIO) if steady else 0
    return of(outcome, outcome.reasons.get(_BACKFILLED, 0), first)
