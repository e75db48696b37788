"""First come, first served, but for what a file beside this one tells: ``fails``, ``refuses`` or ``slow``."""

import time
from pathlib import Path

from space_scheduler.policy.interface import Plan, PlannedStart, Snapshot
from space_scheduler.policy.order import fcfs
from space_scheduler.reasons import Reason, Why

_HERE = Path(__file__).parent
_SLOW_S = 1.0


class Ailing:
    """A policy that can be made to fail, and to take long."""

    order = staticmethod(fcfs)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Start whoever fits."""
        if (_HERE / "fails").exists():
            raise RuntimeError("told to fail")
        if (_HERE / "refuses").exists() and snapshot.queue.head() is not None:
            raise RuntimeError("told to refuse every job")
        if (_HERE / "slow").exists():
            time.sleep(_SLOW_S)
        free, starts = snapshot.free_procs, []
        for job in snapshot.queue:
            if job.procs <= free:
                free -= job.procs
                starts.append(PlannedStart(job, Reason(Why.FIRST_FIT)))
        return Plan(starts)


ailing = Ailing()
