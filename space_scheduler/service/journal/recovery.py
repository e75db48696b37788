"""From the journal to the state: recorded events and recorded decisions, applied again. No policy is asked.

That is what lets a scheduler come back with another policy, with a broken one, or as newer software, and still know
exactly what it had said: who was started, and where (design, section 4).
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from cosched.errors import Failed, NeedsRepair
from cosched.model.allocation import Allocation
from cosched.model.job import JobState
from space_scheduler.eligibility.rule import Rule
from space_scheduler.lookahead import Progress
from space_scheduler.machine.events import Event, RulesChanged, TimerDue
from space_scheduler.machine.instructions import Instruction, SetTimer
from space_scheduler.machine.nodes import NodeStatus
from space_scheduler.machine.rules import BadPlan, MachineRules
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.machine.state import SchedulerState
from space_scheduler.machine.turns import SavedTurns
from space_scheduler.policy.interface import Plan, Policy, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.service.journal.journal import Journal
from space_scheduler.service.journal.reading import Entry, Run, Saved
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.journal.schema import JournalRefused


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What a journal had, for the service to compare with what the agents report.

    ``events`` were applied after the snapshot at ``snapshot_seq`` (0: from the beginning); ``epoch`` is this start's.
    ``jobs`` are those alive, by number: those that are starting, running or ending have their attempt and allocation.
    ``nodes`` are as they were; ``progress`` is how far jobs are by the core, where it keeps their rates; ``turns``
    are who takes turns, and what that was decided by; ``resizing`` is what jobs are to hold that were being resized,
    ``asked`` how many processes more each job was given of what it asked for, and whether it waits for an answer.
    ``last_job_id`` is the last number that was given to a job.
    """

    epoch: int
    events: int
    snapshot_seq: int
    jobs: Mapping[int, JobRecord]
    nodes: tuple[NodeStatus, ...]
    progress: dict[int, Progress]
    turns: SavedTurns
    ended: dict[JobState, int]
    resizing: dict[int, Allocation]
    asked: dict[int, tuple[int, bool]]
    last_job_id: int

    def __str__(self) -> str:
        states = [record.state for record in self.jobs.values()]
        counts = ", ".join(f"{states.count(state)} {state}" for state in JobState if state in states) or "none"
        return (
            f"epoch {self.epoch}: {self.events} events after the snapshot at {self.snapshot_seq}; jobs alive: {counts}"
        )


class _NoPolicy:
    """Decides nothing. Keeps whatever memory was recorded as it is, and the queue in the order of arrival."""

    order: Order = staticmethod(fcfs)
    memory_type: Any = Any
    shares: ClassVar = True

    def plan(self, snapshot: Snapshot) -> Plan:
        """Nobody asks."""
        raise AssertionError("a recovery asks no policy")


class Recorded:
    """The state that the journal tells of: recorded events and decisions under the rules of their time, no policy."""

    def __init__(self, path: Path, saved: Saved | None, runs: Sequence[Run]) -> None:
        """Begin at a snapshot (None: at the first event). ``runs`` are all starts of the service, oldest first."""
        self.path = path
        self.events = 0
        self.snapshot_seq = saved.seq if saved else 0
        self.timer_us = saved.state.timer_us if saved else None
        self._coming = list(runs)
        #: Under which rules the last event was taken in; None: there was none.
        self._lived = self._rules_at(self.snapshot_seq) if saved else None
        rules = self._rules_at(self.snapshot_seq + 1) or self._lived or MachineRules()
        policy = _NoPolicy()
        self._state = (
            SchedulerState.restore(policy, rules, saved.state, ()) if saved else SchedulerState(policy, rules, ())
        )

    def apply(self, entry: Entry) -> None:
        """Apply the next event. Raises :class:`JournalRefused` where it does not fit."""
        rules = self._rules_at(entry.seq)
        if rules is not None and rules != self._state.rules:
            self._state = self._under(_NoPolicy(), rules)
        state = self._state
        try:
            instructions = state.replay(entry.event, entry.now_us, entry.decision)
        except (BadPlan, ValueError, KeyError, RuntimeError) as error:
            raise JournalRefused(
                f"journal {self.path}: event {entry.seq} does not follow from those before it: {error}"
            ) from error
        self._lived = state.rules
        self.timer_us = timer_after(self.timer_us, entry.event, instructions)
        self.events += 1

    def snapshot(self, rules: MachineRules | None = None) -> SavedState:
        """What is recorded, under these rules; None: under those of the last event."""
        return self._under(_NoPolicy(), rules or self._state.rules).snapshot()

    def rules_change(self, rules: MachineRules) -> bool:
        """Whether these are other rules than those under which the last event was taken in."""
        return self._lived is not None and self._lived != rules

    def state(self, policy: Policy, rules: MachineRules, eligibility: Sequence[Rule] = ()) -> SchedulerState:
        """A state of its own that a policy goes on with, and rules of eligibility.

        Raises ``Failed`` where the policy cannot order the queue.
        """
        try:
            return self._under(policy, rules, eligibility)
        except Failed:
            raise
        except Exception as error:
            raise NeedsRepair(f"the policy cannot order the queue: {type(error).__name__}: {error}") from error

    def _under(self, policy: Policy, rules: MachineRules, eligibility: Sequence[Rule] = ()) -> SchedulerState:
        """The machine as it is, under rules that may be others: what was promised under the old ones holds no more."""
        state = SchedulerState.restore(policy, rules, self._state.snapshot(), eligibility)
        if self.rules_change(rules):
            state.rules_changed()
        return state

    def _rules_at(self, seq: int) -> MachineRules | None:
        rules = None
        while self._coming and self._coming[0].first_seq <= seq:
            rules = self._coming.pop(0).rules
        return rules


def rebuild(journal: Journal) -> Recorded:
    """What the journal tells of, from its last snapshot on. Raises :class:`JournalRefused`."""
    saved = journal.snapshot()
    found = Recorded(journal.path, saved, journal.runs)
    for entry in journal.entries(saved):
        found.apply(entry)
    return found


def timer_after(timer_us: int | None, event: Event, instructions: Iterable[Instruction]) -> int | None:
    """What the timer is set to after an event and its instructions; it was set to ``timer_us``."""
    set_us = [each.at_us for each in instructions if isinstance(each, SetTimer)]
    if set_us:
        return set_us[-1]
    return None if isinstance(event, TimerDue | RulesChanged) else timer_us


def differing(state: SchedulerState, records: Mapping[int, JobRecord]) -> str:
    """How the core's live jobs differ from the journal's list of jobs; empty when they agree.

    Both were written in the same transactions, so a difference means damage, or software that reads events otherwise.
    """
    for job_id in sorted(state.records.keys() ^ records.keys()):
        return f"job {job_id} is alive by {'its events' if job_id in state.records else 'its list of jobs'} only"
    for job_id, record in state.records.items():
        listed = records[job_id]
        if (record.job, record.state, record.holding.held) != (listed.job, listed.state, listed.allocation):
            return f"job {job_id} is {record.state} by its events, and {listed.state} by its list of jobs"
    return ""
