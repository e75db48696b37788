"""The series of desks: whether parallel work may run there and why, and what an owner's processes feel.

Who is at a desk is told to nobody here: a node is *free*, *limited* by its contract, or *not available*; reasons that
would tell are one. Where the cluster's settings say so (``monitoring.aggregate``), all of it is told by cluster alone.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from prometheus_client.core import HistogramMetricFamily

from cosched.linux.wakeups import BOUNDS_S
from cosched.model.desk import Availability, DeskReport, Wakeups, public_reason
from cosched.monitoring import series
from cosched.wire.messages import Heartbeat
from space_scheduler.service.launch.nodes import NodeEntry
from space_scheduler.service.metrics.families import Family, add_known, add_one_of, family

_US_PER_S = 1_000_000


def by_cluster(members: Sequence[NodeEntry], own: str) -> Iterator[Family]:
    """How many desks of each cluster are free, limited and not available. ``own``: the scheduler's own cluster."""
    counted = Counter((entry.cluster or own, entry.availability) for entry in members)
    filled = family(series.CLUSTER_AVAILABLE)
    for cluster in sorted({entry.cluster or own for entry in members} | {own}):
        for each in Availability:
            filled.add_metric([cluster, each.value], counted[cluster, each])
    yield filled


def by_desk(members: Sequence[NodeEntry]) -> Iterator[Family]:
    """Of each desk by its name."""
    available, reasons = family(series.NODE_AVAILABLE), family(series.NODE_CONTRACT_REASON)
    for entry in members:
        add_one_of(available, series.NODE_AVAILABLE, [entry.name], entry.availability)
        add_one_of(reasons, series.NODE_CONTRACT_REASON, [entry.name], public_reason(entry.contract_reason))
    yield from (available, reasons)
    beats = [(entry, entry.beat) for entry in members if entry.connected and entry.beat is not None]
    yield from _limits(beats)
    yield from _felt([(entry.name, entry.report) for entry, _ in beats if entry.report is not None])


def _limits(beats: Sequence[tuple[NodeEntry, Heartbeat]]) -> Iterator[Family]:
    limited, leaves, paused = (
        family(each) for each in (series.NODE_LIMITED_CPUS, series.NODE_CONTRACT_CPUS, series.NODE_PAUSED)
    )
    for entry, beat in beats:
        paused.add_metric([entry.name], int(bool(beat.paused) and entry.opens_s is None))
        ceiling = entry.public_limit_cpus
        if ceiling is not None:
            limited.add_metric([entry.name], ceiling)
        whole = entry.hello.procs if entry.hello is not None else 0
        leaves.add_metric([entry.name], 0.0 if beat.paused else whole if ceiling is None else ceiling)
    yield from (limited, leaves, paused)


def _felt(reports: Sequence[tuple[str, DeskReport]]) -> Iterator[Family]:
    pauses, pressure = family(series.NODE_PAUSES), family(series.NODE_PRESSURE)
    wakes = HistogramMetricFamily(
        series.NODE_OWNER_WAKEUP.name, series.NODE_OWNER_WAKEUP.help, labels=series.NODE_OWNER_WAKEUP.label_names
    )
    for name, report in reports:
        pauses.add_metric([name], report.pauses)
        if report.pressure is not None:
            for resource in series.RESOURCES:
                add_known(pressure, [name, resource], getattr(report.pressure, resource))
        if report.wakeups is not None and len(report.wakeups.counts) == len(BOUNDS_S) + 1:
            wakes.add_metric([name], _cumulated(report.wakeups), report.wakeups.late_us / _US_PER_S)
    yield from (pauses, pressure, wakes)


def _cumulated(wakeups: Wakeups) -> list[tuple[str, float]]:
    """Buckets as Prometheus has them: each with all that are below it."""
    total, found = 0, []
    for bound, count in zip((*map(str, BOUNDS_S), "+Inf"), wakeups.counts, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
