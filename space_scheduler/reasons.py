"""Why: every decision carries one of these and its numbers; ``cosched explain`` and the event log show them."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import msgspec


class Why(StrEnum):
    """The reasons of the core, for starting, waiting, refusing and moving."""

    # a job starts
    FITS = "fits: the next job in order, and enough processors are free"
    BEST_FIT = "best fit: leaves the fewest processors unused"
    JUMPED = "first job that fits, past the head of the queue"
    FIRST_FIT = "first fit: enough processors are free, and no job ahead has a reservation"
    BACKFILLED_BEFORE_SHADOW = "backfilled: ends by the shadow time"
    BACKFILLED_ON_EXTRA = "backfilled: on extra processors that the reservation leaves over"
    BACKFILLED_BESIDE = "backfilled: the reservation keeps its time on other nodes, or on what is left of them"
    BACKFILLED_IN_HOLE = "backfilled: delays no reservation of this pass"
    BACKFILLED_MOULDED = "backfilled: moulded to what is free while the head of the queue waits"
    ADMITTED = "admitted: its minimum fits beside the minima of all that run"
    RESERVATION_DUE = "the reserved start has come"
    # a job waits
    NOT_ENOUGH_FREE = "fewer processors are free than the job needs"
    WOULD_DELAY_RESERVATION = "would run past the shadow time on processors that are reserved"
    NOT_ENOUGH_MEMORY = "enough processors are free, but not the memory that its tasks need beside them"
    NOT_ENOUGH_CPU = "places and memory are free, but the CPU that its tasks use is used by others (overcommit)"
    FRAGMENTED = "processors and memory are free, but not together on the nodes"
    SPREAD_OUT = "what is free lies on more nodes than one job may use"
    NO_CLUSTERS = "enough processors are free, but not on the clusters that its components need, each on one of its own"
    NO_UNIFORM_SET = "enough is free, but no set of nodes where its tasks would have the same company of the other kind"
    AVOIDS_NODES = "would fit with the nodes on which its launch has failed, and is not put there again"
    NOT_TAKEN = "would fit with nodes whose owners do not take this user's jobs"
    NODES_AWAY = "can start only when nodes come back: lost or drained ones are needed"
    NODES_CLOSED = "can start only when nodes open again that are closed at this hour"
    OWNERS_THERE = (
        "can start only when owners leave or come: beside those at their desks now not even empty nodes have a place"
    )
    PROCS_HELD = "can start only when what is left of ended jobs can be ended: it holds processors"
    WINDOW_OPEN = "jobs that were started in order run: room is made for it when backfilled jobs alone run"
    NOT_FOLDED_FURTHER = (
        "jobs before which it waits cannot be folded further: a node keeps a processor for its processes"
    )
    MINIMA_HELD = "its minimum does not fit beside the minima of all that run"
    BEHIND_HEAD = "jobs ahead of it in the order come first"
    RESERVED_LATER = "has a reservation that is not due yet"
    NOT_CHOSEN = "it is first in the order and fits; no pass has chosen it"
    LAUNCH_RETRIED = "its launch has failed before the script ran: it waits for other nodes"
    REQUEUED = "it has lost a node, and was to wait again: it runs from its beginning"
    SENT_AWAY = (
        "the owner of a node has ended it there, and it was to wait again: it runs elsewhere, from its beginning"
    )
    HELD = "held by its user or an operator"
    RELEASED = "released: waits in its old place"
    NOT_ELIGIBLE = "not eligible yet by a rule of this cluster"
    AFTER_JOB = "waits for the end of another job"
    THINK_TIME = "the job before it has ended: it waits for its think time"
    RULE_FAILED = "a rule of this cluster fails with it: it is asked again every minute"
    ELIGIBLE = "eligible: no rule keeps it out of the queue any more"
    ACCEPTED = "accepted: no pass has decided about it yet"
    SET_ASIDE = "set aside by the pass: planning fails with this job in it; it is tried again"
    TRIED_AGAIN = "no longer set aside: planning does not fail with it"
    # a running job is changed by a plan
    SHRUNK = "shrunk: others need some of its processors"
    WIDENED = "widened: processors are free that it can use"
    ABORTED = "ended to make room, and waits again in its old place: it runs from its beginning"
    AWAITS_PROCESSORS = "starts when jobs that shrink or are ended have given back what it needs"
    FOLDED = "folded: its processes share fewer processors, so that the head of the queue can start"
    UNFOLDED = "unfolded: processors are free for processes that shared one"
    SUSPENDED = "suspended: its processes wait without a processor, so that the head of the queue can start"
    RESUMED = "resumed: processors are free for it again"
    NOT_FOLDABLE = "jobs before which it waits may not be folded, or compute while they wait for messages"
    ASKED = "given what it asked for while it ran"
    ASK_REFUSED = "what it asked for while it ran is not free beside the minima of others: it keeps what it has"
    ASK_WAITS = "waits for what it asked for while it ran: it is not free beside the minima of others"
    RESIZE_REFUSED = "what was to be changed stays as it was: a job could not be resized, or nodes are away"
    # a promise is made or moved
    RESERVED = "reserved: the earliest start that delays nobody ahead"
    MOVED_EARLIER = "moved earlier: processors came free before they were expected"
    RESCHEDULED = "moved: all reservations were made anew"
    # why a promise may move later
    OVERRUN = "a job runs past its estimate"
    LATE_LAUNCH = "a job was launched later than planned"
    CAPACITY_CHANGED = "nodes joined, were drained or were lost"
    OWNER_CHANGED = "somebody came to a desk, left it, or uses another part of the node"
    PROGRESS = "a job is not as far as was predicted, or further"
    PACE = "who shares its nodes has changed"
    OVERTAKEN = (
        "a job that comes first in the order was submitted or released; what was promised to the head is its now"
    )
    RESTARTED = "the scheduler was restarted with a policy that does not know what was promised"
    RULES_CHANGED = "the scheduler was restarted under other rules: how many tasks share a CPU, how nodes are shared"
    POLICY_CHANGED = "an operator has chosen another policy: what the one before has promised is not promised any more"
    # how jobs share nodes
    TAKE_TURNS = "jobs take turns where tasks outnumber CPUs: one of them keeps its CPU while it waits for messages"
    NO_TURNS = "no jobs take turns any more"
    # a job is refused, or ended by the core
    WIDER_THAN_MACHINE = "needs more processors than the machine has"
    TASK_TOO_LARGE = "one task needs more memory than any node has"
    MORE_MEMORY_THAN_MACHINE = "its tasks need more memory than the nodes have, all of them empty"
    NEVER_UNIFORM = "could have the same company of the other kind on no set of nodes, all of them empty"
    WIDER_THAN_CLUSTER = "one of its components needs more processors than any cluster has"
    MORE_THAN_CLUSTERS = "its components have no place on the clusters, all of them empty: each lies on one of its own"
    SPANS_NODES = "needs more nodes than one job may use"
    MORE_CPU_THAN_ADMITTED = "its tasks use more CPU than the policy admits on empty nodes (overcommit)"
    CANCELLED = "cancelled by its user or an operator"
    NODE_LOST = "a node where it had tasks was lost"
    ENDED_BY_OWNER = "the owner of a node where it had tasks has ended it"
    CANNOT_END = "it is to end, and cannot be ended before what its processes wait for answers"
    WAKE = "a reservation falls due"
    TRY_AGAIN = "a job that was set aside by the pass is tried again"
    OTHER = "a reason of another version"

    @classmethod
    def _missing_(cls, value: object) -> "Why":
        """What an older or newer version wrote can be read: words change."""
        return cls.__members__.get(str(value), cls.OTHER)


class Reason(msgspec.Struct, frozen=True, gc=False):
    """A reason and its numbers (``_us`` in microseconds, ``_procs`` in processors), and the node that it is about."""

    why: Why
    numbers: Mapping[str, int] = {}
    node: str = ""

    def __str__(self) -> str:
        told = [f"{name}={value}" for name, value in self.numbers.items()]
        if self.node:
            told.insert(0, f"node={self.node}")
        return f"{self.why.value} ({', '.join(told)})" if told else self.why.value


#: Reasons without numbers, made once.
CANCELLED: Final = Reason(Why.CANCELLED)
HELD: Final = Reason(Why.HELD)
RELEASED: Final = Reason(Why.RELEASED)
ACCEPTED: Final = Reason(Why.ACCEPTED)
ELIGIBLE: Final = Reason(Why.ELIGIBLE)
