"""Series as ``prometheus_client`` has them."""

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from cosched.monitoring.series import Series

Simple = GaugeMetricFamily | CounterMetricFamily
Family = Simple | HistogramMetricFamily


def family(series: Series, value: float | None = None) -> Simple:
    """A family of a gauge or counter, to be filled; with a ``value``, the only one of a series without labels."""
    made = GaugeMetricFamily if series.kind == "gauge" else CounterMetricFamily
    filled: Simple = made(series.name, series.help, labels=series.label_names)
    if value is not None:
        filled.add_metric([], value)
    return filled


def add_known(filled: Simple, labels: list[str], value: float) -> None:
    """Add a value that is below 0 where it cannot be had there."""
    if value >= 0:
        filled.add_metric(labels, value)


def add_one_of(filled: Simple, series: Series, labels: list[str], holds: str) -> None:
    """Add 1 for the value of the last label that holds, and 0 for each other one."""
    for value in series.labels[-1].values:
        filled.add_metric([*labels, value], int(value == holds))


def histogram(series: Series, registry: CollectorRegistry) -> Histogram:
    """A histogram that is counted as things happen."""
    return Histogram(series.name, series.help, series.label_names, buckets=series.buckets, registry=registry)
