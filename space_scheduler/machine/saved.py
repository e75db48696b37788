"""The machine on paper: a decision as it was applied, and the whole state at one moment. Plain values that msgspec
encodes and decodes (JSON or MessagePack); what they mean is in ``machine.state``.
"""

from typing import Any

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import Job, JobState
from cosched.model.node import Node, Owner
from space_scheduler.machine.events import AnyEvent
from space_scheduler.progress import ALONE_PPM
from space_scheduler.reasons import ACCEPTED, Reason, Why


class DecidedStart(msgspec.Struct, frozen=True, gc=False):
    """A start of a decision: the job by its number, where, and why."""

    job_id: int
    allocation: Allocation
    reason: Reason


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """A plan as it was applied at a Boundary.

    ``memory`` is the policy's new memory as plain values (``policy.memory``). ``forgotten``: it has one and declares no
    type for it, so that it cannot be kept.
    """

    starts: tuple[DecidedStart, ...] = ()
    memory: Any = None
    wake_us: int | None = None
    told: tuple[tuple[int, int, Reason], ...] = ()
    forgotten: bool = False


class SavedJob(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """A live job: the fields of :class:`~space_scheduler.machine.record.Record`."""

    job: Job
    rank: int
    state: JobState
    story: tuple[tuple[int, JobState], ...]
    started_us: int | None = None
    end_us: int = 0
    allocation: Allocation | None = None
    released: bool = False
    promise_us: int | None = None
    first_promise_us: int | None = None
    overruns: int | None = None
    failed_launches: int = 0
    reason: Reason = ACCEPTED
    decided_us: int = 0
    cause: AnyEvent | None = None
    left: int = 0
    rate_ppm: int = ALONE_PPM
    as_of_us: int = 0


class SavedNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node and what was said of it. What it holds follows from the jobs."""

    node: Node
    lost: bool = False
    drained: bool = False
    reason: str = ""
    owner: Owner | None = None


class SavedChanges(msgspec.Struct, frozen=True, omit_defaults=True):
    """What happened since the last pass (:class:`~space_scheduler.policy.interface.Changes`)."""

    submitted: tuple[Job, ...] = ()
    vacated: tuple[tuple[int, int], ...] = ()
    withdrawn: tuple[Job, ...] = ()
    released: bool = False
    due: bool = False
    disturbed: Why | None = None


class SavedState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that :meth:`~space_scheduler.machine.state.SchedulerState.restore` needs, but policy and rules.

    Nothing that follows from them and from each other: what is free, and what of nodes is in service, does.
    """

    now_us: int
    passes: int
    ranks: int
    procs_installed: int = 0  # these two of counted processors; of nodes they follow
    procs_total: int = 0
    timer_us: int | None = None
    jobs: tuple[SavedJob, ...] = ()
    nodes: tuple[SavedNode, ...] | None = None  # None: counted processors
    changes: SavedChanges = SavedChanges()
    trigger: AnyEvent | None = None
    memory: Any = None
    forgotten: bool = False
