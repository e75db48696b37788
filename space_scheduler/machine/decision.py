"""A plan as it was applied at a Boundary: plain values that msgspec encodes and decodes, and the plan of them again."""

from typing import Any, Final

import msgspec

from cosched.model.allocation import Allocation
from space_scheduler.machine.rules import BadPlan
from space_scheduler.policy.interface import Plan, PlannedStart, Policy, traits_of
from space_scheduler.policy.memory import packed, unpacked
from space_scheduler.policy.queue import JobQueue
from space_scheduler.reasons import Reason


class DecidedStart(msgspec.Struct, frozen=True, gc=False, tag_field="change", tag="start"):
    """A start of a decision: the job by its number, where, and why."""

    job_id: int
    allocation: Allocation
    reason: Reason


#: All of them, for decoding: the tag says which.
DecidedChange = DecidedStart


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan as it was applied at a Boundary.

    ``memory`` is the policy's new memory as plain values (``policy.memory``). ``forgotten``: it has one and declares no
    type for it, so that it cannot be kept.
    """

    changes: tuple[DecidedChange, ...] = ()
    memory: Any = None
    wake_us: int | None = None
    told: tuple[tuple[int, int, Reason], ...] = ()
    forgotten: bool = False


class _AnyFormat(Decision, frozen=True, omit_defaults=True):
    """A decision as a journal of any format has it: up to format 2 there were starts only, without tags."""

    starts: tuple[DecidedStart, ...] = ()


_decoder: Final = msgspec.json.Decoder(_AnyFormat)


def decoded(text: str) -> Decision:
    """A decision in a journal's words, of any format. Raises ``msgspec.DecodeError``."""
    found = _decoder.decode(text)
    changes = (*found.starts, *found.changes)
    return Decision(changes, found.memory, found.wake_us, found.told, found.forgotten)


def decision_of(plan: Plan, policy: Policy) -> Decision:
    """A plan of this policy that was applied, as plain values."""
    changes = tuple(
        DecidedStart(start.job.id, start.allocation or Allocation(start.job.procs), start.reason)
        for start in plan.changes
    )
    memory, forgotten = memory_kept(plan.memory, policy)
    return Decision(changes, memory, plan.wake_us, tuple(plan.told), forgotten)


def plan_of(decided: Decision, queue: JobQueue, policy: Policy) -> tuple[Plan, bool]:
    """The plan of a decision about this queue, and whether this policy does not understand the memory.

    Raises :class:`BadPlan` where it starts a job that does not wait.
    """
    for start in decided.changes:
        if start.job_id not in queue:
            raise BadPlan(f"a recorded decision starts job {start.job_id}, which is not in the queue")
    changes = [PlannedStart(queue.job(each.job_id), each.reason, each.allocation) for each in decided.changes]
    memory, forgotten = memory_found(decided.memory, decided.forgotten, policy)
    return Plan(changes, memory, decided.wake_us, decided.told), forgotten


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
