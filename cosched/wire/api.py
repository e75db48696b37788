"""Documents of the HTTP API, version 1: what clients send and get. The served OpenAPI document is made from these.

Times are ISO 8601 with the offset, durations and sizes carry their unit in the name. See docs/guide/api.md. Routes::

    POST /v1/jobs                      Submission -> 201 JobDoc
    GET  /v1/jobs?user=NAME            JobList, alive
    GET  /v1/history?user=NAME&limit=N JobList, ended
    GET  /v1/jobs/ID                   JobDoc
    GET  /v1/jobs/ID/explain           Explanation
    GET  /v1/jobs/ID/wait?timeout_s=N  JobDoc: as soon as the job has ended, or after so long as it is
    POST /v1/jobs/ID/cancel|hold|release  JobDoc
    GET  /v1/jobs/ID/output?stream=stdout|stderr&offset=N&max_bytes=M
                                       bytes; headers Cosched-Size: what there is by now, Cosched-Final: 1 for all
    GET  /v1/nodes                     NodeList
    POST /v1/nodes/NAME/drain|resume   DrainRequest (drain) -> NodeDoc
    POST /v1/nodes/NAME/admit|remove   RemoveRequest (remove) -> MemberDoc
    GET  /v1/set-aside                 SetAsideList
    GET  /v1/survey?user=NAME,NAME     SurveyDoc
    POST /v1/tokens                    TokenRequest -> 201 NewToken
    GET  /v1/tokens                    TokenList
    POST /v1/tokens/ID/revoke          TokenDoc
    POST /v1/page                      PageLink (201)
    GET  /v1/certificates              CertificateList
    POST /v1/certificates/revoke       RevokeRequest -> RevokedDoc
    GET  /v1/cluster                   ClusterDoc
    POST /v1/policy                    PolicyRequest -> PolicyDoc

Every error has a Problem for its body: 400 and 422 bad input, 401 nobody known, 403 not yours, 404 no such thing,
409 not in this state, 503 not now.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

import msgspec

from cosched.model.coscheduling import Mode
from cosched.model.job import DEFAULT_UMASK
from cosched.model.node import Presence, Usage
from cosched.model.sizes import MAX_TASKS
from cosched.model.time import seconds, us
from cosched.wire.foreign import CHOICES

#: How an option's text becomes a field's value; "flag": it has none.
Unit = Literal["text", "flag", "yes|no", "number", "sizes", "components", "part", "time", "size", "variables"]
EXPORTS: Final = ("programs", "all", "none")
_TASKS: Final[dict[str, Any]] = {
    "metavar": "N",
    "unit": "number",
    "within": (1, MAX_TASKS),
    "expected": f"a number of tasks of at least 1, at most {MAX_TASKS}",
}


@dataclass(frozen=True, slots=True)
class Asked:
    """An option of ``cosched submit`` and of a script's ``#COSCHED`` lines, declared with the field that it sets.

    ``options``: its spellings, separated by spaces, then its parameter where that is not named as the field. ``help``
    ends with the default in brackets, unless ``default`` has it. ``words``: the only values. ``within``: the least and
    the greatest number, which ``expected`` names. ``job``: the field of the core's :class:`~cosched.model.job.Job` that
    has the value, converted by ``to_job`` and, for :class:`JobDoc`, back by ``from_job``; None is not converted: there
    the cluster's default counts, or the job's. ``shown``: what ``show`` says of the field of :class:`JobDoc` with that
    name, whose value stands for ``{}``. See docs/design/adding.md.
    """

    options: str
    help: str
    metavar: str = ""
    unit: Unit = "text"
    words: tuple[str, ...] = ()
    within: tuple[int, int] | None = None
    expected: str = ""
    default: str | None = None
    job: str = ""
    to_job: Callable[[Any], Any] = lambda value: value
    from_job: Callable[[Any], Any] = lambda value: value or None
    shown: str = ""


class Submission(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """POST /v1/jobs. The submitter is who the connection says, never a field."""

    # the order is that of ``cosched submit --help``; an option's help says what the field is
    script: str
    arguments: tuple[str, ...] = ()
    tasks: Annotated[
        int,
        Asked(
            "-n --tasks",
            "Tasks: all start at once, or none.",
            **_TASKS,
            default="1",
            job="procs",
        ),
    ] = 1
    sizes: Annotated[
        str | None,
        Asked(
            "--sizes",
            "Instead of -n, what it can be started with: 8, 1-8, '4;8;16', pow2 or square.",
            metavar="SIZES",
            unit="sizes",
        ),
    ] = None
    min_tasks: Annotated[
        int | None,
        Asked(
            "--min",
            "Instead of -n, the fewest tasks with which it can go on [1 where --max is given].",
            **_TASKS,
        ),
    ] = None
    max_tasks: Annotated[
        int | None,
        Asked(
            "--max",
            "The most that it can use [the cluster].",
            **_TASKS,
        ),
    ] = None
    evolve_tasks: Annotated[
        int | None,
        Asked(
            "--evolve",
            "How many tasks more, or fewer, it may ask for itself while it runs [0].",
            **_TASKS,
        ),
    ] = None
    fold: Annotated[
        bool | None,
        Asked("--fold", "Whether tasks may share a CPU [yes].", unit="yes|no", words=("yes", "no"), job="foldable"),
    ] = None
    job_class: Annotated[
        str | None,
        Asked(
            "--class",
            "Its class of run time [short].",
            words=("long", "short"),
            job="long",
            to_job=lambda word: word == "long",
        ),
    ] = None
    components: Annotated[
        tuple[int, ...] | None,
        Asked(
            "--components",
            "Tasks of each of its components, such as 2+2, which lie on clusters of their own "
            "[the cluster's settings].",
            metavar="N+N…",
            unit="components",
        ),
    ] = None
    crossing: Annotated[
        float | None,
        Asked(
            "--crossing",
            "Part of its time that it takes longer on several clusters, such as 0.25 [as its kind does].",
            metavar="X",
            unit="part",
            job="crossing_ppm",
            to_job=lambda part: round(part * 1_000_000),
        ),
    ] = None
    time_limit_s: Annotated[
        float | None,
        Asked(
            "-t --time",
            "Estimate and limit of its run time, such as 10min, or 10 or 00:10:00 as in Slurm [the cluster's].",
            metavar="TIME",
            unit="time",
            job="estimate_us",
            to_job=us,
            from_job=seconds,
            shown="at most {}",
        ),
    ] = None
    memory_bytes: Annotated[
        int | None,
        Asked(
            "--mem",
            "Memory of each task, such as 512MB [the cluster's].",
            metavar="SIZE",
            unit="size",
            within=(1, (1 << 60) - 1),
            expected="a number of bytes of at least 1, for each task",
            job="memory_bytes",
            shown="{} of memory each",
        ),
    ] = None
    kind: Annotated[
        str | None,
        Asked(
            "--kind",
            "Whether it mostly computes or mostly communicates.",
            words=("cpu", "comm"),
            job="kind",
        ),
    ] = None
    coscheduling: Annotated[
        str | None,
        Asked(
            "--coscheduling",
            "How it runs beside other jobs on its nodes: none, ccs, dcs, spin or gang [the cluster's].",
            metavar="MODE",
            words=tuple(mode.value for mode in Mode),
            job="coscheduling",
        ),
    ] = None
    name: Annotated[str, Asked("-J --name", "What it is called [the script's name].")] = ""
    output: Annotated[
        str | None,
        Asked(
            "-o --output",
            "Write its output there, on its first node; %j %x %u %N: number, name, user, node "
            "[COSCHED_OUTPUT, else kept for 'cosched logs'].",
            metavar="PATH",
        ),
    ] = None
    error: Annotated[str | None, Asked("-e --error", "The same for its error output.", metavar="PATH")] = None
    directory: Annotated[
        str, Asked("-D --directory", "Where it works; must be on every node [the current directory].", metavar="DIR")
    ]
    environment: Annotated[
        dict[str, str],
        Asked("--env", "Also set this variable; repeatable.", metavar="NAME[=VALUE]", unit="variables"),
        Asked(
            "--export export",
            "Which of your variables it gets: what finds programs (PATH and the like), all, or none.",
            words=EXPORTS,
            default="programs",
        ),
    ] = {}
    foreign_directives: Annotated[
        str | None,
        Asked(
            "--foreign-directives",
            "What to do where the script has #SBATCH lines or the like that are not read [the cluster's settings].",
            words=CHOICES,
        ),
    ] = None
    hold: Annotated[bool, Asked("-H --hold", "Do not start it before 'cosched release'.", unit="flag")] = False
    requeue: Annotated[
        bool,
        Asked("--requeue", "When a node of it is lost, run it again from its beginning.", unit="flag", job="requeue"),
    ] = False
    umask: int = DEFAULT_UMASK  # of all its processes, and of the files of output and error

    @property
    def several_sizes(self) -> bool:
        """Whether it says more than one number of tasks."""
        others = (self.sizes, self.min_tasks, self.max_tasks, self.evolve_tasks)
        return any(each is not None for each in others)


#: A field's name with each option that sets it, in the order of ``--help``.
ASKED: Final = [
    (name, asked) for name, kind in Submission.__annotations__.items() for asked in getattr(kind, "__metadata__", ())
]


class WhyDoc(msgspec.Struct, frozen=True):
    """A reason: its name, its words, its numbers, and all of it as one line for people."""

    why: str
    text: str
    numbers: dict[str, int] = {}


class ShareDoc(msgspec.Struct, frozen=True):
    """A job's tasks on one node, and on how many of its CPUs they run."""

    name: str
    tasks: int
    cpus: int = -1  # of an earlier service, which does not say


class HeldDoc(msgspec.Struct, frozen=True):
    """What a job has held from then on: so many tasks on so many CPUs; ``reason``: why it was given that."""

    time: str
    tasks: int
    cpus: int
    reason: WhyDoc | None = None


class ShapeDoc(msgspec.Struct, frozen=True, kw_only=True):
    """What a job says of its shape: numbers of tasks from ``min_tasks`` to ``max_tasks``, of them ``sizes`` alone.

    No ``sizes``: each between. ``malleable``: it can have others while it runs, not only when it starts. ``evolve``: so
    many more, or fewer, it may ask for itself. ``components``: tasks of each, on clusters of their own;
    ``most_components``: how many of them it has at most, where they are chosen when it starts (0: one). ``fold`` and
    ``job_class`` as they were submitted. ``note``: what the service makes of all that, in words.
    """

    min_tasks: int
    max_tasks: int
    sizes: list[int] = []
    malleable: bool = False
    evolve: int = 0
    fold: bool | None = None
    job_class: str | None = None
    note: str
    components: list[int] = []
    most_components: int = 0


class Step(msgspec.Struct, frozen=True):
    """One transition of a job's life."""

    time: str
    state: str
    reason: WhyDoc | None = None
    note: str = ""


class Failure(msgspec.Struct, frozen=True):
    """Why a job failed: where known its rank and node; ``tail`` has the last lines of its error output."""

    message: str
    node: str | None = None
    rank: int | None = None
    tail: list[str] = []


class EffortDoc(msgspec.Struct, frozen=True):
    """What agents saw of a job's processes: CPU seconds, which part of their time was communication, data that came.

    ``orientation``: "cpu" or "comm" (empty: too little was seen), which a job of the same script and arguments counts
    as next time.
    """

    orientation: str
    seen_cpu_s: float
    communication: float
    arrivals_per_s: float
    received_bytes_per_s: float


class PausedDoc(msgspec.Struct, frozen=True):
    """A node of a job whose owner has paused parallel work there: since when, in the words of that node.

    ``since`` is when the scheduler heard of it; ``limit_stands``: the job's time limit does not run meanwhile.
    """

    node: str
    since: str | None
    reason: str
    limit_stands: bool


class LimitedDoc(msgspec.Struct, frozen=True):
    """A node of a job whose contract leaves parallel work at most ``cpus`` CPUs now, fewer than jobs have there.

    ``since`` is when the scheduler heard of it, to the minute.
    """

    node: str
    since: str | None
    cpus: float


class StalledProcessDoc(msgspec.Struct, frozen=True):
    """A process that hears no signal: the kernel's function that it waits in, the mount point and path of what its
    system call works on, as far as they are known. ``path`` is for its user and operators alone.
    """

    pid: int
    command: str
    channel: str
    mount: str
    path: str
    text: str


class StalledDoc(msgspec.Struct, frozen=True, kw_only=True):
    """What is left of an attempt at a job on a node and cannot be ended: since when it is to end, what it holds there.

    ``processes``: the first of them. ``ends_when``: what has to happen, for people.
    """

    node: str
    job_id: int
    attempt: int
    user: str
    since: str
    procs: int
    memory_bytes: int
    processes: list[StalledProcessDoc] = []
    ends_when: str


class JobDoc(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/jobs/ID: a job, alive or ended.

    ``kind_from``: "declared", or "measured" when a job of the same program ran before; ``effort``: of an ended job.
    ``tasks``: how many it has, ``cpus``: on how many CPUs they run; ``shape``: what it says of other numbers and of
    folding, where it says anything. ``changes``: what it has been given instead since it started, the last hundred.
    ``stalled``: what of it cannot be ended, also of an attempt whose launch has failed. ``notes``: what its script does
    that is probably not meant; in lists empty. ``slowed``: whether a node of it is limited; ``limited``: which, for its
    user and operators.
    """

    job_id: int
    name: str
    user: str
    state: str
    reason: WhyDoc | None = None
    tasks: int
    cpus: int | None = None
    shape: ShapeDoc | None = None
    changes: list[HeldDoc] = []
    kind: str | None = None
    kind_from: str = ""
    time_limit_s: float
    memory_bytes: int | None = None
    directory: str
    output: str | None = None
    error: str | None = None
    nodes: list[ShareDoc] = []
    submit_time: str
    start_time: str | None = None
    end_time: str | None = None
    wait_s: float | None = None
    run_s: float | None = None
    turnaround_s: float | None = None
    cpu_s: float | None = None
    promised_start: str | None = None
    exit_status: int | None = None
    signal: int | None = None
    failure: Failure | None = None
    effort: EffortDoc | None = None
    paused: list[PausedDoc] = []
    stalled: list[StalledDoc] = []
    notes: list[str] = []
    slowed: bool = False
    limited: list[LimitedDoc] = []
    history: list[Step] = []


class JobList(msgspec.Struct, frozen=True):
    """GET /v1/jobs (alive, in the queue's order after what runs) and GET /v1/history (ended, newest first)."""

    jobs: list[JobDoc]


class NodeDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A node as GET /v1/nodes shows it. ``state``: up, draining, drained, closed, lost, asleep, unknown.

    ``availability``: free, limited, not_available; empty from a service of an earlier version. ``presence`` (null),
    ``presence_source``, ``blind``, what others than jobs use (-1), and whose word a pause is, are for operators alone.
    ``version``: of the link's messages, as its agent speaks them; with 1 no job there changes its shape. ``refused``:
    why the agent that called last may not join. ``cluster``: the one (a lab) that it belongs to.
    ``certificate_until``: when the certificate expires that its agent showed last. ``stalled``: what of jobs cannot be
    ended there; ``held_procs``: processors of ended jobs among ``procs`` that it keeps from others.
    """

    name: str
    state: str
    reason: str = ""
    procs: int
    memory_bytes: int
    used_procs: int = 0
    used_memory_bytes: int = 0
    availability: str = ""
    presence: Presence | None = None
    presence_source: str = ""
    blind: list[str] = []  # sources of presence that fail: "name: why"
    usage: Usage | None = None
    limited_cpus: float | None = None
    armed: bool | None = None
    enforces: dict[str, str] = {}
    jobs: list[int] = []
    last_heard: str | None = None
    address: str = ""
    version: int | None = None
    refused: str = ""
    cluster: str = ""
    certificate_until: str | None = None
    stalled: list[StalledDoc] = []
    held_procs: int = 0

    @property
    def occupied(self) -> bool:
        """Whether parallel work is limited there, as if somebody were there."""
        return self.availability != "free" if self.presence is None else self.presence.counts_as_present

    @property
    def desk(self) -> str:
        """Who is there, for who may know it; else what is available."""
        return self.availability.replace("_", " ") if self.presence is None else self.presence.value


class NodeList(msgspec.Struct, frozen=True):
    """GET /v1/nodes."""

    nodes: list[NodeDoc]


class SetAsideDoc(msgspec.Struct, frozen=True, kw_only=True):
    """A node, job, launch or policy that is set aside: by what, since when, and what brings it back.

    ``kind``: service, policy, node, user, launch or job; ``name``: a job's number, else a name. ``user``: whose job or
    launch it is. ``since``: null where it is not known.
    """

    kind: str
    name: str
    user: str = ""
    what: str
    by: str
    since: str | None = None
    back: str


class SetAsideList(msgspec.Struct, frozen=True):
    """GET /v1/set-aside: all of it for operators; for others service, policy, nodes, and their own jobs."""

    set_aside: list[SetAsideDoc]


class DrainRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/nodes/NAME/drain."""

    reason: str = ""


class RemoveRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/nodes/NAME/remove: the serial numbers of its certificates, in hexadecimal, as far as they are known."""

    serials: list[str] = []


class RevokeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/certificates/revoke: whose certificates, and their serial numbers in hexadecimal, as far as known.

    Those of that identity that were shown to the service are revoked with them, unless ``only`` these are meant.
    """

    kind: Literal["scheduler", "node", "user"]
    name: str
    serials: list[str] = []
    only: bool = False


class CertificateDoc(msgspec.Struct, frozen=True):
    """A certificate that the service knows. ``until`` is None where it was never shown to this start of the service."""

    serial: str
    kind: str
    name: str
    until: str | None
    revoked: bool


class CertificateList(msgspec.Struct, frozen=True):
    """GET /v1/certificates: those that were shown since the service was started, and all that were revoked.

    ``expires`` says for each identity until when it is valid: the scheduler's own, the authority's, of all others the
    certificate that was shown last.
    """

    certificates: list[CertificateDoc]
    expires: dict[str, str] = {}


class RevokedDoc(msgspec.Struct, frozen=True):
    """What was revoked: serial numbers; ``closed`` connections were ended."""

    serials: list[str]
    closed: int


class MemberDoc(msgspec.Struct, frozen=True):
    """Who belongs to the cluster now: the nodes that may join; ``revoked`` is how many certificates count no more."""

    nodes: list[str]
    revoked: int


class AccountDoc(msgspec.Struct, frozen=True):
    """A user on a node; ``problem``: why his jobs would not run there, empty where they would."""

    uid: int
    gid: int
    home: str
    problem: str = ""


class NodeSurvey(msgspec.Struct, frozen=True):
    """What a node has answered. ``clock_s``: its clock before (-) or after the scheduler's, give or take half
    ``round_trip_s``; ``software`` its version. Users who are missing are not known there."""

    name: str
    software: str
    clock_s: float
    round_trip_s: float
    users: dict[str, AccountDoc]


class SurveyDoc(msgspec.Struct, frozen=True):
    """GET /v1/survey: the nodes that answer; ``silent`` are connected and do not.

    ``uids`` are the users' on the scheduler's host; who is missing has no account there. Null: an earlier version.
    """

    nodes: list[NodeSurvey]
    silent: list[str] = []
    uids: dict[str, int] | None = None


class TokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """POST /v1/tokens. ``user`` is the caller himself where absent; another only for operators.

    ``read_only``: for monitoring; it opens no job.
    """

    life_s: float
    user: str | None = None
    label: str = ""
    read_only: bool = False


class TokenDoc(msgspec.Struct, frozen=True):
    """A token, without its secret."""

    id: str
    user: str
    label: str
    created: str
    expires: str
    expired: bool = False
    read_only: bool = False


class TokenList(msgspec.Struct, frozen=True):
    """GET /v1/tokens: the caller's, all for operators; the newest first."""

    tokens: list[TokenDoc]


class NewToken(msgspec.Struct, frozen=True):
    """A token that was made: its words, told this once, and the authority by which its holder knows the service."""

    token: TokenDoc
    words: str
    authority: str  # ca.pem


#: The cookie that opens a visit of the page.
PAGE_COOKIE: Final = "cosched_page"


class PageLink(msgspec.Struct, frozen=True):
    """POST /v1/page: where the page lets a browser in, once, for so long from now on (docs/guide/page.md)."""

    path: str
    life_s: float


class RestartDoc(msgspec.Struct, frozen=True, kw_only=True):
    """What the last start of the service found. ``jobs`` were taken over; ``awaited`` nodes are still to be heard.

    ``differed``: where the nodes said otherwise than the journal, in words.
    """

    jobs: int = 0
    awaited: list[str] = []
    differed: list[str] = []


class ClusterDoc(msgspec.Struct, frozen=True, kw_only=True):
    """GET /v1/cluster."""

    name: str
    cluster_id: str
    epoch: int
    version: str
    policy: str
    started: str
    time: str
    accepting: bool
    note: str = ""  # why it does not accept, or which tier of lab it is
    nodes: int
    procs: int
    free_procs: int
    queued: int
    running: int
    restart: RestartDoc = RestartDoc()
    set_aside: int = 0  # jobs that passes leave out, since planning fails with them


class PolicyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """POST /v1/policy: a name as in ``policy`` of the cluster's settings, and an order's where it is not its own."""

    policy: str
    order: str | None = None


class PolicyDoc(msgspec.Struct, frozen=True):
    """The policy that decides now, the one before, and that of the settings, which the next start has again."""

    policy: str
    order: str | None
    before: str
    settings: str


class CoschedulingDoc(msgspec.Struct, frozen=True):
    """How a job is run together with its neighbours, by what its nodes said last.

    ``receives``: how it waits for messages, by node; ``raises``: how often it went first, on all nodes; ``share`` of a
    CPU that is each task's due; ``rows`` above 0: it has one of so many turns, ``slot_s`` long. ``transports`` are what
    its processes talk over, ``unseen`` those of them on which nobody sees messages wait. ``done_s``: the work that it
    has done, in seconds alone on idle nodes, where its time limit counts that; ``done_estimated``: it polls for
    messages, so it has not done more than that.
    """

    mode: str
    receives: dict[str, str]
    raises: int = 0
    share: float = 1.0
    row: int = 0
    rows: int = 0
    slot_s: float = 0.0
    transports: list[str] = []
    unseen: list[str] = []
    done_s: float | None = None
    done_estimated: bool = False


class OnNodeDoc(msgspec.Struct, frozen=True):
    """A node for a job that waits: how many of its tasks it takes now, or by which limit none.

    ``rank`` is its place in the order of use, by memory, tasks and CPU in use (0: it takes none). Operators are told
    all of it with what the node's owner uses; others as if nobody were at any desk.
    """

    name: str
    tasks: int
    limit: str
    rank: int
    used_memory_bytes: int
    used_tasks: int
    used_cpus: float


class Explanation(msgspec.Struct, frozen=True):
    """GET /v1/jobs/ID/explain: why it is in the state it is in, from the decision's own record."""

    job_id: int
    state: str
    reason: WhyDoc
    decided: str  # when
    cause: str = ""  # the event that led to the decision
    promised_start: str | None = None
    coscheduling: CoschedulingDoc | None = None  # while it holds nodes
    nodes: list[OnNodeDoc] = []  # while it waits
    shape: ShapeDoc | None = None  # where it says anything of it
    paused: list[PausedDoc] = []  # by owners of its nodes, while it holds these
    stalled: list[StalledDoc] = []  # what of it cannot be ended
    limited: list[LimitedDoc] = []  # by the contracts of its nodes, for its user and operators


class Problem(msgspec.Struct, frozen=True):
    """The body of every error: what was asked, what was found, what is expected, and the nearest valid choice."""

    message: str
    where: str = ""
    found: str = ""
    expected: str = ""
    nearest: str = ""
