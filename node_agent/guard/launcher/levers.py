"""What lets one job run before another on this node: its cgroup's weight and idle flag, always for a while.

Nothing here touches the parallel side as a whole: whatever jobs do to each other, the contract and the idle class
around them all hold. Where the side has a ceiling, a job that waits for its turn is held altogether: in the idle class
it would use up what there is for all whenever the job whose turn it is waits for a message.

Every lever but one has a moment at which it is undone, whether or not an agent is there to do so; a job whose processes
are to sleep stays in the idle class until it is given a CPU. A guard that is killed leaves what it had set; its
successor begins by setting all to what they are made with, and what is on record again.

Slots are counted from one moment on, so that guards of several nodes that were told the same moment (each by its own
clock) change over at the same time, without a message for each change.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from cosched.linux.cgroups import HELD_US, group_name
from cosched.linux.process import US_PER_S, boottime_us
from node_agent.guard.base.requests import MAX_LEASE_US, Slots, lease
from node_agent.guard.launcher.groups import Key, Shared

#: Turns that would hold somebody for longer are by the idle class.
MAX_HELD_US: Final = HELD_US[1]
_NEVER_US: Final = 1 << 62


class Lever(NamedTuple):
    """How a job stands to the others."""

    percent: int = 100
    idle: bool = False
    held: bool = False


NEUTRAL: Final = Lever()
_UNKNOWN: Final = Lever(percent=0)  # has to be written


class Levers:
    """Who alone writes jobs' weights. Keys are (job, attempt); times are microseconds since boot."""

    def __init__(self, shared: Shared, holds: Callable[[], bool]) -> None:
        """``holds``: whether a job that waits for its turn is to be held now, and can be."""
        self._shared = shared
        self._holds = holds
        self._holding = False
        self._raised: dict[Key, tuple[int, int]] = {}  # percent, until when
        self._slots: Slots | None = None
        self._set: dict[Key, Lever] = {}  # what is not as it was made
        self.due_us = _NEVER_US  # when :meth:`tick` is wanted next
        self.raises = 0
        self.problem = ""

    def weigh(self, key: Key, percent: int, until_us: int, now_us: int) -> int:
        """Give a job that weight, until then. Returns until when. Raises :class:`Refusal`, OSError."""
        until_us = lease(until_us, now_us, MAX_LEASE_US)
        before = self._raised.get(key, (NEUTRAL.percent, 0))[0]
        self._raised[key] = percent, until_us
        if failed := self.apply(now_us):
            del self._raised[key]
            raise failed
        self.raises += percent > max(before, NEUTRAL.percent)
        return until_us

    def slots(self, slots: Slots, now_us: int) -> int:
        """Let jobs take turns, until then; no rows: not any more. Raises :class:`Refusal`, OSError."""
        if slots.rows:
            slots = replace(slots, until_us=lease(slots.until_us, now_us, MAX_LEASE_US))
        self._slots = slots if slots.rows else None
        if failed := self.apply(now_us):
            self._slots = None
            self.apply(now_us)
            raise failed
        return slots.until_us

    def tick(self, now_us: int) -> None:
        """Do what is due: change over to the next slot, undo what has expired, follow a ceiling that came or went."""
        if now_us >= self.due_us or (self._slots is not None and self._holding != self._holds()):
            self.apply(now_us)

    def forget(self, key: Key) -> None:
        """The job's group is gone."""
        self._raised.pop(key, None)
        self._set.pop(key, None)

    def undo_all(self, keys: Iterable[Key]) -> None:
        """Every lever as it was made, written whatever is believed to be set."""
        self._raised.clear()
        self._slots = None
        self.due_us = _NEVER_US
        if self._shared.cgroups.kernel_groups:
            self._set = dict.fromkeys([*self._set, *keys], _UNKNOWN)
            self._write({})

    def status_fields(self) -> dict[str, Any]:
        """For ``status``."""
        return {
            "levers": [[*key, lever.percent, lever.idle or lever.held] for key, lever in sorted(self._set.items())],
            "raises": self.raises,
            "levers_problem": self.problem,
        }

    def apply(self, now_us: int) -> OSError | None:
        """Set what holds now. Returns the last failure: what has failed is tried again when something changes.

        A job that is to sleep comes after all others. One that is to end is held no more, for a job that is held dies
        as slowly as it is let run.
        """
        ending = {key for key, group in self._shared.groups.items() if group.ending}
        self._raised = {key: raised for key, raised in self._raised.items() if raised[1] > now_us}
        wanted = {key: Lever(percent) for key, (percent, _) in self._raised.items()}
        self.due_us = min((until_us for _, until_us in self._raised.values()), default=_NEVER_US)
        if self._slots is not None and self._slots.until_us <= now_us:
            self._slots = None
        if (slots := self._slots) is not None:
            number = (now_us - slots.begin_us) // slots.slot_us
            self._holding = self._holds()
            held = self._holding and slots.slot_us * (len(slots.rows) - 1) <= MAX_HELD_US
            for key in _waiting(slots, number):
                held_here = held and key not in ending
                wanted[key] = wanted.get(key, NEUTRAL)._replace(idle=not held_here, held=held_here)
            self.due_us = min(self.due_us, slots.begin_us + (number + 1) * slots.slot_us, slots.until_us)
        wanted |= {
            key: Lever(idle=True) for key, group in self._shared.groups.items() if group.asleep and key not in ending
        }
        return self._write({key: lever for key, lever in wanted.items() if lever != NEUTRAL})

    def _write(self, wanted: dict[Key, Lever]) -> OSError | None:
        """First who may run, then who may not: in between nobody is held back in vain."""
        changes = [key for key in {**self._set, **wanted} if self._set.get(key) != wanted.get(key)]
        changes.sort(key=lambda key: wanted.get(key, NEUTRAL)[1:] != NEUTRAL[1:])
        failed: OSError | None = None
        for key in changes:
            lever = wanted.get(key, NEUTRAL)
            try:
                lever = self._changed(group_name(*key), self._set.get(key, NEUTRAL), lever)
            except FileNotFoundError:
                lever = NEUTRAL  # the job has ended
            except OSError as error:
                failed = error
                self.problem = f"job {key[0]}.{key[1]}: {error.strerror}"
                if lever == NEUTRAL:  # what is to be undone is tried until it is
                    self._set[key] = _UNKNOWN
                    self.due_us = min(self.due_us, boottime_us() + US_PER_S)
                continue
            if lever == NEUTRAL:
                self._set.pop(key, None)
            else:
                self._set[key] = lever
        return failed

    def _changed(self, name: str, before: Lever, lever: Lever) -> Lever:
        """Make a job's lever so, and return what it is now: who cannot be held is in the idle class. Raises OSError."""
        if not lever.held and (before.held or before == _UNKNOWN):
            self._shared.cgroups.hold(name, held=False)
        if before[:2] != lever[:2]:
            self._shared.cgroups.weigh(name, lever.percent, lever.idle)
        if lever.held and not before.held:
            try:
                self._shared.cgroups.hold(name, held=True)
            except FileNotFoundError:
                raise
            except OSError as error:
                self.problem = f"{name} cannot be held: {error.strerror}"
                lever = lever._replace(idle=True, held=False)
                self._shared.cgroups.weigh(name, lever.percent, lever.idle)
        return lever


def _waiting(slots: Slots, number: int) -> list[Key]:
    """Who is not in that slot's row. An empty row is everybody's."""
    row = slots.rows[number % len(slots.rows)]
    return [key for other in slots.rows if row and other is not row for key in other]
