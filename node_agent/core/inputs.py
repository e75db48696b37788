"""What happens to an agent: values that a shell hands to its core, one at a time."""

import msgspec

from cosched.model.stall import Stall
from cosched.wire.messages import Exit, Fence, Order
from node_agent.core.attempt import Key
from node_agent.core.replies import Reply

# from the scheduler


class Welcomed(msgspec.Struct, frozen=True):
    """A scheduler welcomes the agent. It is obeyed once ``effects.KeepFence`` was carried out."""

    fence: Fence
    lease_us: int


class FenceKept(msgspec.Struct, frozen=True):
    """What ``effects.KeepFence`` asked for is on disk."""

    fence: Fence


class Joined(msgspec.Struct, frozen=True):
    """The scheduler that was welcomed can be told things from now on."""


class Removed(msgspec.Struct, frozen=True):
    """A scheduler says that this node was removed from its cluster."""

    by: Fence


class Ordered(msgspec.Struct, frozen=True):
    """An order has come."""

    order: Order


class Heard(msgspec.Struct, frozen=True):
    """The scheduler gave a sign of life."""


class LeaseLooked(msgspec.Struct, frozen=True):
    """It is time to look how long the scheduler has been silent: with each heartbeat."""


# from the guard


class Command(msgspec.Struct, frozen=True):
    """A command that the guard knows; 0 is the job script. ``exit`` is None until it has ended.

    ``begun``: its program was executed; false while it is made ready.
    """

    n: int
    exit: Exit | None = None
    begun: bool = True


class Group(msgspec.Struct, frozen=True):
    """An attempt that the guard has. ``alive``: it has processes, or may have them soon."""

    key: Key
    alive: bool
    commands: tuple[Command, ...] = ()


class GuardReports(msgspec.Struct, frozen=True):
    """The guard is there (again), and this is all that it has."""

    groups: tuple[Group, ...]


class GuardLost(msgspec.Struct, frozen=True):
    """The guard is not there (any more), and why. What it was asked and has not answered stays unanswered."""

    problem: str


class CommandEnded(msgspec.Struct, frozen=True):
    """A command of an attempt has ended."""

    key: Key
    n: int
    exit: Exit


class GroupEmpty(msgspec.Struct, frozen=True):
    """No process of an attempt is left here. CPU time in microseconds."""

    key: Key
    cpu_us: int = 0
    memory_peak_bytes: int = 0


class GroupStalled(msgspec.Struct, frozen=True):
    """Processes of an attempt have not ended long after they were killed, at ``since_us`` (since boot).

    Said again and again until the group is empty. ``stall`` as of ``since_us``.
    """

    key: Key
    since_us: int
    stall: Stall


# from the node itself


class CommandWanted(msgspec.Struct, frozen=True):
    """A program of a job wants a command here. ``number`` is the shell's, for ``effects.AnswerCommand``."""

    number: int
    key: Key
    argv: tuple[str, ...]
    stream: str


class RanksAdapted(msgspec.Struct, frozen=True):
    """The leading rank of a job says that all have done what the map with this number asks."""

    key: Key
    number: int


class RanksAsked(msgspec.Struct, frozen=True):
    """A rank says that its job asks for so many processes more, or fewer."""

    key: Key
    more: int


class Replied(msgspec.Struct, frozen=True):
    """The reply to a question of the core's."""

    number: int
    reply: Reply


class TimerDue(msgspec.Struct, frozen=True):
    """A time that ``effects.SetTimer`` has asked for has passed."""

    number: int


Input = (
    Welcomed
    | FenceKept
    | Joined
    | Removed
    | Ordered
    | Heard
    | LeaseLooked
    | GuardReports
    | GuardLost
    | CommandEnded
    | GroupEmpty
    | GroupStalled
    | CommandWanted
    | RanksAdapted
    | RanksAsked
    | Replied
    | TimerDue
)
