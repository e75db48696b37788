"""All series together, as the text that Prometheus reads."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Final

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, disable_created_metrics, generate_latest
from prometheus_client.registry import Collector

from cosched.config.cluster import ClusterConfig
from cosched.monitoring import series
from space_scheduler.service.access.certificates import Certificates
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.journal.records import Committed
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.link.link import Link
from space_scheduler.service.metrics.certificates import expiry
from space_scheduler.service.metrics.decisions import DecisionSeries
from space_scheduler.service.metrics.disk import DiskSeries
from space_scheduler.service.metrics.families import Family, families
from space_scheduler.service.metrics.http import HttpSeries
from space_scheduler.service.metrics.jobs import JobSeries
from space_scheduler.service.metrics.nodes import NodeSeries
from space_scheduler.service.metrics.service import ServiceSeries

#: Making the text holds up whoever waits for an answer, so several who scrape share it.
FRESH_S: Final = 0.5
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each histogram, which nobody asks for


class Metrics(Collector):
    """A registry of its own, so that several services may live in one process."""

    def __init__(
        self,
        core: CoreHost,
        now_us: Callable[[], int],
        config: ClusterConfig,
        book: NodeBook,
        link: Link,
        set_aside: Counter[str],
        journal: Path,
        certificates: Certificates,
    ) -> None:
        """``now_us`` is the core's clock; ``set_aside`` counts by cause; ``journal`` is a file's path."""
        self._core = core
        self._now_us = now_us
        self._registry = CollectorRegistry()
        self._made: dict[bool, tuple[bytes, float]] = {}  # with owners' use or without, and when
        self.jobs = JobSeries(self._registry)
        self._nodes = NodeSeries(book, set_aside, config)
        self._decisions = DecisionSeries()
        self.service = ServiceSeries(self._registry, link.refused)
        self.http = HttpSeries(self._registry)
        self.disk = DiskSeries(journal)
        self._certificates = certificates
        ProcessCollector(registry=self._registry)
        self._registry.register(self)

    def committed(self, committed: Committed) -> None:
        """Count an event and what followed from it."""
        self._decisions.committed(committed)
        self.jobs.committed(committed)

    def exposition(self, *, owners: bool) -> bytes:
        """The text that Prometheus reads. Who asks again within :data:`FRESH_S` gets the same text.

        ``owners``: with what local users and the system use of each node, which is for operators.
        """
        now_s = monotonic()
        text, made_s = self._made.get(owners, (b"", 0.0))
        if not text or now_s - made_s >= FRESH_S:
            text = generate_latest(self._registry if owners else _Public(self._registry))
            self._made[owners] = text, now_s
        return text

    def collect(self) -> Iterator[Family]:
        """What is read at the moment of asking."""
        view = self._core.view()
        held = [record.allocation for record in view.jobs.values() if record.allocation is not None]
        return families(
            {
                **self.jobs.collect(view, held, self._now_us()),
                **self._nodes.collect(held),
                **self._decisions.collect(),
                **self.service.collect(view),
                **self.http.collect(),
                **self.disk.found,
                **expiry(self._certificates),
            }
        )


class _Public(Collector):
    """A registry without the samples that are for operators."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for each in self._registry.collect():
            each.samples = [one for one in each.samples if one.labels.get("side") not in series.PRIVATE_SIDES]
            yield each
