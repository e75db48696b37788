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

from local_load.histogram import COARSE_S, Histogram
from local_load.measured import Measured
from local_load.scrapes import Scrapes

QUANTILES: Final = (0.5, 0.95, 0.99)
_LABELS: Final = ("profile", "call")


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
        response = HistogramMetricFamily(
            "cosched_local_response_seconds", "From the moment a call was due to its end.", labels=_LABELS
        )
        own = HistogramMetricFamily(
            "cosched_local_call_seconds", "From a call's real start to its end.", labels=_LABELS
        )
        summary = Metric(
            "cosched_local_response_quantile_seconds", "The same as response, percentiles since the start.", "summary"
        )
        for name, calls in sorted(self._measured.calls.items()):
            labels = {"profile": profile, "call": name}
            for family, histogram in ((response, calls.response), (own, calls.own)):
                family.add_metric((profile, name), buckets(histogram), histogram.sum_ns / 1e9)
            for share in QUANTILES:
                value = calls.response.quantile_s(share)
                summary.add_sample(summary.name, labels | {"quantile": str(share)}, value)
            summary.add_sample(f"{summary.name}_count", labels, calls.response.count)
            summary.add_sample(f"{summary.name}_sum", labels, calls.response.sum_ns / 1e9)
        yield from (response, own, summary)

    def _use(self) -> Iterator[Metric]:
        measured = self._measured
        gauges = {
            "present": ("Whether he is there.", measured.present),
            "memory_bytes": ("Memory that his processes hold.", measured.memory_bytes),
            "target_cpu_ratio": ("CPU that he is to use, in CPUs.", measured.profile.cpu_share),
            "target_memory_bytes": ("Memory that he is to hold.", measured.room.target_bytes),
            "target_network_bytes_per_second": ("Traffic that he is to make.", measured.profile.network_bytes_per_s),
        }
        counters = {
            "present_seconds": ("Time that he was there.", measured.present_s),
            "cpu_seconds": ("CPU that he used.", measured.cpu_s),
            "network_bytes": ("Bytes on the wire, both ways, headers included.", measured.wire_bytes),
            "lost_keys": ("Keys whose echo did not come.", measured.lost_keys),
            "probe_cpu_seconds": ("CPU that the latency probe used.", measured.probe_cpu_s),
            "probe_lost_samples": ("Samples that nobody fetched in time.", measured.unsent),
        }
        for name, (words, value) in gauges.items():
            gauge = GaugeMetricFamily(f"cosched_local_{name}", words, labels=["profile"])
            gauge.add_metric([measured.profile.name], float(value))
            yield gauge
        for name, (words, value) in counters.items():
            counter = CounterMetricFamily(f"cosched_local_{name}", words, labels=["profile"])
            counter.add_metric([measured.profile.name], float(value))
            yield counter


def buckets(histogram: Histogram) -> list[tuple[str, float]]:
    """Cumulative counts by upper bound, as the exposition has them."""
    bounds = [*(f"{bound:g}" for bound in COARSE_S), "+Inf"]
    return list(zip(bounds, map(float, accumulate(histogram.coarse)), strict=True))
