"""What Prometheus may know of a user: histograms and summaries of latencies, use against target; in base units.

Labels have few values: the profile and the call. Read from counts that are kept anyway; a scrape measures nothing.
"""

import threading
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from cosched.monitoring import local
from cosched.monitoring.series import Series
from local_load.histogram import Histogram
from local_load.measured import Measured
from local_load.scrapes import Scrapes

QUANTILES: Final = (0.5, 0.95, 0.99)


class Exporter(Collector):
    """Serves ``measured`` at ``/metrics`` until it is closed."""

    def __init__(self, measured: Measured, host: str, port: int) -> None:
        """Listen. Raises OSError."""
        self._measured = measured
        self.lock = threading.Lock()  # held while counts change
        registry = CollectorRegistry()
        registry.register(self)
        self._scrapes = Scrapes(lambda: generate_latest(registry), host, port)
        self.port: int = self._scrapes.port

    def close(self) -> None:
        """Stop serving."""
        self._scrapes.close()

    def describe(self) -> Iterator[Metric]:
        """Nothing: what there is shows when it is collected."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Everything, as it is now."""
        with self.lock:
            return iter([*self._latencies(), *self._use()])

    def _latencies(self) -> Iterator[Metric]:
        profile = self._measured.profile.name
        labels = local.RESPONSE.label_names
        response = HistogramMetricFamily(local.RESPONSE.name, local.RESPONSE.help, labels=labels)
        own = HistogramMetricFamily(local.CALL.name, local.CALL.help, labels=labels)
        summary = Metric(local.QUANTILE.name, local.QUANTILE.help, local.QUANTILE.kind)
        for name, calls in sorted(self._measured.calls.items()):
            for family, histogram in ((response, calls.response), (own, calls.own)):
                family.add_metric((profile, name), buckets(histogram), histogram.sum_ns / 1e9)
            of_call = dict(zip(labels, (profile, name), strict=True))
            for share in QUANTILES:
                value = calls.response.quantile_s(share)
                summary.add_sample(summary.name, of_call | {"quantile": str(share)}, value)
            summary.add_sample(f"{summary.name}_count", of_call, calls.response.count)
            summary.add_sample(f"{summary.name}_sum", of_call, calls.response.sum_ns / 1e9)
        yield from (response, own, summary)

    def _use(self) -> Iterator[Metric]:
        measured = self._measured
        values: dict[Series, float] = {
            local.PRESENT: measured.present,
            local.MEMORY: measured.memory_bytes,
            local.TARGET_CPU: measured.profile.cpu_share,
            local.TARGET_MEMORY: measured.room.target_bytes,
            local.TARGET_NETWORK: measured.profile.network_bytes_per_s,
            local.PRESENT_TIME: measured.present_s,
            local.CPU: measured.cpu_s,
            local.NETWORK: measured.wire_bytes,
            local.LOST_KEYS: measured.lost_keys,
            local.PROBE_CPU: measured.probe_cpu_s,
            local.PROBE_LOST: measured.unsent,
        }
        for each, value in values.items():
            family = (CounterMetricFamily if each.kind == "counter" else GaugeMetricFamily)(
                each.name, each.help, labels=each.label_names
            )
            family.add_metric([measured.profile.name], float(value))
            yield family


def buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound, as the exposition has them."""
    bounds = [*(f"{bound:g}" for bound in local.BOUNDS_S), "+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.coarse)), strict=True))
