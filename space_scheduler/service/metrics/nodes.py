"""The series of nodes: whether they are there, what they have, what is used; of desks in :mod:`~.desks`."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from cosched.config.cluster import ClusterConfig
from cosched.model.allocation import Allocation
from cosched.monitoring import series
from cosched.monitoring.series import Series
from cosched.wire.messages import Heartbeat
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.metrics import desks
from space_scheduler.service.metrics.families import Sample, Values, known, one_of


class NodeSeries:
    """Reads the book of nodes, and counts nothing itself."""

    def __init__(self, book: NodeBook, set_aside: Counter[str], config: ClusterConfig) -> None:
        """``set_aside`` counts by cause, as ``Suspects`` does."""
        self._book = book
        self._set_aside = set_aside
        self._own = config.name
        self._by_name = config.monitoring.aggregate == "node"

    def collect(self, held: Sequence[Allocation]) -> Values:
        """What is read at the moment of asking; ``held`` is what jobs hold."""
        tasks: Counter[str] = Counter()  # of jobs, that hold each node
        for allocation in held:
            tasks.update({share.node: share.tasks for share in allocation.nodes})
        entries = self._book.members(tasks)
        states = [(entry.name, entry.state(busy=entry.name in tasks)) for entry in entries]
        counted = Counter(state for _, state in states)
        differences = sum((entry.differences for entry in self._book), Counter[str]())
        sizes = [([each.name], each.size) for each in entries]
        hellos = [([each.name], each.version, each.hello) for each in entries if each.hello is not None]
        # what an agent said that has gone holds no more
        beats = [(each.name, each.beat) for each in entries if each.connected and each.beat is not None]
        found: dict[Series, float | Iterable[Sample]] = {
            series.NODES: (([state], counted[state]) for state in series.NODE_STATES),
            series.NODES_SET_ASIDE: (([cause], self._set_aside[cause]) for cause in series.SET_ASIDE_CAUSES),
            series.NODE_DIFFERENCES: (([kind], differences[kind]) for kind in series.DIFFERENCE_KINDS),
            series.AGENTS_CONNECTED: sum(entry.connected for entry in entries),
            series.NODE_STATE: one_of(series.NODE_STATE, states),
            series.NODE_TASKS: (([each.name], tasks[each.name]) for each in entries),
            series.NODE_TASKS_LIMIT: ((name, size.procs if size is not None else 0) for name, size in sizes),
            series.NODE_LAST_HEARD: (
                ([each.name], each.heard_at.timestamp() if each.heard_at else 0) for each in entries
            ),
            series.NODE_CLUSTER: (([each.name, each.cluster], 1) for each in entries if each.cluster),
            series.NODE_LINK_VERSION: ((name, version) for name, version, _ in hellos),
            series.NODE_CPUS: ((name, hello.procs) for name, _, hello in hellos),
            series.NODE_MEMORY: ((name, hello.memory_bytes) for name, _, hello in hellos),
            series.NODE_WAKE_CALLS: (([each.name], each.called) for each in entries),
            series.NODE_STALLED_JOBS: (([each.name], len(each.stalls)) for each in entries),
            series.NODE_HELD_PROCS: ((name, size.held_procs if size is not None else 0) for name, size in sizes),
            **{each: [([name], said(beat)) for name, beat in beats] for each, said in _OF_A_BEAT},
            **desks.by_cluster(entries, self._own),
        }
        if self._by_name:
            used = [(name, side, beat.usage) for name, beat in beats for side in series.SIDES]
            found |= {
                series.NODE_CPUS_USED: known(([name, side], getattr(each, f"cpu_{side}")) for name, side, each in used),
                series.NODE_MEMORY_USED: known(
                    ([name, side], getattr(each, f"memory_{side}_bytes")) for name, side, each in used
                ),
                **desks.by_desk(entries),
            }
        return found


_OF_A_BEAT: Final[tuple[tuple[Series, Callable[[Heartbeat], float]], ...]] = (
    (series.NODE_GUARD_UP, lambda beat: int(not beat.guard)),
    (series.NODE_WITHOUT_GUARD, lambda beat: int(bool(beat.guard))),
    (series.NODE_PRESENCE_BLIND, lambda beat: len(beat.blind)),
    (series.NODE_RAISES, lambda beat: beat.raises),
)
