"""Whether a run had the machine to itself: what the hypervisor took meanwhile, and what others' processes used.

A run of which too much was taken is made again; the one of which least was taken counts, with what that was.
"""

import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeVar

import msgspec
import psutil

from cosched.apps.experiments.in_force import ContractLooks, desks
from cosched.apps.lab import cgroups

Made = TypeVar("Made")
#: Shares of the machine's CPU time: more of one of these, and the run is made again.
MOST_STOLEN: Final = 0.005
MOST_OTHERS: Final = 0.02
#: How often a disturbed run is made, unless somebody says otherwise.
TRIES: Final = 4
_KINDS: Final = 8  # user to steal: a guest's time is in the user's already


class Taken(NamedTuple):
    """Shares of the machine's CPU time, of the hypervisor and of processes that are not the experiment's.

    ``in_force``: for which share of the time the contract was in force at the lab's desks; None: not known.
    """

    steal: float = 0.0
    others: float = 0.0
    in_force: float | None = None

    @property
    def too_much(self) -> bool:
        """Whether a run beside this is no measurement."""
        return self.steal > MOST_STOLEN or self.others > MOST_OTHERS


class WatchedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run that was measured, with what was :class:`Taken` of the machine meanwhile."""

    steal: float = 0.0
    others: float = 0.0
    in_force: float | None = None

    @property
    def disturbed(self) -> bool:
        """Whether it is no measurement."""
        return Taken(self.steal, self.others).too_much


class Clocks(NamedTuple):
    """Seconds of the machine's CPUs since its start, of all processes' CPU, and of the lab's and this process's."""

    stolen_s: float
    all_s: float
    used_s: float
    ours_s: float


class InterferenceWatch:
    """Watches this machine while an experiment runs in a lab on it.

    Without a lab what others use is not known: it sees what the hypervisor takes if the experiment is ``here``, else
    nothing.
    """

    def __init__(self, lab: str | None, say: Callable[[str], None], *, here: bool = False, tries: int = TRIES) -> None:
        self._lab = lab
        self._here = here or lab is not None
        self._say = say
        self._tries = tries

    def run(self, make: Callable[[], Made], what: str) -> tuple[Made, Taken]:
        """Make a run until it had the machine to itself, as often as may be: the best one, and what was taken of it."""
        tried: list[tuple[Made, Taken]] = []
        while not tried or (tried[-1][1].too_much and len(tried) < self._tries):
            before = self.clocks()
            with ContractLooks(desks(self._lab) if self._lab else []) as looks:
                made = make()
            taken = self.taken(before)._replace(in_force=looks.share)
            tried.append((made, taken))
            if taken.too_much:
                self._say(
                    f"{what}: disturbed: {taken.steal:.1%} of the machine was stolen, others used {taken.others:.1%}"
                )
        return min(tried, key=lambda each: each[1].steal / MOST_STOLEN + each[1].others / MOST_OTHERS)

    def taken(self, before: Clocks) -> Taken:
        """What was taken of the machine since then."""
        return _between(before, self.clocks())

    def clocks(self) -> Clocks:
        """Where the machine's clocks are now."""
        if not self._here:
            return Clocks(0.0, 0.0, 0.0, 0.0)
        times = psutil.cpu_times()
        all_s = sum(times[:_KINDS])
        if self._lab is None:
            return Clocks(times.steal, all_s, 0.0, 0.0)
        ours_s = cgroups.used_s(cgroups.path(self._lab)) + time.process_time()
        return Clocks(times.steal, all_s, cgroups.all_used_s(), ours_s)


def _between(before: Clocks, after: Clocks) -> Taken:
    total_s = after.all_s - before.all_s
    if not total_s:
        return Taken()
    others_s = after.used_s - before.used_s - (after.ours_s - before.ours_s)
    return Taken((after.stolen_s - before.stolen_s) / total_s, max(0.0, others_s / total_s))
