"""What the modes have in common: how a job looks at this moment, and what can be done for it."""

from typing import Final, NamedTuple

from cosched.model.coscheduling import Mode, Receives

Key = tuple[int, int]  # job, attempt

NEUTRAL: Final = 100
#: Ten times the weight of one other job is 91 % of a CPU (measured: .83/.09); of more it takes as much.
RAISED: Final = 1000
#: For how long an arrival raises: long enough for an answer and the next arrival, short beside a budget's seconds.
HOLD_US: Final = 40_000
#: A job that is found waiting again and again is raised for twice as long each time, up to this: asking costs too.
LONGEST_HOLD_US: Final = 160_000


class Job(NamedTuple):
    """A job on this node now. ``share`` is what is its due here, ``cpus`` what its tasks can use here at most, in CPUs;
    ``row`` is its place among its neighbours.

    ``waiting``: bytes wait to be read; ``cpu_us``: what it has used since its beginning; ``rows`` 0: no slots agreed.
    """

    key: Key
    mode: Mode = Mode.NONE
    receives: Receives = Receives.UNKNOWN
    waiting: bool = False
    cpu_us: int = 0
    share: float = 1.0
    row: int = 0
    rows: int = 0
    cpus: float = 1.0


class Weigh(NamedTuple):
    """Give a job that weight in percent, until then (microseconds since boot)."""

    key: Key
    percent: int
    until_us: int


class Slots(NamedTuple):
    """Let the jobs of a row run, one row after the other, from ``begin_us`` on and until then."""

    begin_us: int
    slot_us: int
    rows: tuple[tuple[Key, ...], ...]
    until_us: int
