"""The messages between scheduler and agents, version 5 (design, section 4). Encoded with MessagePack, one a frame.

The agent dials out and says :class:`Hello`; the scheduler answers :class:`Welcome` or :class:`Rejected`. Then the agent
sends :class:`Heartbeat` every ``heartbeat_us``; a scheduler that has heard nothing for ``lease_us`` counts the node as
lost, and an agent that has heard nothing for as long arms the contract and goes on with what runs.

After the first message of each side every frame carries a session and a number (:mod:`cosched.wire.sequence`): what was
recorded, repeated or put in another order is refused.

Orders carry a :class:`Fence` and an :class:`OrderId`. An agent persists the highest epoch before it obeys, refuses
orders of a lower one, or of the same one by another instance, and obeys an order once: on a second arrival of the same
id it only answers again, so an answer that was lost is had by giving the order again. One with a lower number than the
last that was obeyed, and without an answer that still holds, is stale. Whatever it doesn't know is refused
(:class:`Refused`), counted, and logged once a minute.

A job's way over its nodes: :class:`Prepare` to all of them, each answers :class:`Prepared` or :class:`Refused`; when
all have, :class:`Run` to the first, which answers :class:`Started`; when the script ends, :class:`ProgramEnded`; then
:class:`Kill` to all (whatever ranks are left), and :class:`GroupEnded` from each, when its cgroup is empty;
:class:`Forget` lets the agent drop what it kept. :class:`Kill` may come at any time, also for what was never prepared.

The ranks of a malleable job are all there from its start. Which of them are enabled says a map (:class:`JobMap`): the
first with :class:`Prepare`, later ones with :class:`Adapt`, which each of its nodes passes on to the ranks that it has.
When all ranks have done what a map asks, the node of the leading one says :class:`Adapted`. A job asks for other
numbers of processes itself by :class:`Asked`, and has its answer by :class:`AskAnswered`.

A job that runs may change its shape: :class:`Resize` to each node that it keeps, :class:`Prepare` to each that joins
(later than the others, with the job's renewed grant), :class:`Kill` to each that it leaves, once all others have
answered. A node that leaves and joins again is made ready anew.

Version 1 knew no :class:`Resize`, and refused a second :class:`Prepare`; version 2 knew no :class:`DeskReported`;
version 3 knew no uids of submitters, and no :class:`JobsHeld`; version 4 sent no :class:`JobFile`, since its agents
knew the launchers (:mod:`cosched.wire.version_4`). Each side says with its first message which version it speaks; what
is spoken is the lower one (:func:`spoken`), and nodes whose agents speak an older one are served all that it had. An
agent whose hello is refused because of its version says the next one in the version before.
"""

from typing import Annotated, Final, TypeVar

import msgspec

from cosched.errors import BadInput
from cosched.model import quantities as q
from cosched.model.contract import SocialContract
from cosched.model.desk import DeskReport
from cosched.model.effort import Effort
from cosched.model.job import DEFAULT_UMASK
from cosched.model.node import Presence, Usage
from cosched.model.stall import Stall
from cosched.wire.sequence import HEADER_BYTES

VERSION: Final = 5
#: Of agents that resize no job, and give a job that runs no further node.
RIGID_VERSION: Final = 1
#: From this one on, nodes say what their desks report.
REPORTING_VERSION: Final = 3
#: From this one on, orders and surveys say the uids that users have on the scheduler's host.
UID_VERSION: Final = 4
#: From this one on, nodes say what they were told of jobs.
HOLDING_VERSION: Final = 4
#: From this one on, orders bring the files that launchers need, and name the processes to look for.
FILES_VERSION: Final = 5
#: What a refusal begins with that is because of the version of a hello; version 1 began it so, too.
WRONG_VERSION: Final = "hello: version"
MAX_FRAME_BYTES: Final = 4 << 20
#: A cluster's epochs count its scheduler's starts. Another cluster's scheduler is obeyed only if it was told to take
#: over: its epochs begin at the seconds since 1970, which no count reaches, and a later take-over is the higher one.
TAKE_OVER_EPOCH: Final = 1_000_000_000
#: Output travels in pieces of at most this.
MAX_CHUNK_BYTES: Final = 256 << 10


class Fence(msgspec.Struct, frozen=True):
    """Who gives orders: the cluster, the journal's epoch (rises at each start) and the process's own uuid."""

    cluster_id: str
    epoch: q.Epoch
    instance: str


class OfAttempt(msgspec.Struct, frozen=True):
    """Base of what concerns one attempt at one job."""

    job_id: q.JobId
    attempt: q.AttemptNumber


class OrderId(OfAttempt, frozen=True, order=True):
    """The n-th order for one attempt at one job, to one node. Numbers rise; a later scheduler's are all higher."""

    n: q.OrderNumber


class Peer(msgspec.Struct, frozen=True):
    """A node of a job as the others reach it: ``address`` for MPI and for agents, ``port`` of its agent."""

    name: str
    address: str
    port: q.Port
    tasks: q.Tasks


class JobMap(msgspec.Struct, frozen=True):
    """How many of a malleable job's ranks are enabled on each of its nodes; of two maps the one with the higher number
    counts. Numbers rise, also from one scheduler to the next.
    """

    number: q.Count
    enabled: dict[str, q.Tasks]


class JobFile(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file that a launcher needs on a job's node. ``value`` stands for its path, in the environment and in files.

    In ``text`` the agent replaces what stands for its own (:data:`LOCAL_VALUES`) and for the order's files. A text is
    in a directory of the attempt, readable by its user; a ``program`` is beside ``cosched-rsh``, the same for all jobs.
    """

    value: Annotated[str, msgspec.Meta(pattern=r"^\{[a-z0-9_]{1,40}\}\Z")]
    name: Annotated[str, msgspec.Meta(pattern=r"^[a-z][a-z0-9_.-]{0,40}\Z")]
    text: str
    program: bool = False


class Exit(msgspec.Struct, frozen=True):
    """How a program ended: ``status`` of exit, or the ``signal`` that killed it; neither: unknown, never a success.

    ``cause``: ``own`` (by itself), ``limit``, ``killed`` (by order), ``owner`` (of the desk, by that person's word),
    ``memory`` (over the job's memory), ``unknown``.
    """

    status: q.ExitStatus | None = None
    signal: q.Signal | None = None
    cause: str = "own"


class GroupReport(OfAttempt, frozen=True):
    """What an agent knows of one attempt at a job when it joins. ``state``: prepared, running, ended, or found.

    Found: it is there, and was not made ready by an order that has been answered (older agents said "prepared").
    ``rebooted``: it is of an earlier boot of the machine, and so are its processes.
    """

    state: str
    last_order: q.OrderNumber
    exit: Exit | None = None
    rebooted: bool = False


class Message(msgspec.Struct, frozen=True, tag=True, forbid_unknown_fields=True):
    """Base of all messages; the tag names the class."""


# agent to scheduler


class Hello(Message, frozen=True):
    """The first message of an agent. ``procs`` and ``memory_bytes`` are the node's, all of them.

    ``version`` is the latest that it speaks. ``owner`` is what its owner leaves to parallel work at most: the scheduler
    counts with the stricter of it and the cluster's contract; ``obeyed`` is whom it has obeyed last, ``session`` what
    the scheduler's frames shall carry. ``cluster`` is the name of the cluster (a lab) that it belongs to: version
    1 does not have it, and its nodes belong to the scheduler's own. After the welcome the agent says again every
    :class:`ProgramEnded` and :class:`GroupEnded` that no :class:`Forget` has acknowledged.
    """

    version: q.Version
    node: str
    boot_id: str
    procs: q.Tasks
    memory_bytes: q.Memory
    address: str
    port: q.Port
    software: str
    enforces: dict[str, str] = {}  # capability -> "yes", or why not
    groups: tuple[GroupReport, ...] = ()
    owner: SocialContract = SocialContract()
    obeyed: Fence | None = None
    session: bytes = b""
    cluster: str | msgspec.UnsetType = msgspec.UNSET


class JobSigns(OfAttempt, frozen=True):
    """What a node sees of a job. ``receives``: :class:`cosched.model.coscheduling.Receives`; ``raises``: so far.

    ``transports``: what its processes there talk over, as far as it can be seen waiting, and what cannot; ``effort``:
    what they have done so far. ``ran_us`` is how long all of their threads have run since the node watches them,
    ``queued_us`` how long they have waited for a CPU (-1 both: not known, or a node of an older version). ``stall``:
    what of it cannot be ended; ``seen``: names of its processes that the scheduler wants to hear of and that were there
    (a scheduler of an older version looks at neither). ``hydra``: until version 4, ``hydra_pmi_proxy`` was among them.
    """

    receives: str
    raises: q.Count
    transports: tuple[str, ...] = ()
    effort: Effort = Effort()
    ran_us: q.MicrosOrUnknown = -1
    queued_us: q.MicrosOrUnknown = -1
    stall: Stall | msgspec.UnsetType = msgspec.UNSET
    hydra: bool | msgspec.UnsetType = msgspec.UNSET
    seen: tuple[str, ...] | msgspec.UnsetType = msgspec.UNSET


class Turn(OfAttempt, frozen=True):
    """How a job on this node is to be coscheduled: its mode, what is its due here in CPUs, its row among ``rows``.

    ``rows`` 0: no slots.
    """

    mode: str
    share: q.Cpus
    row: q.Tasks = 0
    rows: q.Tasks = 0


#: A user's on the scheduler's host; -1: that host does not know the name (2^32 - 1 is no uid).
Uid = Annotated[int, msgspec.Meta(ge=-1, le=2**32 - 2)]
UserName = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]

#: What the reason of a node begins with that is drained because its guard does not answer.
NO_GUARD: Final = "guard: "
#: The same of one whose disk has no room for new work.
NO_ROOM: Final = "disk: "
#: The same of one whose certificate has expired.
EXPIRED: Final = "certificate: "


class Heartbeat(Message, frozen=True, omit_defaults=True):
    """The node is alive; how it is used, and whether somebody is there. ``limited_cpus``: the ceiling in force.

    ``blind``: sources of presence that fail, each as "name: why". ``paused``: why nothing may run here now,
    by its owner's word; empty where it may. ``guard``: why the guard does not answer; empty where it does (a scheduler
    that does not know the field is sent none then). ``asked_us`` is the node's clock, for which
    :class:`Turns` gives the scheduler's; ``clock_bound_us`` how well it knows that by now (-1: not at all).
    """

    usage: Usage
    presence: Presence
    presence_source: str = ""
    limited_cpus: q.Cpus | None = None
    armed: bool = True
    blind: tuple[str, ...] = ()
    paused: str = ""
    asked_us: q.Micros = 0
    clock_bound_us: q.MicrosOrUnknown = -1
    raises: q.Count = 0
    jobs: tuple[JobSigns, ...] = ()
    guard: str = ""


class DeskReported(Message, frozen=True):
    """Which contract is in force at the desk, and what its owner feels: before each heartbeat, from version 3 on."""

    report: DeskReport


class JobHeld(OfAttempt, frozen=True, omit_defaults=True):
    """What a node was told last of an attempt at a job that may run there.

    ``order`` is the number of the last order that it has answered; ``tasks``, ``cpus``, ``asleep`` as in
    :class:`Resize`, ``map`` as in :class:`Adapt`. ``tasks`` None: its agent has no record of what it was told.
    """

    order: q.OrderNumber
    tasks: q.Tasks | None = None
    cpus: q.WholeCpus | None = None
    asleep: bool = False
    map: JobMap | None = None


class JobsHeld(Message, frozen=True):
    """All attempts that may run on the node, those that are being ended left out: before each heartbeat, from version
    4 on. The scheduler compares it with what its core holds, and repairs what differs.
    """

    jobs: tuple[JobHeld, ...] = ()


class OwnersWord(Message, frozen=True, omit_defaults=True):
    """What the desk's owner has said, beside a pause. Said at each change, and first of all after a welcome where it is
    anything. (A scheduler that does not know the message refuses it, and goes on; the guard holds to it by itself.)

    ``cpu_ratio``: the share of the CPU that is left at most while somebody is there; ``bans``: users whose jobs are not
    taken; ``ended``: (job, attempt) that the owner has ended there and that no :class:`Forget` has acknowledged.
    """

    cpu_ratio: q.Share = 1.0
    bans: Annotated[tuple[UserName, ...], msgspec.Meta(max_length=32)] = ()
    ended: Annotated[tuple[tuple[q.JobId, q.AttemptNumber], ...], msgspec.Meta(max_length=128)] = ()


#: Where the owner has said nothing.
NO_WORD: Final = OwnersWord()


class Answered(Message, frozen=True):
    """Base of the answers to an order."""

    order: OrderId


class Prepared(Answered, frozen=True):
    """The job's cgroup and private directories are there; ranks may be born here."""


class Started(Answered, frozen=True):
    """The job script runs."""

    pid: q.Pid


class Resized(Answered, frozen=True):
    """The job has what the order gave it, and nothing else here. ``cpus``: the node's numbers of those it may use.

    Empty: all that parallel work may use there.
    """

    cpus: tuple[q.WholeCpus, ...] = ()


class Offered(Answered, frozen=True):
    """The answer to :class:`Adapt`. ``joined``: some rank of the job here is told maps."""

    joined: bool


class Adapted(Message, OfAttempt, frozen=True):
    """All ranks of a job have done what the map with this number asks. May come twice, and after a newer map."""

    number: q.Count


class Asked(Message, OfAttempt, frozen=True):
    """A job asks for so many processes more than it has, or fewer. It asks one thing at a time."""

    more: q.Asked


class Refused(Answered, frozen=True):
    """An order is not obeyed. ``code``: stale, fenced, unknown, user, slow-users (the user database does not answer),
    directory, memory, busy, paused, owner, unrun (a command has not begun in time, and never will), failed.
    """

    code: str
    message: str


class ProgramEnded(Message, OfAttempt, frozen=True):
    """The job script has ended on the first node. ``error_tail``: the last bytes of its error output."""

    exit: Exit
    error_tail: bytes = b""


class GroupEnded(Message, OfAttempt, frozen=True):
    """No process of this attempt is left on this node."""

    cpu_us: q.Micros = 0
    memory_peak_bytes: q.Memory = 0


class OutputChunk(Message, frozen=True):
    """A piece of a job's output. ``size`` is what there is by now; ``final``: it will not grow any more."""

    request: q.Count
    data: bytes
    size: q.Bytes
    final: bool
    error: str = ""


#: The uid and gid of a user whose look-up on a node was not answered; no account has this number.
NO_UID: Final = 2**32 - 1


class Account(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A user on a node. ``problem``: why jobs of his would not run there, empty where they would."""

    uid: q.Uid
    gid: q.Uid
    home: str
    problem: str = ""


class Surveyed(Message, frozen=True):
    """What was asked by :class:`Survey`. ``time_us`` since 1970; users who are not known there are missing."""

    request: q.Count
    time_us: q.Micros
    users: dict[str, Account]


# scheduler to agent


class Welcome(Message, frozen=True):
    """The agent belongs to this cluster from now on. ``version`` is what is spoken on this link.

    ``session`` is what the agent's frames shall carry, ``hello`` its own. ``revoked``: see :class:`Revoked`.
    """

    version: q.Version
    fence: Fence
    heartbeat_us: q.Micros
    lease_us: q.Micros
    contract: SocialContract
    session: bytes = b""
    hello: bytes = b""
    revoked: tuple[str, ...] = ()


class Rejected(Message, frozen=True):
    """The agent is not welcome, and why; it tries again later.

    ``removed_by``: its node was removed from the cluster, and what it still has of this cluster's jobs is to be ended.
    """

    reason: str
    removed_by: Fence | None = None


class Revoked(Message, frozen=True):
    """Certificates (their serial numbers, hexadecimal, all of them) that open no door any more."""

    serials: tuple[str, ...]


class Order(Message, frozen=True):
    """Base of what an agent must obey."""

    fence: Fence
    order: OrderId


class Prepare(Order, frozen=True, omit_defaults=True):
    """Make ready for ranks of a job. ``grant`` is a signed :class:`cosched.wire.grant.Grant`.

    For an attempt that is here already, the same order but for ``peers``, ``environment`` and a grant that is no older
    renews what ranks born later are told of the job's nodes.

    ``memory_bytes`` is for one task, None for no limit of its own; ``limit_us`` the run time at which the first node
    ends the job, with ``grace_us`` between SIGTERM and SIGKILL. ``environment`` is the same on all nodes, except that
    the agent puts its own for values that are, as a whole, one of :data:`LOCAL_VALUES` or the ``value`` of one of
    ``files``, the files that it writes before it answers: ``{rsh}`` is its ``cosched-rsh``; ``{interface}`` the
    network interface that has the node's address (where there is none, the variable is left out); ``{tmp}`` the
    job's own directory for temporary files (``/tmp`` where that is private); in files alone, ``{witness}`` is the
    beginning of a shell command that watches a process (``node_agent/programs/rank_witness.py``), ``{host_name}`` the
    system's host name. ``watched``: names of processes, as the kernel has them, that are told in ``JobSigns.seen``.
    HOME, USER, LOGNAME and SHELL are not
    in it: they are what the node's own user database says (Open MPI does not start without HOME). ``umask`` is the
    submitter's; the usual one is not sent, so that an agent of an earlier version understands the order. ``cpus`` as
    in :class:`Resize`, from the beginning; ``map`` the first of a malleable job, whose ranks on a node where none of
    them is enabled are to sleep; what is usual is not sent. ``uid`` is the submitter's: a node whose account of that
    name has another refuses the order, unless its settings say ``by-name``; None: not said (before version 4).
    """

    user: str
    peers: tuple[Peer, ...]
    tasks: q.Tasks
    memory_bytes: q.Bytes | None
    limit_us: q.Micros | None
    grace_us: q.Micros
    directory: str
    environment: dict[str, str]
    grant: bytes
    umask: q.Umask = DEFAULT_UMASK
    cpus: q.WholeCpus | None = None
    map: JobMap | None = None
    uid: Uid | None = None
    files: tuple[JobFile, ...] | msgspec.UnsetType = msgspec.UNSET
    watched: tuple[str, ...] = ()


class Run(Order, frozen=True):
    """Run the job script, on the first node. Paths of output are opened as the user; None: spooled by the agent."""

    script: bytes
    arguments: tuple[str, ...]
    output: str | None = None
    error: str | None = None


class Resize(Order, frozen=True, omit_defaults=True):
    """A job that runs is to have another share of this node, and other nodes beside it, from now on.

    ``tasks`` are its places here, by which its memory goes. Its processes, those there are and those to come, may use
    ``cpus`` CPUs together; None: all that parallel work may use; 0: none, they are stopped. ``peers``, ``grant`` and
    ``files`` are the job's nodes now, the grant renewed, the files rewritten. ``asleep``: all of its processes here
    sleep, and whatever they do comes after what others do. Either all of it holds when :class:`Resized` is said, or
    nothing has changed.
    """

    tasks: q.Tasks
    cpus: q.WholeCpus | None
    peers: tuple[Peer, ...]
    grant: bytes
    asleep: bool = False
    files: tuple[JobFile, ...] | msgspec.UnsetType = msgspec.UNSET


class Adapt(Order, frozen=True):
    """Tell the ranks of a malleable job here its newest map."""

    map: JobMap


class Kill(Order, frozen=True):
    """End everything of this attempt here: SIGTERM, ``grace_us``, SIGKILL until nothing is left."""

    grace_us: q.Micros


class Forget(Order, frozen=True):
    """The end has been recorded: records and private directories may go. Output stays until ``Discard``."""


class Discard(Order, frozen=True):
    """The output is no longer wanted."""


class Turns(Message, frozen=True):
    """The answer to a heartbeat: the scheduler's clock, and the jobs of this node among their neighbours."""

    asked_us: q.Micros
    now_us: q.Micros
    slot_us: q.Micros
    contended: bool = False
    jobs: tuple[Turn, ...] = ()


class AskAnswered(Message, OfAttempt, frozen=True):
    """What a job is given of what it has asked for. ``waits``: the rest is not free yet, and the job waits for it."""

    given: q.Asked
    waits: bool


class Survey(Message, frozen=True, omit_defaults=True):
    """Say what these users are on this node, and what its clock says. ``uids``: theirs, by name, as of an order."""

    request: q.Count
    users: tuple[str, ...]
    uids: dict[str, Uid] = {}


class ReadOutput(Message, frozen=True):
    """Send a piece of a job's spooled output. ``stream``: stdout or stderr."""

    request: q.Count
    job_id: q.JobId
    attempt: q.AttemptNumber
    stream: str
    offset: q.Bytes
    max_bytes: q.Bytes


FromAgent = (
    Hello
    | Heartbeat
    | DeskReported
    | JobsHeld
    | OwnersWord
    | Prepared
    | Started
    | Resized
    | Offered
    | Adapted
    | Asked
    | Refused
    | ProgramEnded
    | GroupEnded
    | OutputChunk
    | Surveyed
)
ToAgent = (
    Welcome
    | Rejected
    | Revoked
    | Prepare
    | Run
    | Resize
    | Adapt
    | AskAnswered
    | Kill
    | Forget
    | Discard
    | ReadOutput
    | Survey
    | Turns
)

#: Values in ``Prepare.environment`` and the texts of files that each agent replaces by what they are on its node.
LOCAL_VALUES: Final = ("{rsh}", "{witness}", "{host_name}", "{interface}", "{tmp}")

Kind = TypeVar("Kind")
_encoder = msgspec.msgpack.Encoder()
_from_agent: msgspec.msgpack.Decoder[FromAgent] = msgspec.msgpack.Decoder(FromAgent)
_to_agent: msgspec.msgpack.Decoder[ToAgent] = msgspec.msgpack.Decoder(ToAgent)


def spoken(version: int) -> int:
    """The version that is spoken with a side that speaks this one and those before it; 0 where there is none."""
    return min(version, VERSION) if version >= RIGID_VERSION else 0


def encode(message: FromAgent | ToAgent) -> bytes:
    """One frame. Raises ValueError where it would be too long to be accepted."""
    frame = _encoder.encode(message)
    if len(frame) + HEADER_BYTES > MAX_FRAME_BYTES:
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
