"""What the agent's core wants done: values that a shell carries out in order, and that a test can keep.

A question (:class:`AskGuard`, :class:`AskNode`) has a number, and its reply comes in as ``inputs.Replied`` with the
same. The shell replies to a question about the node at once, before it hands in anything else; the guard may take its
time.
"""

from typing import Literal

import msgspec

from cosched.wire.messages import Fence, FromAgent, JobFile, JobMap, Peer, Prepare
from node_agent.core.attempt import Attempt, Key
from node_agent.core.replies import Reply

# requests to the guard


class PrepareGroup(msgspec.Struct, frozen=True):
    """Make a group for an attempt: cgroup, private directories. ``prepare`` is the order that asks for it.

    ``asleep`` as in :class:`ResizeGroup`.
    """

    key: Key
    prepare: Prepare
    asleep: bool = False


class Spawn(msgspec.Struct, frozen=True):
    """Start a command in an attempt's group; 0 is the job script, whose text is ``script``.

    ``prepare`` is the order that made the group: the command's environment and directory are in it. ``output``,
    ``error``: paths that the user wants the script's streams in, None for the spool. ``stream``: the name under which
    a command's supervisor keeps its streams.
    """

    key: Key
    n: int
    prepare: Prepare
    argv: tuple[str, ...]
    script: bytes | None = None
    output: str | None = None
    error: str | None = None
    stream: str | None = None


class ResizeGroup(msgspec.Struct, frozen=True):
    """Give an attempt so many places, and its processes so many CPUs (None: all that parallel work may use).

    ``n`` is the order's number: the guard does nothing that is older than what it has done. ``asleep``: its processes
    run when nobody else wants to. Reply: ``Done`` with CPUs.
    """

    key: Key
    n: int
    tasks: int
    cpus: int | None
    asleep: bool = False


class KillGroup(msgspec.Struct, frozen=True):
    """End all of an attempt: SIGTERM, the grace in microseconds, SIGKILL until nothing is left; ``empty`` follows."""

    key: Key
    grace_us: int


class ForgetGroup(msgspec.Struct, frozen=True):
    """Remove cgroup, directories and records of an attempt."""

    key: Key


GuardRequest = PrepareGroup | Spawn | ResizeGroup | KillGroup | ForgetGroup

# questions about the node


class ReadGrant(msgspec.Struct, frozen=True):
    """What a signed grant says. Reply: ``GrantRead``, or ``Declined`` where it is not the scheduler's."""

    grant: bytes


class MakeReady(msgspec.Struct, frozen=True):
    """Look whether the disk has room for new work, and write the files that a job's launchers need.

    Reply: ``Done``, or ``Declined`` with the reason: then no new work can be taken.
    """

    key: Key
    files: tuple[JobFile, ...]
    peers: tuple[Peer, ...]


class OfferMap(msgspec.Struct, frozen=True):
    """Tell the ranks of a job here its newest map, those there are and those to come.

    Reply: ``Done`` where some rank is there to be told, ``Declined`` where none is.
    """

    key: Key
    map: JobMap


class ReadErrorTail(msgspec.Struct, frozen=True):
    """The last bytes of a script's error output. Reply: ``ErrorTail``."""

    key: Key


class LookForDescriptors(msgspec.Struct, frozen=True):
    """Whether the agent can open anything now. Reply: ``Done``, or ``Declined`` where no descriptor is left."""


NodeQuestion = ReadGrant | MakeReady | OfferMap | ReadErrorTail | LookForDescriptors

# effects


class AskGuard(msgspec.Struct, frozen=True):
    """Send the guard a request. A guard that is not there, or goes before it has answered, is a reply too."""

    number: int
    request: GuardRequest


class AskNode(msgspec.Struct, frozen=True):
    """Find something out about this node, and reply at once."""

    number: int
    question: NodeQuestion


class AnswerCommand(msgspec.Struct, frozen=True):
    """What became of a command that ``inputs.CommandWanted`` asked for under that number."""

    number: int
    reply: Reply


class Persist(msgspec.Struct, frozen=True):
    """Write an attempt's record down; where the disk does not take it, write it later."""

    attempt: Attempt


class Drop(msgspec.Struct, frozen=True):
    """Remove an attempt's record, and what its script has written into the spool, if there is any."""

    key: Key


class RemoveFiles(msgspec.Struct, frozen=True):
    """Remove the files that told a job its nodes."""

    key: Key


class KeepFence(msgspec.Struct, frozen=True):
    """Write down durably whom this node obeys from now on, then hand in ``inputs.FenceKept``."""

    fence: Fence


class Tell(msgspec.Struct, frozen=True):
    """Send to the scheduler, if it is there. What matters is told again after the next welcome."""

    message: FromAgent


class HangUp(msgspec.Struct, frozen=True):
    """The link is of no use; the reason is for the log."""

    reason: str


class SetTimer(msgspec.Struct, frozen=True):
    """Hand in ``inputs.TimerDue`` with this number, in so many microseconds; by then it may mean nothing any more."""

    number: int
    after_us: int


class Complain(msgspec.Struct, frozen=True):
    """Count something that the scheduler should not have sent, and log it now and then. ``kind`` is what is counted."""

    kind: str
    message: str


class Say(msgspec.Struct, frozen=True):
    """A line for the log, and how loud it is."""

    level: Literal["info", "warn"]
    text: str


Effect = (
    AskGuard
    | AskNode
    | AnswerCommand
    | Persist
    | Drop
    | RemoveFiles
    | KeepFence
    | Tell
    | HangUp
    | SetTimer
    | Complain
    | Say
)
