"""From the journal to the state: recorded events and recorded decisions, applied again. No policy is asked.

That is what lets a scheduler come back with another policy, with a broken one, or as newer software, and still know
exactly what it had said: who was started, and where (design, section 4).
"""

from collections.abc import Iterable

import msgspec

from cosched.model.job import JobState
from space_scheduler.machine.cluster import NodeStatus
from space_scheduler.machine.events import Event, TimerDue
from space_scheduler.machine.instructions import Instruction, SetTimer
from space_scheduler.machine.state import BadPlan, MachineRules, SchedulerState
from space_scheduler.policy.interface import Policy
from space_scheduler.service.journal import Journal
from space_scheduler.service.reading import Entry
from space_scheduler.service.records import JobRecord, Launch
from space_scheduler.service.schema import JournalRefused


class Recovered(msgspec.Struct, frozen=True, kw_only=True):
    """What a journal had, for the service to compare with what the agents report.

    ``events`` were applied after the snapshot at ``snapshot_seq`` (0: from the beginning); ``epoch`` is this start's.
    ``jobs`` are those alive, by number: those that are starting, running or ending have their attempt and allocation.
    ``launches`` are the last known steps of their launches, by (job, attempt); ``nodes`` are as they were.
    """

    epoch: int
    events: int
    snapshot_seq: int
    jobs: dict[int, JobRecord]
    launches: dict[tuple[int, int], Launch]
    nodes: tuple[NodeStatus, ...]
    ended: dict[JobState, int]

    def __str__(self) -> str:
        states = [record.state for record in self.jobs.values()]
        counts = ", ".join(f"{states.count(state)} {state}" for state in JobState if state in states) or "none"
        return (
            f"epoch {self.epoch}: {self.events} events after the snapshot at {self.snapshot_seq}; jobs alive: {counts}"
        )


class Rebuilt(msgspec.Struct):
    """The core's state as the journal has it, and the time its timer is set to."""

    state: SchedulerState
    timer_us: int | None
    events: int
    snapshot_seq: int


def rebuild(journal: Journal, policy: Policy, rules: MachineRules) -> Rebuilt:
    """The state that the journal tells of, from its last snapshot on. Raises :class:`JournalRefused`.

    The policy gives the queue its order and is not asked for anything else.
    """
    saved = journal.snapshot()
    if saved is None:
        found = Rebuilt(SchedulerState(policy, rules), None, 0, 0)
    else:
        found = Rebuilt(SchedulerState.restore(policy, rules, saved.state), saved.state.timer_us, 0, saved.seq)
    for entry in journal.entries(saved):
        apply(found, entry, journal)
    return found


def apply(found: Rebuilt, entry: Entry, journal: Journal) -> None:
    """Apply one recorded event to the state."""
    try:
        instructions = found.state.replay(entry.event, entry.now_us, entry.decision)
    except (BadPlan, ValueError, KeyError, RuntimeError) as error:
        raise JournalRefused(
            f"journal {journal.path}: event {entry.seq} does not follow from those before it: {error}"
        ) from error
    found.timer_us = timer_after(found.timer_us, entry.event, instructions)
    found.events += 1


def timer_after(timer_us: int | None, event: Event, instructions: Iterable[Instruction]) -> int | None:
    """What the timer is set to after an event and its instructions; it was set to ``timer_us``."""
    if isinstance(event, TimerDue):
        timer_us = None
    for instruction in instructions:
        if isinstance(instruction, SetTimer):
            timer_us = instruction.at_us
    return timer_us


def differing(state: SchedulerState, records: dict[int, JobRecord]) -> str:
    """How the core's live jobs differ from the journal's list of jobs; empty when they agree.

    Both were written in the same transactions, so a difference means damage, or software that reads events otherwise.
    """
    for job_id in sorted(state.records.keys() ^ records.keys()):
        where = "its events" if job_id in state.records else "its list of jobs"
        return f"job {job_id} is alive by {where} only"
    for job_id, record in state.records.items():
        listed = records[job_id]
        if (record.job, record.state, record.allocation) != (listed.job, listed.state, listed.allocation):
            return f"job {job_id} is {record.state} by its events, and {listed.state} by its list of jobs"
    return ""
