"""A pause of parallel work at this desk: since when, until when, by whom; on record, so that it outlives the guard.

What is said holds at once, also where it cannot be written down: then the status says so.
"""

import time
from typing import Any, Final

from cosched.linux import process
from node_agent.guard.base.records import Record, Records
from node_agent.guard.base.requests import Refusal

LONGEST_PAUSE_S: Final = 366 * 24 * 3600
OPTED_OUT: Final = "its owner takes part in no parallel work (parallel = false in node.toml)"
DAMAGED: Final = "the record of a pause at this desk is damaged"


class Pause:
    """Whether parallel work is paused on this desk, by whom, and until when (us since boot; None: until resumed).

    ``problem`` says why a successor of this guard would not know what holds now; empty where it would.
    """

    def __init__(self, records: Records, *, opted_out: bool) -> None:
        """Take up what a predecessor has left on record. A damaged record may be a pause: it is one until resumed."""
        self._records = records
        self._opted_out = opted_out
        self.since_us: int | None = None
        self.until_us: int | None = None
        self.user = ""
        self.count = 0  # pauses since the guard started
        self.problem = ""
        if opted_out:
            self.since_us = process.boottime_us()
            return
        try:
            if (found := records.said("pause")) is not None:
                self._take_up(found)
        except (KeyError, TypeError, ValueError, OverflowError):
            self.since_us, self.until_us, self.problem = process.boottime_us(), None, DAMAGED

    @property
    def why(self) -> str:
        """Why nothing runs here; empty where parallel work is welcome."""
        if self._opted_out:
            return OPTED_OUT
        if self.since_us is None:
            return ""
        return f"{self.user or 'somebody'} has paused parallel work at this desk"

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
        times = {"since_us": self.since_us, "until_us": self.until_us, "until_s": until_s}
        self._keep({"user": user, **times, "boot_id": process.boot_id()})

    def end(self) -> None:
        """Parallel work goes on."""
        if self._opted_out:
            raise Refusal("busy", OPTED_OUT)
        self.since_us = self.until_us = None
        self._keep(None)

    def _keep(self, pause: Record | None) -> None:
        """Have it on record; None: there is none."""
        self.problem = ""
        try:
            self._records.write(pause, "pause")
        except OSError as error:
            self.problem = (
                f"what was last said of a pause is not on record ({error.strerror}): "
                "it does not outlive this machine's guard"
            )

    def _take_up(self, found: dict[str, Any]) -> None:
        now_us = process.boottime_us()
        same_boot = found["boot_id"] == process.boot_id()
        until_us, until_s = found["until_us"], found["until_s"]
        if not same_boot and until_s is not None:
            until_us = now_us + round((float(until_s) - time.time()) * process.US_PER_S)
        if until_us is not None and int(until_us) <= now_us:
            self._keep(None)
            return
        self.since_us = min(int(found["since_us"]), now_us) if same_boot else now_us
        self.until_us, self.user = None if until_us is None else int(until_us), str(found["user"])
