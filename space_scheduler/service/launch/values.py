"""What goes into the service's rules and what comes out of them, as values that a test or a record can keep.

Inputs: what happens to a service; ``ServiceCore.handle`` takes each in. Effects: what is to be done then; a shell
carries them out in order.
"""

from typing import Any, Literal

import msgspec

from cosched.model.allocation import Allocation
from cosched.wire import messages as wire
from space_scheduler.machine.events import AnyEvent, Event
from space_scheduler.machine.instructions import AnyInstruction
from space_scheduler.machine.nodes import NodeStatus
from space_scheduler.machine.turns import SavedTurns
from space_scheduler.service.core.worker import Annotate, AskWanted, Post
from space_scheduler.service.journal.records import Facts, JobRecord

# inputs


class Input(msgspec.Struct, frozen=True, tag=True):
    """Base of all inputs; the tag names the class in records."""


class Started(Input, frozen=True):
    """The service has been started, with what the journal had: live jobs, nodes, how far jobs are, who takes turns.

    ``progress`` is by job the work that is left, in microseconds alone on idle nodes, and its rate against that;
    ``resizing`` what jobs are to hold whose nodes were being asked for that; ``asked`` how many processes more jobs
    were given of what they asked for, and whether they wait for an answer.
    """

    jobs: tuple[JobRecord, ...]
    nodes: tuple[NodeStatus, ...]
    progress: dict[int, tuple[float, float]]
    turns: SavedTurns
    resizing: dict[int, Allocation] = {}
    asked: dict[int, tuple[int, bool]] = {}


class Connected(Input, frozen=True):
    """An agent has called, and may join.

    ``session`` is what its frames are to carry, ``revoked`` are the certificates that count no more.
    """

    node: str
    hello: wire.Hello
    session: bytes
    serial: str = ""
    revoked: tuple[str, ...] = ()


class Heard(Input, frozen=True):
    """An agent that was welcomed has said something."""

    node: str
    message: wire.FromAgent


class OwnerSaid(Input, frozen=True):
    """An agent that was welcomed tells its owner's word.

    ``banned`` are the users of it that this host knows, by number, in order.
    """

    node: str
    word: wire.OwnersWord
    banned: tuple[int, ...] = ()


class Disconnected(Input, frozen=True):
    """An agent's connection has ended."""

    node: str


class Removed(Input, frozen=True):
    """A node belongs to the cluster no more; ``revoked`` are the certificates that count no more."""

    node: str
    revoked: tuple[str, ...] = ()


class RevocationsChanged(Input, frozen=True):
    """Other certificates count no more, and no node was removed; ``revoked`` are all of them."""

    revoked: tuple[str, ...]


class CertificateExpired(Input, frozen=True):
    """A node's certificate has expired, and counts for a while yet; ``since`` is the day, for people."""

    node: str
    since: str


class Ticked(Input, frozen=True):
    """Another heartbeat's time has passed: leases are counted."""


class InJournal(Input, frozen=True):
    """An event is in the journal, with what was instructed; ``started`` are the records of jobs that start."""

    event: AnyEvent
    instructions: tuple[AnyInstruction, ...] = ()
    started: dict[int, JobRecord] = {}


class TimedOut(Input, frozen=True):
    """The time has come that was set for an attempt (job, attempt)."""

    key: tuple[int, int]


class Wanted(Input, frozen=True):
    """Jobs that wait would start on these sleeping nodes, were they there."""

    nodes: tuple[str, ...]


class Discarded(Input, frozen=True):
    """The output of an attempt is no longer kept."""

    node: str
    job_id: int
    attempt: int


AnyInput = (
    Started
    | Connected
    | Heard
    | OwnerSaid
    | Disconnected
    | Removed
    | RevocationsChanged
    | CertificateExpired
    | Ticked
    | InJournal
    | TimedOut
    | Wanted
    | Discarded
)

# effects

#: How loud a line of the log is.
Level = Literal["info", "warn"]


class Send(msgspec.Struct, frozen=True, tag=True):
    """Send to a node, if it is connected; if not, it will be asked for when it says what it has."""

    node: str
    message: wire.ToAgent


class Cut(msgspec.Struct, frozen=True, tag=True):
    """End a node's connection, in so long: what was sent to it before may still be read."""

    node: str
    after_s: float = 0.0


class SetTimer(msgspec.Struct, frozen=True, tag=True):
    """Say that an attempt's time-out has come, in so long; ``key`` is the job's number and the attempt's."""

    key: tuple[int, int]
    after_us: int


class CancelTimer(msgspec.Struct, frozen=True, tag=True):
    """Do not say so any more."""

    key: tuple[int, int]


class Wake(msgspec.Struct, frozen=True, tag=True):
    """Send a sleeping node's card a magic packet, by way of its network's broadcast address."""

    node: str
    mac: str
    broadcast: str


class Say(msgspec.Struct, frozen=True, tag=True):
    """A line for the log."""

    level: Level
    what: str
    fields: dict[str, Any] = {}


Effect = Post | Annotate | Send | Cut | SetTimer | CancelTimer | AskWanted | Wake | Say


class Outbox(list[Effect]):
    """Effects in the order in which they came about, until ``handle`` returns them."""

    def post(self, event: Event, note: str = "", facts: Facts | None = None) -> None:
        """Have the core take in an event."""
        self.append(Post(event, note, facts))

    def say(self, level: Level, what: str, **fields: object) -> None:
        """Write a line of the log."""
        self.append(Say(level, what, fields))
