"""One interface to all modes: the node's jobs and the moment in, what to do and when to look again out.

Coscheduling moves CPU time among jobs; what parallel work has as a whole is the contract's business. Where nobody has
to wait for a CPU there is nothing to decide, and nobody looks.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from cosched.model.coscheduling import Mode
from node_agent.policy import ccs, dcs, gang
from node_agent.policy.budget import Budget
from node_agent.policy.raising import HOLD_US, LONGEST_HOLD_US, NEUTRAL, RAISED, Job, Key, Slots, Weigh

#: How often arrivals are looked for (measured: 10 ms is as good as 5, at half the cost; 50 ms is too late), and how
#: often all else is.
ARRIVALS_US: Final = 10_000
SELDOM_US: Final = 1_000_000
#: How soon to look again whether a budget that is used up has something in it: until then no arrival can raise.
USED_UP_US: Final = 100_000
#: For how long what lasts is asked for: a few looks, so that it ends by itself soon after the agent does.
LEASE_US: Final = 3_500_000
#: Shares that differ by less than this are not worth a weight.
_UNEQUAL: Final = 0.05


class Decision(NamedTuple):
    """``weights`` to be given now, in place of those before; ``slots`` as they should be from now on (None: none)."""

    weights: tuple[Weigh, ...] = ()
    slots: Slots | None = None
    look_us: int = SELDOM_US


class Coscheduling:
    """What one node does for its jobs; remembers their budgets and what it has asked for."""

    def __init__(self) -> None:
        self.clock = gang.Clock()
        self._budgets: dict[Key, Budget] = {}
        self.given: dict[Key, Weigh] = {}  # to be cleared when the guard has undone everything (it was restarted, say)
        self._holds_us: dict[Key, int] = {}  # how long the last raise was to hold

    def decide(self, jobs: Sequence[Job], slot_us: int, now_us: int, *, contended: bool) -> Decision:
        """What to do now. ``contended``: more tasks than CPUs. Times in microseconds (since boot)."""
        self._account(jobs, now_us)
        if not contended or len(jobs) < 2:
            self.given.clear()  # what was given expires
            return Decision()
        turns = gang.slots(jobs, self.clock, slot_us, now_us, now_us + LEASE_US)
        if turns is None:  # whoever was to have slots does without
            jobs = [job._replace(rows=0) for job in jobs]
        most = max(job.share for job in jobs)
        weights = []
        for job in jobs:
            wanted = self._weight(job, jobs, most, now_us)
            if wanted is not None and self._is_new(wanted, now_us):
                self.given[job.key] = wanted
                self._holds_us[job.key] = wanted.until_us - now_us
                weights.append(wanted)
        looks_us = (self._look_us(job, now_us) for job in jobs if looks_for_arrivals(job, jobs))
        return Decision(tuple(weights), turns, min([SELDOM_US, *looks_us]))

    def _account(self, jobs: Sequence[Job], now_us: int) -> None:
        here = {job.key for job in jobs}
        for known in (self._budgets, self.given, self._holds_us):
            for key in known.keys() - here:
                del known[key]
        for job in jobs:
            self._budgets.setdefault(job.key, Budget(now_us, job.cpu_us)).account(job.share, now_us, job.cpu_us)

    def _weight(self, job: Job, here: Sequence[Job], most: float, now_us: int) -> Weigh | None:
        """What the job should weigh: raised for a moment, else by its share where shares are unequal."""
        lasting = NEUTRAL
        if job.mode is Mode.CCS and 0 < job.share < (1 - _UNEQUAL) * most:
            lasting = max(10, round(NEUTRAL * job.share / most))
        if job.mode is Mode.CCS and ccs.raised(job, here, self._budgets[job.key]):
            return Weigh(job.key, RAISED, now_us + self._hold_us(job, now_us))
        if job.mode is Mode.DCS and dcs.raised(job):
            return Weigh(job.key, RAISED, now_us + HOLD_US)
        return Weigh(job.key, lasting, now_us + LEASE_US) if lasting != NEUTRAL else None

    def _hold_us(self, job: Job, now_us: int) -> int:
        """For how long to raise: longer each time in a row, and beyond the shortest only as the budget lasts."""
        given = self.given.get(job.key)
        in_a_row = given is not None and given.percent == RAISED and given.until_us > now_us
        longer_us = min(LONGEST_HOLD_US, 2 * self._holds_us[job.key]) if in_a_row else HOLD_US
        return max(HOLD_US, min(longer_us, self._budgets[job.key].lasts_us(job.share, job.cpus)))

    def _look_us(self, job: Job, now_us: int) -> int:
        """When to look again for arrivals of a job: while it may be raised and is not, or not for much longer."""
        if job.mode is Mode.CCS and not self._budgets[job.key].open:
            return USED_UP_US
        given = self.given.get(job.key)
        left_us = given.until_us - now_us if given is not None and given.percent == RAISED else 0
        return max(ARRIVALS_US, left_us - ARRIVALS_US)

    def _is_new(self, wanted: Weigh, now_us: int) -> bool:
        """Whether it has to be said: not while what was said before holds for some time yet."""
        given = self.given.get(wanted.key)
        if given is None or given.until_us <= now_us:
            return True
        if given.percent != wanted.percent:
            return wanted.percent > given.percent  # a hold is never cut short
        if wanted.percent == RAISED:
            return given.until_us - now_us <= ARRIVALS_US
        return given.until_us - now_us < LEASE_US // 2


def looks_for_arrivals(job: Job, here: Sequence[Job]) -> bool:
    """Whether somebody has to look out for the job's messages, beside the jobs that are here."""
    return (job.mode is Mode.CCS and ccs.wants(job, here)) or (job.mode is Mode.DCS and dcs.wants(job))
