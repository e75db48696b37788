"""What a host's core wants done: values that a shell carries out in order, and that a test or a record can keep."""

from typing import Any, Literal

import msgspec

from cosched.model.node import Node
from cosched.wire import messages as wire
from space_scheduler.machine.events import Event
from space_scheduler.service.journal.records import Facts

#: How loud a line of the log is.
Level = Literal["info", "warn"]


class Post(msgspec.Struct, frozen=True, tag=True):
    """Have the core take in an event, and journal it with these facts of the job that it names."""

    event: Event
    note: str = ""
    facts: Facts | None = None


class Annotate(msgspec.Struct, frozen=True, tag=True):
    """Journal facts of a job."""

    job_id: int
    facts: Facts


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


class AskWanted(msgspec.Struct, frozen=True, tag=True):
    """Say which of these sleeping nodes a job that waits would start on, were they there (``inputs.Wanted``)."""

    nodes: tuple[Node, ...]


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
    """Effects in the order in which they came about, until the shell takes them."""

    def take(self) -> list[Effect]:
        """Return the pending effects and clear the list."""
        effects = self[:]
        self.clear()
        return effects

    def post(self, event: Event, note: str = "", facts: Facts | None = None) -> None:
        """Have the core take in an event."""
        self.append(Post(event, note, facts))

    def say(self, level: Level, what: str, **fields: object) -> None:
        """Write a line of the log."""
        self.append(Say(level, what, fields))
