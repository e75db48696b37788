"""What can happen. A host turns the world's happenings into these; the core knows nothing else of the world."""

import msgspec

from cosched.model.coscheduling import Receives
from cosched.model.job import Job, JobState
from cosched.model.node import Node, Owner


class Event(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Base of all events; the tag names the class in journals and event logs."""


class JobEvent(Event, frozen=True, gc=False):
    """Base of all events about a live job."""

    job_id: int


class NodeEvent(Event, frozen=True, gc=False):
    """Base of all events about a node that has joined under this name."""

    name: str


class JobSubmitted(Event, frozen=True, gc=False):
    """A user submitted a job."""

    job: Job


class JobHeld(JobEvent, frozen=True, gc=False):
    """A queued job is not to be started until released."""


class JobReleased(JobEvent, frozen=True, gc=False):
    """A held job goes back to its place in the queue."""


class JobCancelled(JobEvent, frozen=True, gc=False):
    """A job is not wanted any more, wherever it is in its life."""


class JobLaunched(JobEvent, frozen=True, gc=False):
    """The last task of a starting job is up."""


class LaunchFailed(JobEvent, frozen=True, gc=False, omit_defaults=True):
    """The launch of a job has failed on ``nodes`` for certain before its script ran, and it holds nothing any more.

    It waits again and avoids them, as often as the rules have it (``launch_retries``) and while it could ever start on
    others; else it has ended as ``launch failed``. One that is being ended already, cancelled or for a lost
    node, ends for that reason. ``passing``: what failed there passes by itself, such as a slow name service: it does
    not count, and where no others are left all are tried again.
    """

    nodes: tuple[str, ...]
    passing: bool = False


class JobEnded(JobEvent, frozen=True, gc=False):
    """A starting or running job has ended, and holds nothing any more. ``outcome`` is a terminal state."""

    outcome: JobState = JobState.COMPLETED


class JobSentAway(JobEvent, frozen=True, gc=False):
    """The owner of a node has ended what a starting or running job had there, and it holds nothing any more.

    It has ended as ``NODE_LOST``; where it was to wait again then, it does, and avoids the node.
    """

    node: str


class JobCannotEnd(JobEvent, frozen=True, gc=False):
    """A running job was to end (at its limit, say), and its processes on ``node`` hear no signal: it is ending, and
    holds what it holds, until they do.
    """

    node: str


class JobResized(JobEvent, frozen=True, gc=False):
    """A job that was to be resized holds what it was to hold, and nothing else any more."""


class ResizeFailed(JobEvent, frozen=True, gc=False):
    """A job that was to be resized holds for certain what it held before. ``why`` is for people."""

    why: str = ""


class JobProgress(JobEvent, frozen=True, gc=False):
    """A running job has done ``done_us`` microseconds of its work, as alone on idle nodes, by what its nodes measured.

    Its predicted end follows from that. A host says so only where the end moves by much.
    """

    done_us: int


class ResizeAsked(JobEvent, frozen=True, gc=False):
    """A running job, an evolving one, wants ``procs`` processes more than until now (negative: fewer)."""

    procs: int


class ReceivesSeen(JobEvent, frozen=True, gc=False):
    """The processes of a job are seen to wait for messages in these ways, on all of its nodes together."""

    receives: tuple[Receives, ...]


class ProgramMeasured(Event, frozen=True, gc=False):
    """What nodes measured of a job of this program: later ones count as the same where they do not say it themselves.

    ``kind`` is "cpu" or "comm", ``cpu_permille`` which part of a CPU each task used, in thousandths.
    """

    program: str
    kind: str
    cpu_permille: int = 1000


class NodesJoined(Event, frozen=True, gc=False):
    """Interchangeable processors came into service (new nodes, or drained ones resumed)."""

    procs: int


class NodesDrained(Event, frozen=True, gc=False):
    """Processors that are free, or will be as their jobs end, leave service."""

    procs: int


class NodesLost(Event, frozen=True, gc=False):
    """Processors are gone, and with them the jobs that had tasks there (all of them: a gang is whole or not at all)."""

    procs: int
    job_ids: tuple[int, ...] = ()


class NodeJoined(Event, frozen=True, gc=False):
    """A node with a name came into service: a new one, a lost one that is back, or a known one of another size.

    A machine has named nodes or counted processors, never both. Who was drained stays drained until it is resumed.
    """

    node: Node


class NodeDrained(NodeEvent, frozen=True, gc=False):
    """Nothing more is to be started on a node; what runs there goes on. ``reason`` is the operator's, for people.

    ``opens_in_us``: in how long it is to be resumed, where that is known (its owner's hours); promises count on it. A
    later one replaces what an earlier said.
    """

    reason: str = ""
    opens_in_us: int | None = None


class NodeResumed(NodeEvent, frozen=True, gc=False):
    """A drained node may be used again."""


class NodeLost(NodeEvent, frozen=True, gc=False):
    """A node does not answer any more.

    Every job with tasks there is to be killed on its other nodes. It holds what it has, there too should the node come
    back, until the host reports its :class:`JobEnded` with ``NODE_LOST``.
    """


class NodeCutOff(NodeEvent, frozen=True, gc=False):
    """A node does not answer any more, nor does any other of its cluster: the link to that may be down.

    As :class:`NodeLost`, but jobs that run wholly on that cluster's nodes go on: they hold what they have, until the
    host reports their end.
    """


class ClockSeen(NodeEvent, frozen=True, gc=False):
    """A node keeps the cluster's time well enough for slots, or does not any more."""

    keeps_time: bool


class OwnerCame(NodeEvent, frozen=True, gc=False):
    """Somebody is at a node's desk, or the one who is there uses another part of it."""

    owner: Owner = Owner()


class OwnerLeft(NodeEvent, frozen=True, gc=False):
    """Nobody is at a node's desk any more."""


class RulesChanged(Event, frozen=True, gc=False):
    """An operator has chosen another policy, and with it what holds on the machine; from now on those are in force.

    ``order`` is the name of an order of the queue, where the policy was given another than its own.
    """

    policy: str
    order: str | None = None


class TimerDue(Event, frozen=True, gc=False):
    """The time asked for by the last :class:`~space_scheduler.machine.instructions.SetTimer` has come."""


class Boundary(Event, frozen=True, gc=False, omit_defaults=True):
    """All events of a batch have been handled: run a pass if anything changed.

    ``name_overdue``: a promise that moves because the predicted end of a job has passed names that job. A host that
    tells users of promises asks for it; journals of older versions do not have it.
    """

    name_overdue: bool = False


#: All of them, for decoding: the tag says which.
AnyEvent = (
    JobSubmitted
    | JobHeld
    | JobReleased
    | JobCancelled
    | JobLaunched
    | LaunchFailed
    | JobEnded
    | JobSentAway
    | JobCannotEnd
    | JobResized
    | ResizeFailed
    | JobProgress
    | ResizeAsked
    | ReceivesSeen
    | ProgramMeasured
    | NodesJoined
    | NodesDrained
    | NodesLost
    | NodeJoined
    | NodeDrained
    | NodeResumed
    | NodeLost
    | NodeCutOff
    | ClockSeen
    | OwnerCame
    | OwnerLeft
    | RulesChanged
    | TimerDue
    | Boundary
)
