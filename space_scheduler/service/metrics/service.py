"""The series of the service itself: whether jobs are accepted, what it was sent in vain, which version it is."""

from collections import Counter
from collections.abc import Callable

from prometheus_client import CollectorRegistry

import cosched
from cosched.monitoring import series
from space_scheduler.service.journal.records import View
from space_scheduler.service.metrics.families import Values, histogram


class ServiceSeries:
    """Counts what the service does. What is to be called is asked at each scrape."""

    def __init__(self, registry: CollectorRegistry, messages_refused: Counter[str]) -> None:
        """``messages_refused`` counts by kind, as the link does."""
        self._messages_refused = messages_refused
        self.slow_readers: Callable[[], int] = lambda: 0
        self.refused: Callable[[], int] = lambda: 0
        self.record_differences: Callable[[], int] = lambda: 0
        self.commit = histogram(series.JOURNAL_COMMIT, registry)
        self.passes = histogram(series.PASS_DURATION, registry)

    def collect(self, view: View) -> Values:
        """What is read at the moment of asking."""
        return {
            series.ACCEPTING: int(view.accepting),
            series.POLICY_FAILING: int(view.accepting and bool(view.problem)),
            series.PROCS: view.procs_total,
            series.PROCS_FREE: max(0, view.free_procs),
            series.PASSES: view.passes,
            series.RECORD_DIFFERENCES: self.record_differences(),
            series.MESSAGES_REFUSED: (([kind], self._messages_refused[kind]) for kind in series.REFUSED_KINDS),
            series.CONNECTIONS_REFUSED: self.refused(),
            series.SLOW_READERS: self.slow_readers(),
            series.BUILD_INFO: [([cosched.__version__], 1)],
        }
