"""Series as ``prometheus_client`` has them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from cosched.monitoring.series import Series

Family = GaugeMetricFamily | CounterMetricFamily | HistogramMetricFamily
#: The values of a sample's labels, in the series' order, then its value; of a histogram its buckets and its sum.
Sample = tuple[Sequence[str], float] | tuple[Sequence[str], list[tuple[str, float]], float]
#: The samples of each series; of a series without labels its only value.
Values = Mapping[Series, float | Iterable[Sample]]
_FAMILIES: Final[Mapping[str, Any]] = {
    "gauge": GaugeMetricFamily,
    "counter": CounterMetricFamily,
    "histogram": HistogramMetricFamily,
}


def families(values: Values) -> Iterator[Family]:
    """A family of each series with its samples."""
    for series, found in values.items():
        family: Family = _FAMILIES[series.kind](series.name, series.help, labels=series.label_names)
        for sample in found if isinstance(found, Iterable) else [((), found)]:
            family.add_metric(*sample)
        yield family


def one_of(series: Series, holds: Iterable[tuple[str, str]]) -> list[Sample]:
    """Of each name and what holds for it: 1 for that value of the last label, 0 for the others."""
    return [([name, each], int(each == held)) for name, held in holds for each in series.labels[-1].values]


def known(samples: Iterable[tuple[Sequence[str], float]]) -> list[Sample]:
    """The samples without those below 0: what cannot be had there."""
    return [each for each in samples if each[1] >= 0]


def histogram(series: Series, registry: CollectorRegistry) -> Histogram:
    """A histogram that is counted as things happen."""
    return Histogram(series.name, series.help, series.label_names, buckets=series.buckets, registry=registry)
