"""Who takes turns with whom: which jobs run in slots of time, in step on all of their nodes (``coscheduling.rows``).

Turns are for jobs whose tasks have to run at the same moment and that nothing else helps: those of the mode ``gang``,
and those of ``ccs`` on several nodes whose processes keep the CPU while they wait for messages. What nodes see of that,
and which of them keep time well enough, comes as events; who shares a node follows from what jobs hold.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from cosched.model.coscheduling import Mode, Receives, rows
from space_scheduler.machine.events import AnyEvent, Event
from space_scheduler.machine.instructions import SharePlan, Turn
from space_scheduler.machine.jobs import JobBook
from space_scheduler.machine.named_capacity import NamedCapacity
from space_scheduler.machine.record import Record
from space_scheduler.reasons import Reason, Why

#: Ways of receiving that nothing but turns helps where every job has a cgroup of its own.
NEEDS_TURNS: Final = frozenset({Receives.POLLS, Receives.YIELDS})


class SavedTurns(msgspec.Struct, frozen=True, omit_defaults=True):
    """All of it as plain values: how jobs receive, by number; the nodes that keep time; the turns in force."""

    receives: dict[int, tuple[Receives, ...]] = {}
    keeps_time: tuple[str, ...] = ()
    turns: tuple[Turn, ...] = ()


class Turns:
    """The turns of a machine of named nodes. ``mode`` is the cluster's, for jobs that have none of their own."""

    def __init__(self, mode: Mode) -> None:
        self.mode = mode
        self.receives: dict[int, tuple[Receives, ...]] = {}
        self.keeps_time: set[str] = set()
        self.turns: tuple[Turn, ...] = ()
        self._wanting: set[int] = set()  # jobs that need turns, at that version of the capacity
        self._looked_at = -1
        self._new_signs = True

    def saved(self) -> SavedTurns:
        """For a snapshot."""
        return SavedTurns(self.receives.copy(), tuple(sorted(self.keeps_time)), self.turns)

    def restore(self, saved: SavedTurns) -> None:
        """As it was; what rules of now would have otherwise, the next event brings."""
        self.receives, self.keeps_time, self.turns = dict(saved.receives), set(saved.keeps_time), saved.turns

    def seen(self, job_id: int, receives: Iterable[Receives]) -> None:
        """A job's processes wait for messages in these ways, on all of its nodes together."""
        self.receives[job_id] = tuple(sorted(set(receives)))
        self._looked_at = -1

    def clock(self, name: str, *, keeps_time: bool) -> None:
        """A node keeps time well enough for slots, or does not."""
        (self.keeps_time.add if keeps_time else self.keeps_time.discard)(name)
        self._new_signs = True

    def follow(self, jobs: JobBook, nodes: NamedCapacity, event: AnyEvent | Event) -> list[SharePlan]:
        """The new plan, where it is another than before.

        Costs nothing where nobody came, went or was seen, and little where nobody wants turns.
        """
        if nodes.version == self._looked_at and not self._new_signs:
            return []
        if nodes.version != self._looked_at:
            holding = {record.job.id: record for record in jobs.holding()}
            self.receives = {job_id: how for job_id, how in self.receives.items() if job_id in holding}
            self._wanting = {job_id for job_id, record in holding.items() if self._wants(record)}
        self._looked_at, self._new_signs = nodes.version, False
        found = self._rows(self._wanting, jobs.records, nodes) if self._wanting else {}
        turns = tuple(Turn(job_id, *found[job_id]) for job_id in sorted(found))
        if turns == self.turns:
            return []
        self.turns = turns
        why = Why.TAKE_TURNS if turns else Why.NO_TURNS
        return [SharePlan(turns, event, Reason(why, {"jobs": len(turns)}))]  # type: ignore[arg-type]

    def _wants(self, record: Record) -> bool:
        """Whether a job needs its tasks to run at the same time."""
        mode = record.job.coscheduling or self.mode
        if mode == Mode.GANG:
            return True
        how = self.receives.get(record.job.id)
        if mode != Mode.CCS or not how or len(record.allocation.nodes) < 2:
            return False
        return not NEEDS_TURNS.isdisjoint(how) and Receives.BLOCKS not in how

    def _rows(
        self, wanting: set[int], records: Mapping[int, Record], nodes: NamedCapacity
    ) -> dict[int, tuple[int, int]]:
        """The rows of all who meet somebody that wants turns, or somebody who meets such a job, and so on."""
        tasks: dict[int, dict[str, int]] = {}
        contended: set[str] = set()
        border = [*wanting]
        while border:
            job_id = border.pop()
            allocation = records[job_id].allocation
            if job_id in tasks:
                continue
            tasks[job_id] = {share.node: share.tasks for share in allocation.nodes}
            for name in tasks[job_id]:
                member = nodes[name]
                if member.used_procs > (member.node.cpus or member.node.procs):
                    contended.add(name)
                    border += member.residents
        return rows(tasks, contended, wanting, self.keeps_time)
