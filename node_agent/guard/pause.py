"""A pause of parallel work at this desk: since when, until when, by whom; on record, so that it outlives the guard."""

import time
from typing import Any, Final

from cosched.linux import process
from node_agent.guard.records import Records
from node_agent.guard.requests import Refusal

LONGEST_PAUSE_S: Final = 366 * 24 * 3600
OPTED_OUT: Final = "its owner takes part in no parallel work (parallel = false in node.toml)"


class Pause:
    """Whether parallel work is paused on this desk, by whom, and until when (us since boot; None: until resumed)."""

    def __init__(self, records: Records, boot_id: str, *, opted_out: bool) -> None:
        """Take up what a predecessor has left on record."""
        self._records = records
        self._boot_id = boot_id
        self._opted_out = opted_out
        self.since_us: int | None = None
        self.until_us: int | None = None
        self.user = ""
        self.count = 0  # pauses since the guard started
        found = records.pause()
        if opted_out:
            self.since_us = process.boottime_us()
        elif found is not None:
            self._take_up(found)

    @property
    def why(self) -> str:
        """Why nothing runs here; empty where parallel work is welcome."""
        if self._opted_out:
            return OPTED_OUT
        return f"{self.user} has paused parallel work at this desk" if self.since_us is not None else ""

    def begin(self, user: str, seconds: float | None) -> None:
        """From now on, for so long (None: until resumed). A second pause replaces the end of the first."""
        if self._opted_out:
            raise Refusal("busy", OPTED_OUT)
        now_us = process.boottime_us()
        self.count += self.since_us is None
        self.since_us = now_us if self.since_us is None else self.since_us
        self.until_us = None if seconds is None else now_us + round(seconds * process.US_PER_S)
        self.user = user
        until_s = None if seconds is None else time.time() + seconds
        self._records.write_pause(
            {"user": user, "since_us": self.since_us, "until_us": self.until_us, "until_s": until_s}, self._boot_id
        )

    def end(self) -> None:
        """Parallel work goes on."""
        if self._opted_out:
            raise Refusal("busy", OPTED_OUT)
        self.since_us = self.until_us = None
        self._records.drop_pause()

    def _take_up(self, found: dict[str, Any]) -> None:
        now_us = process.boottime_us()
        until_us, until_s = found.get("until_us"), found.get("until_s")
        if found.get("boot_id") != self._boot_id and until_s is not None:
            until_us = now_us + round((float(until_s) - time.time()) * process.US_PER_S)
        if until_us is not None and until_us <= now_us:
            self._records.drop_pause()
            return
        same_boot = found.get("boot_id") == self._boot_id
        self.since_us = int(found["since_us"]) if same_boot else now_us
        self.until_us, self.user = until_us, str(found.get("user", ""))
