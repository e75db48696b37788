"""What agent and guard say to each other, over a Unix socket of packets (SOCK_SEQPACKET), one JSON object a packet.

The guard accepts one connection at a time, from the user that its configuration names (peer credentials). A request has
``do``, ``re`` (a number of the caller's) and the fields below; its answer has the same ``re`` and ``ok`` (true, with
results) or ``error`` (a code of ``wire.messages.Refused``) and ``message``. Events have ``event`` and come unasked.
Descriptors travel beside the packet (SCM_RIGHTS). At end of file, the guard arms the contract and keeps what runs.
Answers come when they are there, not in the order of the requests; what happens while no agent listens is in ``list``.

requests
    contract  {cpu_ratio, memory_ratio, mpl}            the cluster's contract; the owner's own maximum still cuts it
    relax     {until_us, epoch}                         no CPU ceiling until then (CLOCK_BOOTTIME, microseconds);
              answers {until_us}, at most 120 s from now; an epoch below the highest seen is refused, and a past moment
    arm       {}                                        the ceiling holds from now on
    tighten   {ratio, until_us}                         while armed, only this share of the ceiling until then (at most
              120 s from now); a later request replaces it
    prepare   {job, attempt, user, directory, tasks, memory_bytes, limit_us, grace_us, umask, uid}   cgroup, private
              directories; answers {problems: [what could not be limited, and why], uid: whose its processes are};
              refused (user) where the user has another uid here than ``uid``, but with ``users = "by-name"``
    spawn     {job, attempt, n, argv, env, cwd, script, output, error, stream}  + descriptors: stdin, stdout, stderr
              n = 0 is the job script, whose text is in a fourth descriptor (a file or memfd) when ``script`` is true:
              it is copied into the job's directory and takes argv[0]'s place. ``output`` and ``error``: paths opened
              as the user, or null. ``stream`` (32 hexadecimal digits, or null): no descriptors come along; the
              supervisor keeps the streams, for whom the agent connects to ``state/jobs/JOB.ATTEMPT/STREAM``
              (``streams``), and a second command of that name is refused (busy). Answers {pid} when the command
              has been executed, or why it could not be. One that has not been within 12 s is refused (unrun), and never
              is; the same request for one that is on its way is answered with it. The time limit counts from then on
    resize    {job, attempt, n, tasks, cpus}            another share of the node: memory by its tasks, and so many CPUs
              for its processes, those there are and those to come (null: any). By a controller cpuset where there is
              one, else by the affinity of every thread, looked after. It outlasts agent and guard. ``n`` below that of
              the last one obeyed is refused (stale), that one again is answered by what it gave. Answers {cpus: [their
              numbers]}, none where any may be used
    signal    {job, attempt, n, signal}                 to that command's process group; answers {sent: processes}
    kill      {job, attempt, grace_us}                  SIGTERM to all, grace, SIGKILL until the cgroup is empty;
              ``empty`` follows, also where nothing was left; nothing can be spawned any more
    forget    {job, attempt}                            remove cgroup, private directories, records; refused while alive
    weigh     {job, attempt, percent, until_us}         its weight against the other jobs (100: as all are made), until
              then, at most 10 s from now; answers {until_us}
    slots     {begin_us, slot_us, rows: [[[job, attempt]]], until_us}   from begin_us on (CLOCK_BOOTTIME), slot after
              slot, the jobs of row n % rows run and those of other rows only where nobody else would, until then, at
              most 10 s from now; jobs in no row are left alone, no rows end it; answers {until_us}
              Both are undone: when they expire, when the agent goes, when the guard ends or starts
    whose     {pid}                                     answers {job, attempt} whose cgroup a process is in
    accounts  {users: {name: its uid on the scheduler's host, or null}}   64 at most; answers {users: {name: [uid, gid,
              home, problem]}}, without names that are unknown here. Refused (failed) where the user database or a home
              does not answer within 3 s, and (busy) while one that was given up so still waits for it
    keys      {}                                        from now on, until the agent goes, ``keys`` tells of terminals
    list      {}                                        answers {groups: [{job, attempt, user, uid, state, ending,
              deadline_us, cpu_us, memory_peak_bytes, cpus, commands: [{n, state, pid, status, signal, cause}]}]}
              state: preparing, prepared, running, empty (nothing runs, more may come), ending, ended
              a command's state: starting, running, ended (the last three fields, only then)
    status    {}                                        answers {armed, until_us, epoch, contract, limits: {cpus, idle,
              memory_bytes, problems}, can: {capability: yes | why not}, levers: [[job, attempt, percent, idle]] of
              jobs that are not as they were made, raises: how often jobs were given more weight, levers_problem,
              paused: why nothing may run here, or "", paused_until_us: null where no end is set,
              closed: whether it is for the hour alone, by the owner's hours,
              pauses: how many have begun since the guard started, contract_cpus: the ceiling of the contract,
              probe: {wakeups: {counts, late_us} of ``cosched.linux.wakeups``, or null, problem},
              inhibited_until_us: until then somebody at the desk watches something and touches nothing,
              wake: [[from_us, until_us]]: when the owner lets the machine be woken for jobs in the coming days (64
              at most); null: never,
              word: what the desk's owner has said: {cpu_ratio: a share below the contract's, or null, bans: users whose
              jobs are refused (owner), ended: [[job, attempt]] that the owner has ended, not yet forgotten}}
events
    exited    {job, attempt, n, status | signal, cause}  a command has ended (cause as in wire.messages.Exit)
    empty     {job, attempt, cpu_us, memory_peak_bytes}  no process is left in the job's cgroup: after commands have
              ended (each time, where more are spawned later), and after ``kill``
    stalled   {job, attempt, user, procs, memory_bytes, since_us, processes: [{pid, command, channel, path, mount,
              device, own}]}   four at most of the processes that are left five seconds after they were killed at
              ``since_us``, and what each waits for (``cosched.linux.stalls``); ``own``: on a file system that guard and
              agent write to; again every five seconds, until ``empty``
    armed     {why}                                      the guard has armed by itself
    keys      {terminals: [their device numbers]}        somebody has typed there; five times a second at most
    desk      {paused, paused_until_us, closed, inhibited_until_us, word, wake}   somebody there has said something

Each request is defined once, here: encoded for the agent, and checked by the guard before anything is done. Its word on
the wire (``do``) is its class's name in small letters, its fields are the class's. ``Annotated[int, check]`` is an int
to the agent's code; the guard calls the check with what it has read, which gives the value as the request has it, or
raises ValueError with what was expected.
"""

import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, get_args, get_type_hints

MAX_PACKET_BYTES: Final = 192 << 10
#: Bounds of ``weigh`` and ``slots``.
MAX_PERCENT: Final = 10_000
MAX_ROWS: Final = 16
#: For how long ``weigh``, ``slots`` and ``periods`` hold at most: a request beyond that is cut.
MAX_LEASE_US: Final = 10_000_000
MAX_SUBMITTERS: Final = 64
MIN_SLOT_US: Final = 5_000
MAX_SLOT_US: Final = 10_000_000
SOCKET_NAME: Final = "guard.sock"
MAX_NUMBER: Final = 2**53  # what JSON carries exactly everywhere
_MAX_GRACE_US: Final = 3_600_000_000
_MAX_TEXT: Final = 4096
_MAX_ARGUMENTS: Final = 4096
_LAST_SIGNAL: Final = 64

Check = Callable[[Any], Any]


def where(holds: Callable[[Any], object], expected: str, first: Check = lambda value: value) -> Check:
    """A check of what ``first`` makes of a value: it gives that, or raises ValueError with what was expected."""

    def check(value: object) -> Any:
        if not holds(checked := first(value)):
            raise ValueError(f"expected {expected}")
        return checked

    return check


def _whole(least: int, most: int = MAX_NUMBER) -> Check:
    return where(lambda value: type(value) is int and least <= value <= most, f"a whole number from {least} to {most}")


def _optional(check: Check) -> Check:
    return lambda value: None if value is None else check(value)


def _text(value: object, most: int = _MAX_TEXT) -> str:
    """A text that the kernel takes: no NUL, encodable."""
    if not isinstance(value, str) or len(value) > most or "\0" in value:
        raise ValueError(f"expected a text of at most {most} characters without NUL")
    try:
        os.fsencode(value)
    except UnicodeEncodeError:
        raise ValueError("characters that no path can have") from None
    return value


_name: Final = where(
    lambda name: name and name.isprintable() and not set("/: ") & {*name},
    "a user's name",
    lambda value: _text(value, 256),
)
_ratio: Final = where(lambda value: type(value) in {int, float} and 0 < value <= 1, "a share above 0, up to 1")


def is_user(name: str) -> bool:
    """Whether it is taken for a user's name."""
    try:
        return bool(_name(name))
    except ValueError:
        return False


def _arguments(value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= _MAX_ARGUMENTS:
        raise ValueError(f"expected 1 to {_MAX_ARGUMENTS} arguments")
    arguments = tuple(_text(item, MAX_PACKET_BYTES) for item in value)
    if not arguments[0]:
        raise ValueError("expected a command")
    return arguments


def _environment(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError("expected names and values")
    found = {}
    for name, setting in value.items():
        if not _text(name) or "=" in name:
            raise ValueError(f"{name[:80]!r} is no variable's name")
        found[name] = _text(setting, MAX_PACKET_BYTES)
    return found


def _submitters(value: object) -> dict[str, int | None]:
    """Users' names, each with its uid as the scheduler's host has it."""
    if not isinstance(value, dict) or len(value) > MAX_SUBMITTERS:
        raise ValueError(f"expected at most {MAX_SUBMITTERS} names, each with a uid or null")
    return {_name(name): _uid(uid) for name, uid in value.items()}


def _rows(value: object) -> tuple[tuple[tuple[int, int], ...], ...]:
    """Rows of attempts, each attempt in one of them alone."""
    if not isinstance(value, list) or len(value) > MAX_ROWS or not all(isinstance(row, list) for row in value):
        raise ValueError(f"expected at most {MAX_ROWS} rows, each a list of [job, attempt]")
    rows = tuple(tuple(_attempt(each) for each in row) for row in value)
    named = [each for row in rows for each in row]
    if len(set(named)) < len(named):
        raise ValueError("an attempt is named twice")
    return rows


def _attempt(value: object) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError("expected rows of [job, attempt]")
    return _job(value[0]), _number(value[1])


_job, _number, _uid = _whole(0, 10**18 - 1), _whole(0, 10**9 - 1), _optional(_whole(-1, 2**32 - 2))
Job = Annotated[int, _job]
Attempt = Annotated[int, _number]
Number = Annotated[int, _whole(0, 2**31)]
Tasks = Annotated[int, _whole(1, 10**6)]
Cpus = Annotated[int | None, _optional(_whole(0, 10**6))]
Count = Annotated[int, _whole(0)]
Ratio = Annotated[float, lambda value: float(_ratio(value))]
Flag = Annotated[bool, where(lambda value: isinstance(value, bool), "true or false")]
Directory = Annotated[str, where(lambda path: path.startswith("/"), "an absolute path", _text)]
Output = Annotated[str | None, _optional(where(bool, "a path", _text))]
Stream = Annotated[
    str | None,
    _optional(
        where(lambda value: isinstance(value, str) and re.fullmatch("[0-9a-f]{32}", value), "32 hexadecimal digits")
    ),
]
Positive = Annotated[int | None, _optional(_whole(1))]
Moment = Annotated[int, _whole(-MAX_NUMBER)]
Grace = Annotated[int, _whole(0, _MAX_GRACE_US)]


class Refusal(Exception):
    """A request is refused; ``code`` as in ``cosched.wire.messages.Refused``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code

    @property
    def fields(self) -> dict[str, str]:
        """As it travels."""
        return {"error": self.code, "message": str(self)}


def refusal_of(fields: Mapping[str, Any]) -> Refusal:
    """One that has travelled."""
    return Refusal(str(fields["error"]), str(fields["message"]))


def lease(until_us: int, now_us: int, most_us: int, what: str = "") -> int:
    """Until when a request holds, for so long at most. Raises :class:`Refusal` where that is over."""
    if until_us <= now_us:
        raise Refusal("stale", f"{what}until {until_us}, which was {now_us - until_us} us ago")
    return min(until_us, now_us + most_us)


@dataclass(frozen=True)
class OfAttempt:
    """What is asked for an attempt at a job."""

    job: Job
    attempt: Attempt

    @property
    def key(self) -> tuple[int, int]:
        """(job, attempt)."""
        return self.job, self.attempt

    def __str__(self) -> str:
        return f"attempt {self.attempt} at job {self.job}"


@dataclass(frozen=True)
class Contract:
    """The cluster's contract."""

    cpu_ratio: Ratio
    memory_ratio: Ratio
    mpl: Tasks


@dataclass(frozen=True)
class Relax:
    """No ceiling until then, in microseconds since boot."""

    until_us: Count
    epoch: Count


@dataclass(frozen=True)
class Tighten:
    """So much of the contract's ceiling until then, in microseconds since boot: the owner is in pain."""

    ratio: Ratio
    until_us: Count


@dataclass(frozen=True)
class Arm:
    """The ceiling holds from now on."""


@dataclass(frozen=True)
class Prepare(OfAttempt):
    """Make ready for an attempt at a job; ``memory_bytes`` is a task's, ``umask`` that of all its commands.

    ``cpus`` and ``asleep`` as in :class:`Resize`. ``uid`` is the submitter's on the scheduler's host: -1: it has none
    there; None: not said.
    """

    user: Annotated[str, _name]
    directory: Directory
    tasks: Tasks
    memory_bytes: Positive
    limit_us: Positive
    grace_us: Grace
    umask: Annotated[int, _whole(0, 0o777)] = 0o022  # where a record of an earlier version has none
    cpus: Cpus = None
    asleep: Flag = False
    uid: Annotated[int | None, _uid] = None


@dataclass(frozen=True)
class Spawn(OfAttempt):
    """Start the n-th command of an attempt. ``stream``: its streams are kept for the agent under that name."""

    n: Number
    argv: Annotated[tuple[str, ...], _arguments]
    env: Annotated[dict[str, str], _environment]
    cwd: Directory
    script: Flag = False
    output: Output = None
    error: Output = None
    stream: Stream = None


@dataclass(frozen=True)
class Resize(OfAttempt):
    """Another share of the node for an attempt: places, and so many CPUs for its processes.

    None: any CPUs; 0: none, its processes are stopped until it is given some.
    ``asleep``: they are to sleep, and what they do all the same comes after what any other job does. ``n`` is the
    number of the scheduler's order: what is older than the newest that was obeyed is refused.
    """

    n: Count
    tasks: Tasks
    cpus: Cpus
    asleep: Flag = False


@dataclass(frozen=True)
class Signal(OfAttempt):
    """Send a signal to a command's process group."""

    n: Number
    signal: Annotated[int, _whole(1, _LAST_SIGNAL)]


@dataclass(frozen=True)
class Kill(OfAttempt):
    """End all of an attempt."""

    grace_us: Grace


@dataclass(frozen=True)
class Forget(OfAttempt):
    """Remove what is left of an attempt."""


@dataclass(frozen=True)
class Weigh(OfAttempt):
    """A job's weight against the other jobs here until then; 100 is what all are made with."""

    percent: Annotated[int, _whole(1, MAX_PERCENT)]
    until_us: Count


@dataclass(frozen=True)
class Slots:
    """From ``begin_us`` on, slot after slot: row ``n % len(rows)`` has the CPU.

    Who is in another row runs idle, or is held below a ceiling.
    """

    begin_us: Moment
    slot_us: Annotated[int, _whole(MIN_SLOT_US, MAX_SLOT_US)]
    rows: Annotated[tuple[tuple[tuple[int, int], ...], ...], _rows]
    until_us: Count


@dataclass(frozen=True)
class Periods:
    """A ceiling's periods begin at ``begin_us``, and whole ones from there on, until then."""

    begin_us: Moment
    until_us: Count


@dataclass(frozen=True)
class Whose:
    """Which attempt a process belongs to."""

    pid: Annotated[int, _whole(1, 2**31 - 1)]


@dataclass(frozen=True)
class Accounts:
    """What these users are here, and why jobs of theirs would not run as they should."""

    users: Annotated[dict[str, int | None], _submitters]


@dataclass(frozen=True)
class Keys:
    """Tell from now on when a terminal was read from."""


@dataclass(frozen=True)
class List:
    """All attempts that are known."""


@dataclass(frozen=True)
class Status:
    """The limits in force."""


Request = (
    Contract
    | Relax
    | Tighten
    | Arm
    | Prepare
    | Spawn
    | Resize
    | Signal
    | Kill
    | Forget
    | Weigh
    | Slots
    | Periods
    | Whose
    | Accounts
    | Keys
    | List
    | Status
)


#: By its word on the wire: each kind of request, with the check of each of its fields.
_KINDS: Final[dict[str, tuple[type[Request], dict[str, Check]]]] = {
    kind.__name__.lower(): (
        kind,
        {name: hint.__metadata__[0] for name, hint in get_type_hints(kind, include_extras=True).items()},
    )
    for kind in get_args(Request)
}


def word(request: Request) -> str:
    """What a request is called on the wire."""
    return type(request).__name__.lower()


def encode(request: Request, number: int) -> bytes:
    """A request as a packet; its answer has the number."""
    return json.dumps({"do": word(request), **vars(request), "re": number}, separators=(",", ":")).encode()


def decode(packet: bytes, descriptors: int) -> tuple[int, Request | Refusal]:
    """A packet's number and request, or its refusal. Raises :class:`Refusal` where there is not even a number.

    The server reads no more than :data:`MAX_PACKET_BYTES`, and refuses a packet that was cut off there.
    """
    try:
        raw = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise Refusal("unknown", f"not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise Refusal("unknown", f"a {type(raw).__name__}; expected an object")
    number = raw.pop("re", None)
    if type(number) is not int or not 0 <= number <= MAX_NUMBER:
        raise Refusal("unknown", "re: expected a request's number")
    try:
        return number, _request(raw, descriptors)
    except Refusal as refusal:
        return number, refusal


def _request(raw: dict[str, Any], descriptors: int) -> Request:
    kind = raw.pop("do", None)
    known = _KINDS.get(kind) if isinstance(kind, str) else None
    if known is None:
        raise Refusal("unknown", f"do: found {str(kind)[:80]!r}; expected one of {', '.join(_KINDS)}")
    make, checks = known
    if strange := sorted(raw.keys() - checks.keys()):
        raise Refusal("unknown", f"{kind}: unknown field {strange[0][:80]!r}")
    values = {}
    for name, check in checks.items():
        try:
            values[name] = check(raw[name])
        except KeyError:
            raise Refusal("unknown", f"{kind}: {name} is missing") from None
        except ValueError as error:
            raise Refusal("unknown", f"{kind}: {name}: {error}") from None
    request: Request = make(**values)
    wanted = 3 + request.script if isinstance(request, Spawn) and request.stream is None else 0
    if isinstance(request, Spawn) and request.script and request.stream is not None:
        raise Refusal("unknown", f"{kind}: stream: a script has its output in files")
    if descriptors != wanted:
        raise Refusal("unknown", f"{kind}: {descriptors} descriptors came along; expected {wanted}")
    return request
