"""The series of desks: whether parallel work may run there and why, and what an owner's processes feel.

Who is at a desk is told to nobody here: a node is *free*, *limited* by its contract, or *not available*; reasons that
would tell are one. Where the cluster's settings say so (``monitoring.aggregate``), all of it is told by cluster alone.
"""

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate

from cosched.linux.wakeups import BOUNDS_S
from cosched.model.desk import Availability, public_reason
from cosched.model.time import US_PER_S
from cosched.monitoring import series
from cosched.wire.messages import Heartbeat
from space_scheduler.service.launch.nodes import NodeEntry
from space_scheduler.service.metrics.families import Values, known, one_of


def by_cluster(members: Sequence[NodeEntry], own: str) -> Values:
    """How many desks of each cluster are free, limited and not available. ``own``: the scheduler's own cluster."""
    counted = Counter((entry.cluster or own, entry.availability) for entry in members)
    clusters = sorted({entry.cluster or own for entry in members} | {own})
    counts = (([cluster, each.value], counted[cluster, each]) for cluster in clusters for each in Availability)
    return {series.CLUSTER_AVAILABLE: counts}


def by_desk(members: Sequence[NodeEntry]) -> Values:
    """Of each desk by its name."""
    reasons = ((each.name, public_reason(each.contract_reason)) for each in members)
    beats = [(entry, entry.beat) for entry in members if entry.connected and entry.beat is not None]
    limits = [([entry.name], entry.public_limit_cpus) for entry, _ in beats]
    reports = [([entry.name], entry.report) for entry, _ in beats if entry.report is not None]
    pressures = [(name, report.pressure) for name, report in reports if report.pressure is not None]
    wakeups = [(name, report.wakeups) for name, report in reports if report.wakeups is not None]
    return {
        series.NODE_AVAILABLE: one_of(series.NODE_AVAILABLE, ((each.name, each.availability) for each in members)),
        series.NODE_CONTRACT_REASON: one_of(series.NODE_CONTRACT_REASON, reasons),
        series.NODE_LIMITED_CPUS: ((name, cpus) for name, cpus in limits if cpus is not None),
        series.NODE_CONTRACT_CPUS: (([entry.name], _left_cpus(entry, beat)) for entry, beat in beats),
        series.NODE_PAUSED: (([entry.name], int(bool(beat.paused) and entry.opens_s is None)) for entry, beat in beats),
        series.NODE_PAUSES: ((name, report.pauses) for name, report in reports),
        series.NODE_PRESSURE: known(
            ([*name, each], getattr(found, each)) for name, found in pressures for each in series.RESOURCES
        ),
        series.NODE_OWNER_WAKEUP: (
            # buckets as Prometheus has them: each with all that are below it
            (
                name,
                [*zip((*map(str, BOUNDS_S), "+Inf"), map(float, accumulate(found.counts)), strict=True)],
                found.late_us / US_PER_S,
            )
            for name, found in wakeups
            if len(found.counts) == len(BOUNDS_S) + 1
        ),
    }


def _left_cpus(entry: NodeEntry, beat: Heartbeat) -> float:
    """The CPUs that the contract leaves to parallel work now."""
    if beat.paused:
        return 0.0
    if entry.public_limit_cpus is not None:
        return entry.public_limit_cpus
    return entry.hello.procs if entry.hello is not None else 0
