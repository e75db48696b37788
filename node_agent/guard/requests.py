"""Requests to the guard, each defined once: encoded for the agent, and checked by the guard before anything is done.

A request's word on the wire (``do``) is its class's name in small letters, its fields are the class's, with the types
and ranges of :mod:`node_agent.guard.fields`; what each does is in :mod:`node_agent.guard.protocol`.
"""

import json
from typing import Any, Final, NamedTuple, get_args, get_type_hints

from node_agent.guard import fields
from node_agent.guard.fields import Check
from node_agent.guard.protocol import MAX_PACKET_BYTES


class Refusal(Exception):
    """A request is refused; ``code`` as in ``cosched.wire.messages.Refused``."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class Contract(NamedTuple):
    """The cluster's contract."""

    cpu_ratio: fields.Ratio
    memory_ratio: fields.Ratio
    mpl: fields.Mpl


class Relax(NamedTuple):
    """No ceiling until then, in microseconds since boot."""

    until_us: fields.Until
    epoch: fields.Epoch


class Tighten(NamedTuple):
    """So much of the contract's ceiling until then, in microseconds since boot: the owner is in pain."""

    ratio: fields.Ratio
    until_us: fields.Until


class Arm(NamedTuple):
    """The ceiling holds from now on."""


class Prepare(NamedTuple):
    """Make ready for an attempt at a job; ``memory_bytes`` is a task's, ``umask`` that of all its commands.

    ``cpus`` and ``asleep`` as in :class:`Resize`. ``uid`` is the submitter's on the scheduler's host: -1: it has none
    there; None: not said.
    """

    job: fields.Job
    attempt: fields.Attempt
    user: fields.User
    directory: fields.Directory
    tasks: fields.Tasks
    memory_bytes: fields.Bytes
    limit_us: fields.Limit
    grace_us: fields.Grace
    umask: fields.Umask = 0o022  # where a record of an earlier version has none
    cpus: fields.Cpus = None
    asleep: fields.Flag = False
    uid: fields.Uid = None


class Spawn(NamedTuple):
    """Start the n-th command of an attempt. ``stream``: its streams are kept for the agent under that name."""

    job: fields.Job
    attempt: fields.Attempt
    n: fields.Number
    argv: fields.Arguments
    env: fields.Environment
    cwd: fields.Directory
    script: fields.Flag = False
    output: fields.Output = None
    error: fields.Output = None
    stream: fields.Stream = None


class Resize(NamedTuple):
    """Another share of the node for an attempt: places, and so many CPUs for its processes.

    None: any CPUs; 0: none, its processes are stopped until it is given some.
    ``asleep``: they are to sleep, and what they do all the same comes after what any other job does. ``n`` is the
    number of the scheduler's order: what is older than the newest that was obeyed is refused.
    """

    job: fields.Job
    attempt: fields.Attempt
    n: fields.Order
    tasks: fields.Tasks
    cpus: fields.Cpus
    asleep: fields.Flag = False


class Signal(NamedTuple):
    """Send a signal to a command's process group."""

    job: fields.Job
    attempt: fields.Attempt
    n: fields.Number
    signal: fields.Signal


class Kill(NamedTuple):
    """End all of an attempt."""

    job: fields.Job
    attempt: fields.Attempt
    grace_us: fields.Grace


class Forget(NamedTuple):
    """Remove what is left of an attempt."""

    job: fields.Job
    attempt: fields.Attempt


class Weigh(NamedTuple):
    """A job's weight against the other jobs here until then; 100 is what all are made with."""

    job: fields.Job
    attempt: fields.Attempt
    percent: fields.Percent
    until_us: fields.Until


class Slots(NamedTuple):
    """From ``begin_us`` on, slot after slot: row ``n % len(rows)`` has the CPU.

    Who is in another row runs idle, or is held below a ceiling.
    """

    begin_us: fields.Begin
    slot_us: fields.Slot
    rows: fields.Rows
    until_us: fields.Until


class Periods(NamedTuple):
    """A ceiling's periods begin at ``begin_us``, and whole ones from there on, until then."""

    begin_us: fields.Begin
    until_us: fields.Until


class Whose(NamedTuple):
    """Which attempt a process belongs to."""

    pid: fields.Pid


class Accounts(NamedTuple):
    """What these users are here, and why jobs of theirs would not run as they should."""

    users: fields.Submitters


class Keys(NamedTuple):
    """Tell from now on when a terminal was read from."""


class List(NamedTuple):
    """All attempts that are known."""


class Status(NamedTuple):
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


def _checks(kind: type) -> dict[str, Check]:
    """The check of each of a request's fields."""
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(kind, include_extras=True).items()}


_KINDS: Final[dict[str, tuple[type[Request], dict[str, Check]]]] = {
    kind.__name__.lower(): (kind, _checks(kind)) for kind in get_args(Request)
}
_WORDS: Final[dict[type, str]] = {kind: word for word, (kind, _) in _KINDS.items()}


def word(request: Request) -> str:
    """What a request is called on the wire."""
    return _WORDS[type(request)]


def encode(request: Request, number: int) -> bytes:
    """A request as a packet; its answer has the number."""
    plain = {"do": word(request), **request._asdict(), "re": number}
    return json.dumps(plain, separators=(",", ":")).encode()


def decode(packet: bytes, descriptors: int) -> tuple[int, Request | Refusal]:
    """A packet's number and request, or its refusal. Raises :class:`Refusal` where there is not even a number."""
    if len(packet) > MAX_PACKET_BYTES:
        raise Refusal("unknown", f"a packet of {len(packet)} bytes or more; at most {MAX_PACKET_BYTES}")
    try:
        raw = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise Refusal("unknown", f"not JSON: {error}") from None
    if not isinstance(raw, dict):
        raise Refusal("unknown", f"a {type(raw).__name__}; expected an object")
    number = raw.pop("re", None)
    if type(number) is not int or not 0 <= number <= fields.MAX_NUMBER:
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
        if name not in raw:
            raise Refusal("unknown", f"{kind}: {name} is missing")
        try:
            values[name] = check(raw[name])
        except ValueError as error:
            raise Refusal("unknown", f"{kind}: {name}: {error}") from None
    request: Request = make(**values)
    wanted = 3 + request.script if isinstance(request, Spawn) and request.stream is None else 0
    if isinstance(request, Spawn) and request.script and request.stream is not None:
        raise Refusal("unknown", f"{kind}: stream: a script has its output in files")
    if descriptors != wanted:
        raise Refusal("unknown", f"{kind}: {descriptors} descriptors came along; expected {wanted}")
    return request
