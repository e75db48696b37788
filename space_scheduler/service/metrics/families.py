"""Series as ``prometheus_client`` has them."""

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from cosched.monitoring.series import Series

Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
#: A value with those of its labels, in the series' order.
Sample = tuple[Sequence[str], float]


def family(series: Series, values: float | Iterable[Sample]) -> Family:
    """A family of a gauge or counter with its samples; of a series without labels, with its only value."""
    made = GaugeMetricFamily if series.kind == "gauge" else CounterMetricFamily
    filled: GaugeMetricFamily | CounterMetricFamily = made(series.name, series.help, labels=series.label_names)
    for labels, value in values if isinstance(values, Iterable) else [((), values)]:
        filled.add_metric(labels, value)
    return filled


def one_of(series: Series, holds: Iterable[tuple[str, str]]) -> Family:
    """A family of the name and what holds for it, of each: 1 for that value of the last label, 0 for the others."""
    values = series.labels[-1].values
    return family(series, (([name, each], int(each == held)) for name, held in holds for each in values))


def known(samples: Iterable[Sample]) -> Iterator[Sample]:
    """The samples without those below 0: what cannot be had there."""
    return (each for each in samples if each[1] >= 0)


def histogram(series: Series, registry: CollectorRegistry) -> Histogram:
    """A histogram that is counted as things happen."""
    return Histogram(series.name, series.help, series.label_names, buckets=series.buckets, registry=registry)
