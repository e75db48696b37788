"""What a user does and when, drawn from a seed before it happens: acts within a session, and the sessions themselves.

The same profile and seed give the same schedule, whatever the machine. What a burst or a message amounts to is the
plan; how much of it is really done is corrected on the way by what was really used (``local_load.user``).
"""

import csv
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Final, Generic, NamedTuple, TypeVar

from cosched.errors import BadInput
from local_load.profile import Day, Profile

_SETTLES_S: Final = 0.2  # from sitting down to the first key
_HOUR_S: Final = 3600.0
_LONGEST_S: Final = 366 * 86_400.0
Choice = TypeVar("Choice")


class Act(NamedTuple):
    """Something the user does ``at_s`` after he sat down.

    A ``key``, with system calls and a transfer of memory (bytes); a ``message`` of ``amount`` bytes, both ways, headers
    included; or a ``burst`` of ``amount`` seconds of CPU.
    """

    at_s: float
    kind: str
    amount: float = 0.0
    calls: tuple[str, ...] = ()
    transfer_bytes: int = 0


def acts(profile: Profile, seed: int | str) -> Iterator[Act]:
    """What the user does in a session, in order and without end."""
    random = Random(f"acts {seed}")
    share = profile.cpu_share
    typing = profile.typing
    at_s = burst_end_s = _SETTLES_S
    told_s = 0.0
    message_s = profile.message_gap_s.draw(random)
    owed_s = 0.0
    calls, transfers = _Weighted(dict(profile.calls)), _Weighted(profile.transfer_sizes())

    def messages(until_s: float) -> Iterator[Act]:
        nonlocal message_s, told_s
        while profile.network_bytes_per_s and message_s <= until_s:
            yield Act(message_s, "message", profile.network_bytes_per_s * (message_s - told_s))
            told_s = message_s
            message_s += profile.message_gap_s.draw(random)

    while True:
        phase_end_s = at_s + profile.phase_s.draw(random)
        while at_s < phase_end_s:
            for _ in range(max(1, round(typing.word_keys.draw(random)))):
                yield from messages(at_s)
                chosen = tuple(calls.draw(random) for _ in range(profile.calls_per_key))
                yield Act(at_s, "key", 0.0, chosen, transfers.draw(random) if profile.transfers else 0)
                at_s += typing.key_gap_s.draw(random)
            at_s += typing.think_s.draw(random)
        yield from messages(at_s)
        # a burst pays what was owed so far, in sizes that vary
        owed_s += share / (1 - share) * (at_s - burst_end_s)
        burst_s = min(owed_s, owed_s * random.uniform(0.5, 1.5))
        owed_s -= burst_s
        if burst_s > 0:
            yield Act(at_s, "burst", burst_s)
            at_s += burst_s
        burst_end_s = at_s


class _Weighted(Generic[Choice]):
    """Choices with weights; one drawing costs a bisection."""

    def __init__(self, weights: dict[Choice, float]) -> None:
        self._choices = list(weights)
        self._sums = list(accumulate(weights.values()))

    def draw(self, random: Random) -> Choice:
        return random.choices(self._choices, cum_weights=self._sums)[0]


class Session(NamedTuple):
    """The user is there from ``begin_s`` until ``end_s``, in seconds after the start."""

    begin_s: float
    end_s: float


def always(seconds: float) -> Iterator[Session]:
    """One session, from the start to the end."""
    yield Session(0.0, seconds)


def by_day(day: Day, seed: int, start_hour: float, seconds: float) -> Iterator[Session]:
    """Sessions by a day profile: a Poisson process whose rate goes by the hour, without arrivals while he is there."""
    random = Random(f"day {seed}")
    highest = max(day.arrivals_per_h)
    at_s = 0.0
    while True:
        at_s += random.expovariate(highest / _HOUR_S)
        if at_s >= seconds:
            return
        hour = int(start_hour + at_s / _HOUR_S) % 24
        if random.random() * highest < day.arrivals_per_h[hour]:
            end_s = min(seconds, at_s + max(1.0, day.stay_s.draw(random)))
            yield Session(at_s, end_s)
            at_s = end_s


def recorded(path: Path, node: str = "") -> list[Session]:
    """Sessions of a recorded presence trace: CSV with ``at_s,presence`` and, for several desks, ``node``.

    ``presence`` is present or away (unknown counts as present); times don't decrease. Raises :class:`BadInput`.
    """
    sessions: list[Session] = []
    since_s: float | None = None
    last_s = 0.0
    for at_s, there in _changes(path, node):
        if there and since_s is None:
            since_s = at_s
        elif not there and since_s is not None:
            if at_s > since_s:
                sessions.append(Session(since_s, at_s))
            since_s = None
        last_s = at_s
    if since_s is not None and last_s > since_s:
        sessions.append(Session(since_s, last_s))
    return sessions


def _changes(path: Path, node: str) -> Iterator[tuple[float, bool]]:
    """The rows of a trace, all checked; those of one node where it has several."""
    last_s: dict[str, float] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            names = rows.fieldnames or []
            if "at_s" not in names or "presence" not in names:
                found = f"columns {', '.join(names) or 'none'}"
                raise BadInput(f"{path}:1", found, "at_s,presence or at_s,presence,node")
            for row in rows:
                where, whose = f"{path}:{rows.line_num}", row.get("node") or ""
                try:
                    at_s = float(row["at_s"])
                except (TypeError, ValueError):
                    raise BadInput(f"{where}: at_s", f"found {row['at_s']!r}", "seconds") from None
                before_s = last_s.get(whose, 0.0)
                if not before_s <= at_s <= _LONGEST_S:
                    raise BadInput(f"{where}: at_s", f"found {at_s:g}", f"{before_s:g} or more: times don't decrease")
                if row["presence"] not in ("present", "away", "unknown"):
                    raise BadInput(f"{where}: presence", f"found {row['presence']!r}", "present, away or unknown")
                last_s[whose] = at_s
                if not (node and "node" in names and whose != node):
                    yield at_s, row["presence"] != "away"
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"cannot be read: {error}") from None
