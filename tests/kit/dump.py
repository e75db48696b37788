"""Everything a machine holds, as plain values: to say that nothing changed."""

from typing import Any

from space_scheduler.machine.record import Record
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.future import Schedule, Version


def dump(state: SchedulerState) -> dict[str, Any]:
    """A copy of all fields of the state but its clock, comparable with ``==``."""
    memory, jobs, changes = state.memory, state.machine.jobs, state.machine.changes
    if isinstance(memory, Schedule | Version):
        memory = (memory.profile.times.copy(), memory.profile.free.copy(), memory.starts_us.copy(), memory.wake_us)
    return {
        "processors": (
            state.machine.capacity.procs_installed,
            state.machine.capacity.procs_total,
            state.machine.capacity.free_procs,
        ),
        "queue": [(state.queue.key(job.id), job) for job in state.queue],
        "shapes": _scanned(state),
        "records": {job_id: _fields(record) for job_id, record in state.records.items()},
        "ends": list(jobs.ends),
        "nodes": state.nodes(),
        "rank": jobs.ranks,
        "memory": memory,
        "turns": None if state.machine.turns is None else state.machine.turns.saved(),
        "programs": state.machine.programs.saved(),
        "aside": ([*jobs.aside], sorted(jobs.aside.held), jobs.aside.changes),
        "waiting": jobs.chain.saved(),
        "timer": state.machine.timer_us,
        "changes": (
            list(changes.submitted),
            list(changes.vacated),
            list(changes.withdrawn),
            changes.released,
            changes.due,
            changes.disturbed,
        ),
    }


def _fields(record: Record) -> tuple[object, ...]:
    return tuple((name, getattr(record, name)) for name in Record.__slots__)


def _scanned(state: SchedulerState) -> list[int]:
    scan = state.queue.scan(1 << 30)
    found = []
    while (job := scan.peek()) is not None:
        found.append(job.id)
        scan.advance()
    return found
