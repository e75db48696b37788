"""What the service does with an event that is in the journal."""

from io import StringIO
from types import SimpleNamespace
from typing import Any

from cosched.config.cluster import ClusterConfig
from space_scheduler.machine import events as ev
from space_scheduler.service.app import Service
from space_scheduler.service.journal.records import Committed, View
from space_scheduler.service.launch.values import AnyInput
from space_scheduler.service.log import Log


class Failing:
    """Fails for every event."""

    def committed(self, committed: Committed) -> None:
        raise ZeroDivisionError("no such series")


def test_failing_metrics_keep_no_event_from_launches() -> None:
    stream, fed = StringIO(), list[AnyInput]()
    service: Any = Service(ClusterConfig(name="c", nodes=["a"]), Log(stream))
    service.host = SimpleNamespace(clock=SimpleNamespace(when=None), view=View)
    service.metrics = service.jobs = service.streams = Failing()
    service.shell = SimpleNamespace(feed=fed.append)
    service._committed(Committed(1, 0, ev.JobEnded(1)))
    assert [each.event for each in fed] == [ev.JobEnded(1)]  # type: ignore[union-attr]
    assert "no such series" in stream.getvalue()
