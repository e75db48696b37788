"""The series of the HTTP API: how many requests were answered how, and how long that took."""

from collections import Counter
from collections.abc import Iterable

from aiohttp import web
from prometheus_client import CollectorRegistry

from cosched.monitoring import series
from space_scheduler.service.access.callers import AGENTS
from space_scheduler.service.metrics.families import Values, histogram

#: Every address that is no route's: what strangers ask for makes no series.
_ELSEWHERE = "other"
#: Lasts for as long as its reader stays, which is no duration of an answer.
_STREAM = "text/event-stream"


class HttpSeries:
    """Counts the answers of a web application."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._answers: Counter[tuple[str, str, str]] = Counter()
        self._duration = histogram(series.HTTP_DURATION, registry)

    def expect(self, routes: Iterable[tuple[str, str, int]]) -> None:
        """Have the series of these routes from the start: method, address, and the status where all is well.

        Also those of a fault of ours.
        """
        for method, route, well in (*routes, ("other", _ELSEWHERE, 404)):
            self._answers.update({(route, method, str(status)): 0 for status in (well, 500)})
            self._duration.labels(route)

    def count(self, request: web.Request, answered: web.StreamResponse, took_s: float) -> None:
        """Count an answer."""
        resource = request.match_info.route.resource
        route = resource.canonical if resource is not None else _ELSEWHERE
        if route != AGENTS:
            method = request.method if request.method in series.HTTP_METHODS else "other"
            self._answers[route, method, str(answered.status)] += 1
            if answered.content_type != _STREAM:
                self._duration.labels(route).observe(took_s)

    def collect(self) -> Values:
        """The counts."""
        return {series.HTTP_REQUESTS: self._answers.items()}
