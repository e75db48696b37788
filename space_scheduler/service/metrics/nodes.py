"""The series of nodes: whether they are there, what they have, what is used; of desks in :mod:`~.desks`."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from cosched.config.cluster import ClusterConfig
from cosched.model.allocation import Allocation
from cosched.model.node import Usage
from cosched.monitoring import series
from cosched.monitoring.series import Series
from cosched.wire.messages import Heartbeat
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.metrics import desks
from space_scheduler.service.metrics.families import Family, add_known, add_one_of, family


class NodeSeries:
    """Reads the book of nodes, and counts nothing itself."""

    def __init__(self, book: NodeBook, set_aside: Counter[str], config: ClusterConfig) -> None:
        """``set_aside`` counts by cause, as ``Suspects`` does."""
        self._book = book
        self._set_aside = set_aside
        self._own = config.name
        self._by_name = config.monitoring.aggregate == "node"

    def collect(self, held: Sequence[Allocation]) -> Iterator[Family]:
        """What is read at the moment of asking; ``held`` is what jobs hold."""
        tasks = _tasks(held)
        members = [(entry, entry.state(busy=entry.name in tasks)) for entry in self._book.members(tasks)]
        yield from self._counted(members)
        yield from self._places(members, tasks)
        entries = [entry for entry, _ in members]
        yield from _signs([(each.name, each.beat) for each in entries if each.connected and each.beat is not None])
        yield from desks.by_cluster(entries, self._own)
        if self._by_name:
            yield from _used([(each.name, each.beat) for each in entries if each.connected and each.beat is not None])
            yield from desks.by_desk(entries)

    def _counted(self, members: Sequence[tuple[NodeEntry, str]]) -> Iterator[Family]:
        states = Counter(state for _, state in members)
        nodes, aside = family(series.NODES), family(series.NODES_SET_ASIDE)
        for state in series.NODE_STATES:
            nodes.add_metric([state], states[state])
        for cause in series.SET_ASIDE_CAUSES:
            aside.add_metric([cause], self._set_aside[cause])
        differences = family(series.NODE_DIFFERENCES)
        for kind in series.DIFFERENCE_KINDS:
            differences.add_metric([kind], sum(entry.differences[kind] for entry in self._book))
        yield from (nodes, aside, differences)
        yield family(series.AGENTS_CONNECTED, sum(entry.connected for entry, _ in members))

    @staticmethod
    def _places(members: Sequence[tuple[NodeEntry, str]], tasks: Counter[str]) -> Iterator[Family]:
        """Of every node, whether it was ever heard or not."""
        states = family(series.NODE_STATE)
        running, limit = family(series.NODE_TASKS), family(series.NODE_TASKS_LIMIT)
        heard, belongs = family(series.NODE_LAST_HEARD), family(series.NODE_CLUSTER)
        speaks, cpus, memory, calls = (
            family(each)
            for each in (series.NODE_LINK_VERSION, series.NODE_CPUS, series.NODE_MEMORY, series.NODE_WAKE_CALLS)
        )
        stalled, held = family(series.NODE_STALLED_JOBS), family(series.NODE_HELD_PROCS)
        for entry, state in members:
            name = [entry.name]
            add_one_of(states, series.NODE_STATE, name, state)
            running.add_metric(name, tasks[entry.name])
            limit.add_metric(name, entry.size.procs if entry.size is not None else 0)
            calls.add_metric(name, entry.called)
            stalled.add_metric(name, len(entry.stalls))
            held.add_metric(name, entry.size.held_procs if entry.size is not None else 0)
            heard.add_metric(name, entry.heard_at.timestamp() if entry.heard_at else 0)
            if entry.cluster:
                belongs.add_metric([entry.name, entry.cluster], 1)
            if entry.hello is not None:
                speaks.add_metric(name, entry.version)
                cpus.add_metric(name, entry.hello.procs)
                memory.add_metric(name, entry.hello.memory_bytes)
        yield from (states, running, limit, heard, belongs, speaks, cpus, memory, calls, stalled, held)


def _used(beats: Sequence[tuple[str, Heartbeat]]) -> Iterator[Family]:
    """By side: what its owner uses tells of the owner, too."""
    cpus, memory = family(series.NODE_CPUS_USED), family(series.NODE_MEMORY_USED)
    for name, beat in beats:
        for side in series.SIDES:
            add_known(cpus, [name, side], _cpus(beat.usage, side))
            add_known(memory, [name, side], _memory_bytes(beat.usage, side))
    yield from (cpus, memory)


def _signs(beats: Sequence[tuple[str, Heartbeat]]) -> Iterator[Family]:
    """What agents that are here said with their last heartbeats: what an agent said that has gone holds no more."""
    for each, read in _OF_A_BEAT:
        filled = family(each)
        for name, beat in beats:
            filled.add_metric([name], read(beat))
        yield filled


_OF_A_BEAT: Final[tuple[tuple[Series, Callable[[Heartbeat], float]], ...]] = (
    (series.NODE_GUARD_UP, lambda beat: int(not beat.guard)),
    (series.NODE_WITHOUT_GUARD, lambda beat: int(bool(beat.guard))),
    (series.NODE_PRESENCE_BLIND, lambda beat: len(beat.blind)),
    (series.NODE_RAISES, lambda beat: beat.raises),
)


def _tasks(held: Sequence[Allocation]) -> Counter[str]:
    """How many tasks of jobs hold each node."""
    found: Counter[str] = Counter()
    for allocation in held:
        for share in allocation.nodes:
            found[share.node] += share.tasks
    return found


def _cpus(usage: Usage, side: str) -> float:
    return float(getattr(usage, f"cpu_{side}"))


def _memory_bytes(usage: Usage, side: str) -> float:
    return float(getattr(usage, f"memory_{side}_bytes"))
