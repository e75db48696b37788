"""What the desk's owner has said here, beside a pause: less CPU, users who are not taken, hours, probe, waking.

Within what root allows in ``node.toml``: it makes parallel work less and never more, but for who agrees that the
machine is woken for jobs that wait. It is on record, durable, in the guard's own directory, and outlives the guard and
the machine. Times of it are of the wall clock.
"""

import contextlib
import time
from typing import Any, Final, NamedTuple

from cosched.linux import process
from node_agent.guard.hours import MINUTES, Window, open_spans, opens_in, windows_of
from node_agent.guard.records import Records
from node_agent.guard.requests import Refusal

MOST_BANS: Final = 32
LONGEST_NAME: Final = 64
#: For so long it is foreseen when hours hold.
FORESEEN_DAYS: Final = 14
_S_PER_MINUTE: Final = 60
#: Each decision is written to the disk before it holds: so many at once, and one more each second.
MOST_AT_ONCE: Final = 64
DAMAGED: Final = "the record of what was said at this desk is damaged: bans, hours and share are to be said anew"


class Ban(NamedTuple):
    """Whose word it is, and until when it holds (seconds since 1970; None: until it is taken back)."""

    by: str
    until_s: float | None


class OwnersWord:
    """All of it, and its record. ``cpu_ratio``: the share of the CPU while somebody is here; None: the contract's.

    ``problem`` says that what was on record does not hold; empty where it does.
    """

    def __init__(self, records: Records) -> None:
        """Take up what is on record; of a damaged record nothing holds."""
        self._records = records
        self.cpu_ratio: float | None = None
        self.bans: dict[str, Ban] = {}
        self.windows: tuple[Window, ...] = ()
        self.probe = True
        self.wake = False  # whether the machine may be woken for jobs
        self._spare, self._spare_s = float(MOST_AT_ONCE), time.monotonic()
        self.problem = ""
        try:
            if (found := records.word()) is not None:
                self._take_up(found)
        except (KeyError, TypeError, ValueError, OverflowError):
            self.problem = DAMAGED

    def share(self, ratio: float | None) -> None:
        """From now on, at most this share of the CPU. Raises :class:`Refusal`, OSError where it cannot be kept."""
        self._keep(cpu_ratio=ratio)

    def allow_probe(self, on: bool) -> None:
        """Whether the wake-up probe may run here. Raises :class:`Refusal`, OSError."""
        self._keep(probe=on)

    def allow_wake(self, on: bool) -> None:
        """Whether the machine may be woken for jobs that wait. Raises :class:`Refusal`, OSError."""
        self._keep(wake=on)

    def ban(self, user: str, by: str, seconds: float | None) -> None:
        """That user's jobs are not taken here. Raises :class:`Refusal` for too many, OSError."""
        if user not in self.bans and len(self.bans) >= MOST_BANS:
            raise Refusal("busy", f"{MOST_BANS} users are banned here already; allow some")
        until_s = None if seconds is None else time.time() + seconds
        self._keep(bans={**self.bans, user: Ban(by, until_s)})

    def allow(self, user: str) -> None:
        """They are taken again. Raises :class:`Refusal`, OSError."""
        self._keep(bans={name: ban for name, ban in self.bans.items() if name != user})

    def set_hours(self, windows: tuple[Window, ...]) -> None:
        """Nothing runs outside of these; none: any time. Raises :class:`Refusal`, OSError."""
        self._keep(windows=windows)

    def forget_old_bans(self) -> bool:
        """Take back bans whose time is over; whether there were any."""
        now_s = time.time()
        left = {name: ban for name, ban in self.bans.items() if ban.until_s is None or ban.until_s > now_s}
        if len(left) == len(self.bans):
            return False
        with contextlib.suppress(OSError, Refusal):  # the record's times say the same to a successor
            self._keep(bans=left)
        self.bans = left
        return True

    @property
    def closed(self) -> str:
        """Why nothing runs here at this hour; empty where it may."""
        if not self.windows or not self._opens_in():
            return ""
        hours = " and ".join(map(str, self.windows))
        return f"it is outside of the hours in which parallel work may run at this desk ({hours})"

    def opens_in_s(self) -> float | None:
        """In how many seconds hours begin again, where it is outside of them."""
        minutes = self._opens_in() if self.windows else 0
        return minutes * _S_PER_MINUTE - time.localtime().tm_sec if minutes else None

    def open_spans_us(self, now_us: int) -> list[tuple[int, int]]:
        """From when until when nothing is said against jobs in the coming days, in microseconds since boot."""
        time.tzset()
        now = time.localtime()
        minute_us = now_us - now.tm_sec * process.US_PER_S
        minutes = open_spans(self.windows, now.tm_wday, now.tm_hour * 60 + now.tm_min, FORESEEN_DAYS * MINUTES)
        return [
            (minute_us + begin * _S_PER_MINUTE * process.US_PER_S, minute_us + end * _S_PER_MINUTE * process.US_PER_S)
            for begin, end in minutes
        ]

    def status_fields(self) -> dict[str, Any]:
        """For ``status``."""
        hours = _as_lists(self.windows)
        fields = {"cpu_ratio": self.cpu_ratio, "hours": hours, "probe": self.probe, "wake": self.wake}
        bans = {user: {"by": ban.by, "until_s": ban.until_s} for user, ban in self.bans.items()}
        return {**fields, "bans": bans}

    def _opens_in(self) -> int:
        time.tzset()  # the machine may have been given another time zone
        now = time.localtime()
        return opens_in(self.windows, now.tm_wday, now.tm_hour * 60 + now.tm_min)

    def _take_up(self, found: dict[str, Any]) -> None:
        ratio = found.get("cpu_ratio")
        hours = found.get("hours")
        windows = windows_of(hours) if hours else ()
        bans = {str(user): Ban(str(by), None if until is None else float(until)) for user, by, until in found["bans"]}
        self.cpu_ratio = None if ratio is None else min(1.0, max(0.001, float(ratio)))
        self.windows, self.bans, self.probe = windows, bans, found.get("probe") is not False
        self.wake = found.get("wake") is True

    def _afford(self) -> None:
        """Raises :class:`Refusal` where decisions follow each other too fast."""
        now_s = time.monotonic()
        self._spare = min(MOST_AT_ONCE, self._spare + now_s - self._spare_s)
        self._spare_s = now_s
        if self._spare < 1:
            raise Refusal("busy", "too many decisions at once: wait a second")
        self._spare -= 1

    def _keep(
        self,
        cpu_ratio: Any = ...,
        bans: dict[str, Ban] | None = None,
        windows: tuple[Window, ...] | None = None,
        probe: bool | None = None,
        wake: bool | None = None,
    ) -> None:
        """Have it on record first: what could not be written does not hold. Raises :class:`Refusal`, OSError."""
        self._afford()
        ratio = self.cpu_ratio if cpu_ratio is ... else cpu_ratio
        bans = self.bans if bans is None else bans
        windows = self.windows if windows is None else windows
        probe = self.probe if probe is None else probe
        wake = self.wake if wake is None else wake
        self._records.write_word(
            {
                "cpu_ratio": ratio,
                "bans": [[user, ban.by, ban.until_s] for user, ban in bans.items()],
                "hours": _as_lists(windows),
                "probe": probe,
                "wake": wake,
            }
        )
        self.cpu_ratio, self.bans, self.windows, self.probe = ratio, bans, windows, probe
        self.wake, self.problem = wake, ""


def _as_lists(windows: tuple[Window, ...]) -> list[list[Any]]:
    return [[each.begin, each.end, list(each.days)] for each in windows]
