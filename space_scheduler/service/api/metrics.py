"""What Prometheus may know (``/metrics``): read from the published view and from counts, never from the core.

Base units, the prefix ``cosched_``, and labels with few values: states, kinds, reasons, nodes of the allow-list.
"""

from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from time import monotonic
from typing import Any, Final, Protocol, TypeVar

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

import cosched
from cosched.model.job import TERMINAL, Job, JobState
from cosched.model.node import Presence, Usage
from cosched.model.time import US_PER_S
from cosched.wire.api import Submission
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Kill, Resize, SetTimer, SharePlan, Start, Tell
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.core.journalled import Most
from space_scheduler.service.journal.records import Committed, Facts, View
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.link.link import Link

#: Making the text holds up whoever waits for an answer, so several who scrape share it.
FRESH_S: Final = 0.5
CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
Accepted = TypeVar("Accepted")
_NODE_STATES: Final = ("up", "draining", "drained", "lost", "unknown")
_SIDES: Final = ("parallel", "local", "system")
_WAIT_BUCKETS_S: Final = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 24 * 3600, 72 * 3600)
_COMMIT_BUCKETS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 5)


class Viewed(Protocol):
    """What is needed of the host of the core."""

    def view(self) -> View:
        """The last published state."""


class Metrics(Collector):
    """A registry of its own, so that several services may live in one process."""

    def __init__(self, core: Viewed, book: NodeBook, link: Link, set_aside: Counter[str]) -> None:
        """``set_aside`` counts by cause, as ``Suspects`` does."""
        self._core = core
        self._set_aside = set_aside
        self.slow_readers: Callable[[], int] = lambda: 0
        self.refused: Callable[[], int] = lambda: 0
        self._book = book
        self._link = link
        self._events: Counter[str] = Counter()
        self._instructions: Counter[tuple[str, str]] = Counter()
        self._registry = CollectorRegistry()
        self._text, self._made_s = b"", 0.0
        self._wait = Histogram(
            "cosched_queue_wait_seconds",
            "From a job's submission to the decision to start it.",
            buckets=_WAIT_BUCKETS_S,
            registry=self._registry,
        )
        self._commit = Histogram(
            "cosched_journal_commit_seconds",
            "From an event's arrival to its being in the journal.",
            buckets=_COMMIT_BUCKETS_S,
            registry=self._registry,
        )
        self._registry.register(self)

    def committed(self, committed: Committed) -> None:
        """Count an event and what followed from it."""
        self._events[type(committed.event).__name__] += 1
        for instruction in committed.instructions:
            if isinstance(instruction, Start | Resize | Kill | SetTimer | Tell | SharePlan):
                self._instructions[type(instruction).__name__, instruction.reason.why.name.lower()] += 1
            if isinstance(instruction, Start):
                self._wait.observe(max(0, committed.now_us - instruction.job.submit_us) / US_PER_S)

    def journalled(self, seconds: float) -> None:
        """An event took so long to get into the journal."""
        self._commit.observe(seconds)

    def exposition(self) -> bytes:
        """The text that Prometheus reads. Who asks again within :data:`FRESH_S` gets the same text."""
        now_s = monotonic()
        if not self._text or now_s - self._made_s >= FRESH_S:
            self._text, self._made_s = generate_latest(self._registry), now_s
        return self._text

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        """What is read at the moment of asking."""
        yield from self._of_jobs()
        yield from self._of_nodes()
        view = self._core.view()
        yield GaugeMetricFamily("cosched_accepting", "Whether jobs are accepted.", value=int(view.accepting))
        yield GaugeMetricFamily("cosched_procs", "Processors in service.", value=view.procs_total)
        yield GaugeMetricFamily("cosched_procs_free", "Processors that no job holds.", value=max(0, view.free_procs))
        yield CounterMetricFamily("cosched_passes", "Scheduling passes.", value=view.passes)
        events = CounterMetricFamily("cosched_events", "Events in the journal since the start.", labels=["kind"])
        for kind, count in self._events.items():
            events.add_metric([kind], count)
        yield events
        done = CounterMetricFamily("cosched_instructions", "Decisions by their reason.", labels=["kind", "reason"])
        for labels, count in self._instructions.items():
            done.add_metric(labels, count)
        yield done
        refused = CounterMetricFamily("cosched_messages_refused", "What agents sent in vain.", labels=["kind"])
        for kind, count in self._link.refused.items():
            refused.add_metric([kind], count)
        yield refused
        aside = CounterMetricFamily("cosched_nodes_set_aside", "Nodes that the scheduler drained.", labels=["cause"])
        for cause in ("launches", "losses"):
            aside.add_metric([cause], self._set_aside[cause])
        yield aside
        yield CounterMetricFamily(
            "cosched_connections_refused", "Connections for which there was no place.", value=self.refused()
        )
        yield CounterMetricFamily("cosched_slow_readers", "Connections cut off unread.", value=self.slow_readers())
        build = GaugeMetricFamily("cosched_build_info", "The service's version.", labels=["version"])
        build.add_metric([cosched.__version__], 1)
        yield build

    def _of_jobs(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        view = self._core.view()
        jobs = GaugeMetricFamily("cosched_jobs", "Jobs alive.", labels=["state"])
        ended = CounterMetricFamily("cosched_jobs_ended", "Jobs that have ended.", labels=["state"])
        for state in JobState:
            if state in TERMINAL:
                ended.add_metric([state.value], view.ended.get(state, 0))
            else:
                jobs.add_metric([state.value], view.alive.get(state, 0))
        yield jobs
        yield ended
        held = [record.allocation for record in view.jobs.values() if record.allocation is not None]
        processes, procs = sum(each.processes for each in held), sum(each.procs for each in held)
        yield GaugeMetricFamily("cosched_job_processes", "Processes of jobs that hold nodes.", value=processes)
        yield GaugeMetricFamily("cosched_job_procs", "Processors that they have.", value=procs)

    def _of_nodes(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        view = self._core.view()
        states: Counter[str] = Counter()
        connected = 0
        cpus = GaugeMetricFamily("cosched_node_cpus_used", "CPUs in use, by side.", labels=["node", "side"])
        memory = GaugeMetricFamily("cosched_node_memory_used_bytes", "Memory in use.", labels=["node", "side"])
        there = GaugeMetricFamily("cosched_node_presence", "1 for what holds.", labels=["node", "presence"])
        blind = GaugeMetricFamily("cosched_node_presence_blind", "Sources of presence that fail.", labels=["node"])
        unguarded = GaugeMetricFamily(
            "cosched_node_without_guard", "1 where the guard does not answer.", labels=["node"]
        )
        raises = CounterMetricFamily(
            "cosched_node_raises", "How often jobs went first there, since its agent started.", labels=["node"]
        )
        limited = GaugeMetricFamily("cosched_node_limited_cpus", "The ceiling for parallel work.", labels=["node"])
        speaks = GaugeMetricFamily("cosched_node_link_version", "Of the messages that it speaks.", labels=["node"])
        belongs = GaugeMetricFamily(
            "cosched_node_cluster",
            "1 for its cluster, where it is another than the scheduler's own.",
            labels=["node", "cluster"],
        )
        used = view.used()
        for entry in self._book.members(used):
            states[entry.state(busy=used.get(entry.name, 0) > 0)] += 1
            connected += entry.connected
            if entry.version:
                speaks.add_metric([entry.name], entry.version)
            if entry.cluster:
                belongs.add_metric([entry.name, entry.cluster], 1)
            if (beat := entry.beat) is None:
                continue
            for side in _SIDES:
                _add(cpus, [entry.name, side], _cpus(beat.usage, side))
                _add(memory, [entry.name, side], _memory_bytes(beat.usage, side))
            for presence in Presence:
                there.add_metric([entry.name, presence.value], int(beat.presence is presence))
            blind.add_metric([entry.name], len(beat.blind))
            unguarded.add_metric([entry.name], int(bool(beat.guard)))
            raises.add_metric([entry.name], beat.raises)
            if beat.limited_cpus is not None:
                limited.add_metric([entry.name], beat.limited_cpus)
        nodes = GaugeMetricFamily("cosched_nodes", "Nodes of the allow-list.", labels=["state"])
        for state in _NODE_STATES:
            nodes.add_metric([state], states[state])
        yield nodes
        yield GaugeMetricFamily("cosched_agents_connected", "Agents that are connected.", value=connected)
        yield from (cpus, memory, there, blind, unguarded, raises, limited, speaks, belongs)


def _add(family: GaugeMetricFamily, labels: list[str], value: float) -> None:
    if value >= 0:  # -1: it cannot be had there
        family.add_metric(labels, value)


def _cpus(usage: Usage, side: str) -> float:
    return float(getattr(usage, f"cpu_{side}"))


def _memory_bytes(usage: Usage, side: str) -> float:
    return float(getattr(usage, f"memory_{side}_bytes"))


class Timed:
    """The host, with the time that every event takes to get into the journal. ``metrics`` has to be set first."""

    metrics: Metrics

    def __init__(self, host: CoreHost) -> None:
        self._host = host

    async def submit(
        self, job: Job, submission: Submission, user: str, *, hold: bool = False, most: Most | None = None
    ) -> int:
        """Accept a job (``CoreHost.submit``)."""
        return await self._timed(self._host.submit(job, submission, user, hold=hold, most=most))

    async def post(self, event: ev.Event, *, note: str = "", facts: Facts | None = None) -> Committed:
        """Accept an event (``CoreHost.post``)."""
        return await self._timed(self._host.post(event, note=note, facts=facts))

    async def report(self, event: ev.Event, *, note: str = "", facts: Facts | None = None) -> Committed:
        """Accept what the rules have found (``CoreHost.report``)."""
        return await self._timed(self._host.report(event, note=note, facts=facts))

    async def _timed(self, accepted: Coroutine[Any, Any, Accepted]) -> Accepted:
        began_s = monotonic()
        answer = await accepted
        self.metrics.journalled(monotonic() - began_s)
        return answer

    async def annotate(self, job_id: int, facts: Facts) -> None:
        """Journal facts of a job."""
        await self._host.annotate(job_id, facts)

    def view(self) -> View:
        """The last published state."""
        return self._host.view()
