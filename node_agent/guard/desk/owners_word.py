"""What the desk's owner has said here, beside a pause: less CPU, users who are not taken, hours, probe, waking.

Within what root allows in ``node.toml``: it makes parallel work less and never more, but for who agrees that the
machine is woken for jobs that wait. It is on record, durable, in the guard's own directory, and outlives the guard and
the machine. Times of it are of the wall clock.
"""

import contextlib
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cosched.linux import process
from node_agent.guard.base.budget import Budget
from node_agent.guard.base.records import Record, Records
from node_agent.guard.base.requests import Refusal
from node_agent.guard.desk.hours import MINUTES, Window, open_spans, opens_in, windows_of

MOST_BANS: Final = 32
LONGEST_NAME: Final = 64
#: For so long it is foreseen when hours hold.
FORESEEN_DAYS: Final = 14
_S_PER_MINUTE: Final = 60
_NS_PER_S: Final = 1_000_000_000
#: Each decision is written to the disk before it holds: so many at once, and one more each second.
MOST_AT_ONCE: Final = 64
DAMAGED: Final = "the record of what was said at this desk is damaged: bans, hours and share are to be said anew"


class Ban(NamedTuple):
    """Whose word it is, and until when it holds (seconds since 1970; None: until it is taken back)."""

    by: str
    until_s: float | None


class Word(NamedTuple):
    """What holds. ``cpu_ratio``: the share of the CPU while somebody is here; None: the contract's. ``hours``:
    nothing runs outside of these; none: any time. ``probe``: whether the wake-up probe may run here, ``wake``: whether
    the machine may be woken for jobs that wait.
    """

    cpu_ratio: float | None = None
    bans: Mapping[str, Ban] = {}
    hours: tuple[Window, ...] = ()
    probe: bool = True
    wake: bool = False


class OwnersWord:
    """All of it, and its record. ``problem`` says that what was on record does not hold; empty where it does."""

    def __init__(self, records: Records) -> None:
        """Take up what is on record; of a damaged record nothing holds."""
        self._records = records
        self.said = Word()
        self._pace = Budget(1.0, (MOST_AT_ONCE - 1) * process.US_PER_S)  # of time, a second for each decision
        self.problem = ""
        try:
            if (found := records.said("word")) is not None:
                self.said = _on_record(found)
        except (KeyError, TypeError, ValueError, OverflowError):
            self.problem = DAMAGED

    def keep(self, **changes: Any) -> None:
        """Change what holds; on record first: what could not be written does not hold. Raises :class:`Refusal` where
        decisions follow each other too fast, OSError.
        """
        if self._pace.rest_us():
            raise Refusal("busy", "too many decisions at once: wait a second")
        self._pace.spend(_NS_PER_S)
        said = self.said._replace(**changes)
        self._records.write({**said._asdict(), "bans": [[user, *ban] for user, ban in said.bans.items()]}, "word")
        self.said, self.problem = said, ""

    def ban(self, user: str, by: str, seconds: float | None) -> None:
        """That user's jobs are not taken here. Raises :class:`Refusal` for too many, OSError."""
        if user not in self.said.bans and len(self.said.bans) >= MOST_BANS:
            raise Refusal("busy", f"{MOST_BANS} users are banned here already; allow some")
        until_s = None if seconds is None else time.time() + seconds
        self.keep(bans={**self.said.bans, user: Ban(by, until_s)})

    def allow(self, user: str) -> None:
        """They are taken again. Raises :class:`Refusal`, OSError."""
        self.keep(bans={name: ban for name, ban in self.said.bans.items() if name != user})

    def forget_old_bans(self) -> bool:
        """Take back bans whose time is over; whether there were any."""
        left = {name: ban for name, ban in self.said.bans.items() if ban.until_s is None or ban.until_s > time.time()}
        if len(left) == len(self.said.bans):
            return False
        with contextlib.suppress(OSError, Refusal):  # the record's times say the same to a successor
            self.keep(bans=left)
        self.said = self.said._replace(bans=left)
        return True

    @property
    def closed(self) -> str:
        """Why nothing runs here at this hour; empty where it may."""
        if not self._opens_in():
            return ""
        hours = " and ".join(map(str, self.said.hours))
        return f"it is outside of the hours in which parallel work may run at this desk ({hours})"

    def opens_in_s(self) -> float | None:
        """In how many seconds hours begin again, where it is outside of them."""
        minutes = self._opens_in()
        return minutes * _S_PER_MINUTE - time.localtime().tm_sec if minutes else None

    def open_spans_us(self, now_us: int) -> list[tuple[int, int]]:
        """From when until when nothing is said against jobs in the coming days, in microseconds since boot."""
        time.tzset()
        now = time.localtime()
        minute_us = now_us - now.tm_sec * process.US_PER_S
        minutes = open_spans(self.said.hours, now.tm_wday, now.tm_hour * 60 + now.tm_min, FORESEEN_DAYS * MINUTES)
        return [
            (minute_us + begin * _S_PER_MINUTE * process.US_PER_S, minute_us + end * _S_PER_MINUTE * process.US_PER_S)
            for begin, end in minutes
        ]

    def status_fields(self) -> dict[str, Any]:
        """For ``status``."""
        return {**self.said._asdict(), "bans": {user: ban._asdict() for user, ban in self.said.bans.items()}}

    def _opens_in(self) -> int:
        time.tzset()  # the machine may have been given another time zone
        now = time.localtime()
        return opens_in(self.said.hours, now.tm_wday, now.tm_hour * 60 + now.tm_min)


def _on_record(found: Record) -> Word:
    """Raises KeyError, TypeError, ValueError or OverflowError for a damaged record."""
    ratio, hours = found.get("cpu_ratio"), found.get("hours")
    return Word(
        None if ratio is None else min(1.0, max(0.001, float(ratio))),
        {str(user): Ban(str(by), None if until is None else float(until)) for user, by, until in found["bans"]},
        windows_of(hours) if hours else (),
        probe=found.get("probe") is not False,
        wake=found.get("wake") is True,
    )
