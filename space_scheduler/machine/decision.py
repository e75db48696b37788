"""A plan as it was applied at a Boundary: plain values that msgspec encodes and decodes, and the plan of them again."""

from typing import Any, Final

import msgspec

from cosched.model.allocation import Allocation
from space_scheduler.eligibility.gates import Gate
from space_scheduler.machine.jobs import JobBook
from space_scheduler.machine.rules import BadPlan
from space_scheduler.policy.interface import (
    Plan,
    PlannedAnswer,
    PlannedChange,
    PlannedRequeue,
    PlannedResize,
    PlannedStart,
    Policy,
    traits_of,
)
from space_scheduler.policy.memory import packed, unpacked
from space_scheduler.reasons import Reason


class DecidedStart(msgspec.Struct, frozen=True, gc=False, tag_field="change", tag="start"):
    """A start of a decision: the job by its number, where, and why."""

    job_id: int
    allocation: Allocation
    reason: Reason


class DecidedResize(msgspec.Struct, frozen=True, gc=False, tag_field="change", tag="resize"):
    """A running job to hold something else, and why."""

    job_id: int
    allocation: Allocation
    reason: Reason


class DecidedRequeue(msgspec.Struct, frozen=True, gc=False, tag_field="change", tag="requeue"):
    """A running job to be ended and to wait again, and why."""

    job_id: int
    reason: Reason


class DecidedAnswer(msgspec.Struct, frozen=True, gc=False, tag_field="change", tag="answer"):
    """An answer to a running job that asked for other numbers of processes, and why."""

    job_id: int
    reason: Reason
    given: int
    left: tuple[int, ...]


#: All of them, for decoding: the tag says which.
DecidedChange = DecidedStart | DecidedResize | DecidedRequeue | DecidedAnswer


class DecidedAside(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A job that the pass has set aside, or tried again in vain; arguments of ``Aside.put``."""

    job_id: int
    problem: str
    tried: bool = True


class DecidedWait(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """What rules that are asked have said of a job: it waits by one of them; None: it has passed them all."""

    job_id: int
    gate: Gate | None = None


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan as it was applied at a Boundary.

    ``memory`` is the policy's new memory as plain values (``policy.memory``). ``forgotten``: it has one and declares no
    type for it, so that it cannot be kept. ``aside`` are the jobs that the pass was made without, ``back`` those that
    were set aside before and took part in it; ``gates`` is what rules have said before it.
    """

    changes: tuple[DecidedChange, ...] = ()
    memory: Any = None
    wake_us: int | None = None
    told: tuple[tuple[int, int, Reason], ...] = ()
    forgotten: bool = False
    aside: tuple[DecidedAside, ...] = ()
    back: tuple[int, ...] = ()
    gates: tuple[DecidedWait, ...] = ()


class _AnyFormat(Decision, frozen=True, omit_defaults=True):
    """A decision as a journal of any format has it: up to format 2 there were starts only, without tags."""

    starts: tuple[DecidedStart, ...] = ()


_decoder: Final = msgspec.json.Decoder(_AnyFormat)


def decoded(text: str) -> Decision:
    """A decision in a journal's words, of any format. Raises ``msgspec.DecodeError``."""
    found = _decoder.decode(text)
    changes = (*found.starts, *found.changes)
    rest = found.memory, found.wake_us, found.told, found.forgotten, found.aside, found.back, found.gates
    return Decision(changes, *rest)


def decision_of(
    plan: Plan,
    policy: Policy,
    aside: tuple[DecidedAside, ...],
    back: tuple[int, ...],
    gates: tuple[DecidedWait, ...],
) -> Decision:
    """A plan of this policy that was applied, as plain values; the others as :class:`Decision` has them."""
    memory, forgotten = memory_kept(plan.memory, policy)
    changes = tuple(map(_decided, plan.changes))
    return Decision(changes, memory, plan.wake_us, tuple(plan.told), forgotten, aside, back, gates)


def _decided(change: PlannedChange) -> DecidedChange:
    job, reason = change.job, change.reason
    if isinstance(change, PlannedStart):
        return DecidedStart(job.id, change.allocation or Allocation(job.procs), reason)
    if isinstance(change, PlannedResize):
        return DecidedResize(job.id, change.allocation, reason)
    if isinstance(change, PlannedAnswer):
        return DecidedAnswer(job.id, reason, change.given, change.left)
    return DecidedRequeue(job.id, reason)


def plan_of(decided: Decision, jobs: JobBook, policy: Policy) -> tuple[Plan, bool]:
    """The plan of a decision about these jobs, and whether this policy does not understand the memory.

    Raises :class:`BadPlan` where it starts a job that does not wait, or changes one that is not here.
    """
    changes = [_planned(each, jobs) for each in decided.changes]
    memory, forgotten = memory_found(decided.memory, decided.forgotten, policy)
    return Plan(changes, memory, decided.wake_us, decided.told), forgotten


def _planned(decided: DecidedChange, jobs: JobBook) -> PlannedChange:
    job_id, reason = decided.job_id, decided.reason
    if isinstance(decided, DecidedStart):
        if job_id not in jobs.queue:
            raise BadPlan(f"a recorded decision starts job {job_id}, which is not in the queue")
        return PlannedStart(jobs.queue.job(job_id), reason, decided.allocation)
    if job_id not in jobs.records:
        raise BadPlan(f"a recorded decision changes job {job_id}, which is not here")
    job = jobs.records[job_id].job
    if isinstance(decided, DecidedResize):
        return PlannedResize(job, reason, decided.allocation)
    if isinstance(decided, DecidedAnswer):
        return PlannedAnswer(job, reason, decided.given, decided.left)
    return PlannedRequeue(job, reason)


def memory_kept(memory: object, policy: Policy) -> tuple[Any, bool]:
    """A policy's memory as plain values, and whether it cannot be kept."""
    if memory is None:
        return None, False
    if traits_of(policy).memory_type is None:
        return None, True
    try:
        return packed(memory), False
    except (TypeError, AttributeError, ValueError):  # not of the type that was declared: as good as none
        return None, True


def memory_found(memory: object, forgotten: bool, policy: Policy) -> tuple[Any, bool]:
    """A kept memory as this policy has it, and whether it does not understand what was kept."""
    if forgotten or memory is None:
        return None, forgotten
    try:
        return unpacked(memory, policy), False
    except msgspec.ValidationError:  # another policy's
        return None, True
