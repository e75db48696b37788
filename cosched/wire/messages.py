"""The messages between scheduler and agents, version 1 (design, section 4). Encoded with MessagePack, one a frame.

The agent dials out and says :class:`Hello`; the scheduler answers :class:`Welcome` or :class:`Rejected`. Then the agent
sends :class:`Heartbeat` every ``heartbeat_us``; a scheduler that has heard nothing for ``lease_us`` counts the node as
lost, and an agent that has heard nothing for as long arms the contract and goes on with what runs.

Orders carry a :class:`Fence` and an :class:`OrderId`. An agent persists the highest epoch before it obeys, refuses
orders of a lower one, or of the same one by another instance, and obeys an order once: on a second arrival of the same
id it only answers again. Whatever it doesn't know is refused (:class:`Refused`), counted, and logged once a minute.

A job's way over its nodes: :class:`Prepare` to all of them, each answers :class:`Prepared` or :class:`Refused`; when
all have, :class:`Run` to the first, which answers :class:`Started`; when the script ends, :class:`ProgramEnded`; then
:class:`Kill` to all (whatever ranks are left), and :class:`GroupEnded` from each, when its cgroup is empty;
:class:`Forget` lets the agent drop what it kept. :class:`Kill` may come at any time, also for what was never prepared.
"""

from typing import Final, TypeVar

import msgspec

from cosched.errors import BadInput
from cosched.model.contract import SocialContract
from cosched.model.node import Presence, Usage

VERSION: Final = 1
MAX_FRAME_BYTES: Final = 4 << 20
#: Output travels in pieces of at most this.
MAX_CHUNK_BYTES: Final = 256 << 10


class Fence(msgspec.Struct, frozen=True):
    """Who gives orders: the cluster, the journal's epoch (rises at each start) and the process's own uuid."""

    cluster_id: str
    epoch: int
    instance: str


class OrderId(msgspec.Struct, frozen=True, order=True):
    """The n-th order for one attempt at one job."""

    job_id: int
    attempt: int
    n: int


class Peer(msgspec.Struct, frozen=True):
    """A node of a job as the others reach it: ``address`` for MPI and for agents, ``port`` of its agent."""

    name: str
    address: str
    port: int
    tasks: int


class Exit(msgspec.Struct, frozen=True):
    """How a program ended: ``status`` of exit, or the ``signal`` that killed it; neither: unknown, never a success.

    ``cause``: ``own`` (by itself), ``limit``, ``killed`` (by order), ``memory`` (over the job's memory), ``unknown``.
    """

    status: int | None = None
    signal: int | None = None
    cause: str = "own"


class GroupReport(msgspec.Struct, frozen=True):
    """What an agent knows of one attempt at a job when it joins. ``state``: prepared, running, ended."""

    job_id: int
    attempt: int
    state: str
    last_order: int
    exit: Exit | None = None


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Base of all messages; the tag names the class."""


# agent to scheduler


class Hello(Message, frozen=True):
    """The first message of an agent. ``procs`` and ``memory_bytes`` are the node's, all of them.

    ``owner`` is what its owner leaves to parallel work at most: the scheduler counts with the stricter of it and the
    cluster's contract. After the welcome the agent says again every :class:`ProgramEnded` and :class:`GroupEnded` that
    no :class:`Forget` has acknowledged.
    """

    version: int
    node: str
    boot_id: str
    procs: int
    memory_bytes: int
    address: str
    port: int
    software: str
    enforces: dict[str, str] = {}  # capability -> "yes", or why not
    highest_epoch: int = 0
    groups: tuple[GroupReport, ...] = ()
    owner: SocialContract = SocialContract()


class Heartbeat(Message, frozen=True):
    """The node is alive; how it is used, and whether somebody is there. ``limited_cpus``: the ceiling in force."""

    usage: Usage
    presence: Presence
    presence_source: str = ""
    limited_cpus: float | None = None
    armed: bool = True


class Prepared(Message, frozen=True):
    """The job's cgroup and private directories are there; ranks may be born here."""

    order: OrderId


class Started(Message, frozen=True):
    """The job script runs."""

    order: OrderId
    pid: int


class Refused(Message, frozen=True):
    """An order is not obeyed. ``code``: stale, fenced, unknown, user, directory, memory, busy, failed."""

    order: OrderId
    code: str
    message: str


class ProgramEnded(Message, frozen=True):
    """The job script has ended on the first node. ``error_tail``: the last bytes of its error output."""

    job_id: int
    attempt: int
    exit: Exit
    error_tail: bytes = b""


class GroupEnded(Message, frozen=True):
    """No process of this attempt is left on this node."""

    job_id: int
    attempt: int
    cpu_us: int = 0
    memory_peak_bytes: int = 0


class OutputChunk(Message, frozen=True):
    """A piece of a job's output. ``size`` is what there is by now; ``final``: it will not grow any more."""

    request: int
    data: bytes
    size: int
    final: bool
    error: str = ""


# scheduler to agent


class Welcome(Message, frozen=True):
    """The agent belongs to this cluster from now on."""

    version: int
    fence: Fence
    heartbeat_us: int
    lease_us: int
    contract: SocialContract


class Rejected(Message, frozen=True):
    """The agent is not welcome, and why; it tries again later."""

    reason: str


class Order(Message, frozen=True):
    """Base of what an agent must obey."""

    fence: Fence
    order: OrderId


class Prepare(Order, frozen=True):
    """Make ready for ranks of a job. ``grant`` is a signed :class:`cosched.wire.grant.Grant`.

    ``memory_bytes`` is for one task, None for no limit of its own; ``limit_us`` the run time at which the first node
    ends the job, with ``grace_us`` between SIGTERM and SIGKILL. ``environment`` is the same on all nodes, except that
    the agent puts paths of its own for values that are, as a whole, one of :data:`LOCAL_PATHS`: ``{node_file}`` is the
    file with :func:`cosched.wire.hostfile.hostfile`'s text, which it writes; ``{rsh}`` its ``cosched-rsh``;
    ``{rank}`` its ``cosched-rank``, which runs a rank and says which one ended badly; ``{tmp}``
    the job's own directory for temporary files (``/tmp`` where that is private). HOME, USER, LOGNAME and SHELL are not
    in it: they are what the node's own user database says (Open MPI does not start without HOME).
    """

    user: str
    peers: tuple[Peer, ...]
    tasks: int
    memory_bytes: int | None
    limit_us: int | None
    grace_us: int
    directory: str
    environment: dict[str, str]
    grant: bytes


class Run(Order, frozen=True):
    """Run the job script, on the first node. Paths of output are opened as the user; None: spooled by the agent."""

    script: bytes
    arguments: tuple[str, ...]
    output: str | None = None
    error: str | None = None


class Kill(Order, frozen=True):
    """End everything of this attempt here: SIGTERM, ``grace_us``, SIGKILL until nothing is left."""

    grace_us: int


class Forget(Order, frozen=True):
    """The end has been recorded: records and private directories may go. Output stays until ``Discard``."""


class Discard(Order, frozen=True):
    """The output is no longer wanted."""


class ReadOutput(Message, frozen=True):
    """Send a piece of a job's spooled output. ``stream``: stdout or stderr."""

    request: int
    job_id: int
    attempt: int
    stream: str
    offset: int
    max_bytes: int


FromAgent = Hello | Heartbeat | Prepared | Started | Refused | ProgramEnded | GroupEnded | OutputChunk
ToAgent = Welcome | Rejected | Prepare | Run | Kill | Forget | Discard | ReadOutput

#: Values in ``Prepare.environment`` that each agent replaces by a path on its node.
LOCAL_PATHS: Final = ("{node_file}", "{rsh}", "{rank}", "{tmp}")

Kind = TypeVar("Kind")
_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)


def encode(message: FromAgent | ToAgent) -> bytes:
    """One frame. Raises ValueError where it would be too long to be accepted."""
    frame = _encoder.encode(message)
    if len(frame) > MAX_FRAME_BYTES:
        raise ValueError(f"{type(message).__name__} of {len(frame)} bytes; at most {MAX_FRAME_BYTES} travel")
    return frame


def from_agent(frame: bytes) -> FromAgent:
    """Decode what an agent sent. Raises :class:`BadInput` for anything but a message of this version."""
    return _decoded(_from_agent, frame)


def to_agent(frame: bytes) -> ToAgent:
    """Decode what a scheduler sent. Raises :class:`BadInput` for anything but a message of this version."""
    return _decoded(_to_agent, frame)


def _decoded(decoder: msgspec.msgpack.Decoder[Kind], frame: bytes) -> Kind:
    if len(frame) > MAX_FRAME_BYTES:
        raise BadInput("message", f"{len(frame)} bytes", f"at most {MAX_FRAME_BYTES}")
    try:
        return decoder.decode(frame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("message", str(error), f"a message of version {VERSION}") from None
