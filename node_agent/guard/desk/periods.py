"""The ceiling's periods in step on all nodes: else the tasks of one job are stopped at different times of each.

A ceiling of a half lets parallel work run for five milliseconds of each ten. Ranks that wait for each other get on only
where those five are the same five on their nodes. The kernel counts periods from whenever it began to; a period that is
longer, once, moves all that follow. What they are moved to is a moment that the agent names: the same on all nodes, and
one at which turns begin.

Whoever writes a ceiling gives its whole quota again, so both writes come right after a period's beginning, when all of
it is there still; and the longer period has no more in it than any other.
"""

from collections.abc import Callable
from typing import Final

from cosched.linux.cgroups import PERIOD_US, Cgroups, quota
from cosched.linux.process import boottime_us
from node_agent.guard.base.requests import MAX_LEASE_US, lease

#: Beginnings that are this near to where they belong are left there: clocks are not known better.
_NEAR_US: Final = 750
#: How often the count of periods is read while a beginning is looked for: it is known as exactly as that.
_STEP_US: Final = 300
#: A beginning that was seen later than that is not known well enough, and is too late to write at.
_LATE_US: Final = 1_000
#: No period is counted while nothing wants to run.
_PATIENCE_US: Final = 3 * PERIOD_US
_SOONEST_US: Final = 1_000_000
_SELDOM_US: Final = 4_000_000


class Periods:
    """Those of this node. ``ceiling``: what is in force, in CPUs; times are microseconds since boot."""

    def __init__(
        self, cgroups: Cgroups, ceiling: Callable[[], float | None], clock: Callable[[], int] = boottime_us
    ) -> None:
        self._cgroups = cgroups
        self._ceiling = ceiling
        self._clock = clock
        self._asked: tuple[int, int] | None = None  # where a period should begin, until when
        self.due_us: int | None = None  # when :meth:`keep` is wanted next; None: not before something changes
        self._wait_us = _SOONEST_US
        self._began_us: int | None = None  # looking, since when
        self._count, self._read_us = -1, 0
        self._longer_us = 0  # of the period that has been asked for, until the one before it is over
        self.moves = 0

    def ask(self, begin_us: int, until_us: int) -> int:
        """Have a period begin at some moment, and all others whole ones before and after, until then.

        Returns until when. Raises :class:`Refusal`.
        """
        self._asked = begin_us, lease(until_us, self._clock(), MAX_LEASE_US)
        return self._asked[1]

    def forget(self) -> None:
        """Whoever has asked has gone."""
        self._asked = None

    def keep(self) -> None:
        """Do what is due."""
        if self._asked is not None and self._asked[1] <= self._clock():
            self._asked = None
        cpus = self._ceiling()
        if cpus is not None and quota(cpus)[1] != PERIOD_US:
            cpus = None  # any other length is the limiter's
        try:
            if cpus is None or self._asked is None:
                if cpus is not None and self._longer_us:
                    self._stretch(cpus, 0)
                self.due_us, self._wait_us, self._began_us, self._longer_us = None, _SOONEST_US, None, 0
            elif self.due_us is None or self._clock() >= self.due_us:
                self._step(self._asked[0], cpus)
        except OSError:  # the ceiling is the limiter's to tell of, and to put right
            self._rest()
            self._longer_us = 0

    def _step(self, anchor_us: int, cpus: float) -> None:
        """Read the count once; where a period has begun just now, do what is to be done then."""
        if self._began_us is None:
            self._look_from(self._clock())
        count, before, read_us = self._cgroups.periods(), self._count, self._read_us
        now_us = self._clock()
        self._count, self._read_us = count, now_us
        late_us = ((read_us + now_us) // 2 - anchor_us) % PERIOD_US
        if before < 0 or count == before or now_us - read_us > _LATE_US:
            self._look_again(cpus, now_us)
        elif self._longer_us:  # the longer one has begun: those after it are as all
            self._stretch(cpus, 0)
            self.moves += 1
            self._rest()
        elif min(late_us, PERIOD_US - late_us) <= _NEAR_US:
            self._wait_us = _SELDOM_US
            self._rest()
        else:
            self._wait_us = _SOONEST_US
            self._stretch(cpus, PERIOD_US - late_us)
            self._look_from(now_us)

    def _look_again(self, cpus: float, now_us: int) -> None:
        if self._began_us is None or now_us - self._began_us <= _PATIENCE_US:
            self.due_us = now_us + _STEP_US
            return
        if self._longer_us:
            self._stretch(cpus, 0)
        self._wait_us = min(2 * self._wait_us, _SELDOM_US)
        self._rest()

    def _stretch(self, cpus: float, longer_us: int) -> None:
        self._longer_us = longer_us
        self._cgroups.set_period(cpus, PERIOD_US + longer_us)

    def _look_from(self, now_us: int) -> None:
        self._began_us, self._count, self._read_us = now_us, -1, now_us
        self.due_us = now_us

    def _rest(self) -> None:
        self._began_us = None
        self.due_us = self._clock() + self._wait_us
