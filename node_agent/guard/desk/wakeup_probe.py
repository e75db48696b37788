"""The wake-up probe: a process of ordinary priority in a group of the owner's weight, which counts how late it wakes.

It feels what the owner's processes feel: the guard itself gives way to others (:mod:`cosched.linux.slices`), and would
not. Nothing but numbers of late wake-ups comes of it; what anybody does is not seen by it.
"""

from random import Random
from typing import Any, Final

from cosched.linux import process
from cosched.linux.cgroups import PROBE, Cgroups
from cosched.linux.wakeups import WakeupCounts, probe
from node_agent.guard.desk.helpers import end, forked

#: One that has ended, or could not be started, is started again after so long.
_AGAIN_US: Final = 60 * process.US_PER_S
_LOOK_US: Final = 5 * process.US_PER_S


class WakeupProbe:
    """That of this node; ``problem`` says why there is none, or why it is in another group than the owner's."""

    def __init__(self, cgroups: Cgroups, desk: str, *, wanted: bool) -> None:
        """Raises OSError where there is no memory for its counts."""
        self._cgroups = cgroups
        self._desk = desk
        self._pid = 0
        self._pidfd: int | None = None
        self._placed = False  # in the owner's group, where there are groups
        self._wanted = wanted
        self._counts = WakeupCounts()
        self.allow(True)

    def allow(self, on: bool) -> bool:
        """The owner's word: whether it may run, where it is wanted. Whether it may then."""
        self.due_us = 0 if on and self._wanted else None  # when :meth:`tick` is wanted; None: it is not
        self.problem = ""
        if self.due_us is None:
            self.stop()
            self.problem = "the owner has switched it off" if self._wanted else "not wanted (monitoring.wakeups)"
        return self.due_us is not None

    def tick(self, now_us: int) -> None:
        """Start it, or see whether it is still there, and in the owner's group, which may come later."""
        if self.due_us is None or now_us < self.due_us:
            return
        self.due_us = now_us + _LOOK_US
        if self._pidfd is not None and process.has_ended(self._pidfd):
            self.stop()
            self.problem, self.due_us = "it has ended", now_us + _AGAIN_US
        elif self._pidfd is None:
            try:
                self._pid, self._pidfd = forked("cosched-probe", (), lambda: probe(self._counts, Random()))
            except OSError as error:
                self.problem, self.due_us = f"fork: {error.strerror}", now_us + _AGAIN_US
                return
            self.problem, self._placed = "", not self._cgroups.kernel_groups
        if self._pidfd is not None and not self._placed:
            try:
                self._cgroups.place_at_desk(self._pid, self._desk, PROBE)
                self._placed, self.problem = True, ""
            except OSError as error:
                self.problem = f"beside the guard, not in the owner's group: {error.filename}: {error.strerror}"

    def stop(self) -> None:
        """End it, and remove what was made for it."""
        if self._pidfd is not None:
            end([self._pidfd])
            self._pidfd = None
            self._cgroups.forget_leaf(self._desk, PROBE)

    def status_fields(self) -> dict[str, Any]:
        """For ``status``: counts by bucket, all of them since the guard started."""
        counted = self._counts.read()
        found = None if not any(counted.counts) else {"counts": list(counted.counts), "late_us": counted.late_us}
        return {"probe": {"wakeups": found, "problem": self.problem}}
