"""Virtual time, a network between hosts, and chance: one process, one seed, the same history each time.

A *fault site* is a place where something may go wrong. Each has a name; whether it does is drawn from the seed, and how
often it did is counted. After ``quiet_us`` nothing goes wrong any more: everything still open can come to an end.
"""

import math
import random
import sys
import zlib
from collections import Counter, deque
from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush

S = 1_000_000
MS = 1_000


class World:
    """What all hosts share. Times in microseconds since the world began."""

    def __init__(self, seed: int, rates: dict[str, float], quiet_us: int, only: frozenset[int] | None = None) -> None:
        """``rates``: how probable each fault site is at each opportunity; a site that is not named never fires.

        ``only``: of the faults that the seed would have, by their numbers, those that happen (None: all).
        """
        self.seed = seed
        self.random = random.Random(seed)
        self.rates = rates
        self.quiet_us = quiet_us
        self.now_us = 0
        self.wall_us = 1_700_000_000 * S  # the wall clock when the world began; people and NTP set it
        self.only = only
        self.faults = 0
        self._chances: dict[str, int] = {}  # by site: at how many more opportunities nothing goes wrong
        self._draws: Counter[str] = Counter()
        self.fired: Counter[str] = Counter()
        self.trace: list[tuple[int, str]] = []
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._entries = 0

    def at(self, at_us: int, happens: Callable[[], None]) -> None:
        """Have it happen then."""
        self._entries += 1
        heappush(self._agenda, (max(at_us, self.now_us), self._entries, happens))

    def after(self, after_us: int, happens: Callable[[], None]) -> None:
        """Have it happen in so long."""
        self.at(self.now_us + after_us, happens)

    def fault(self, site: str) -> bool:
        """Whether something goes wrong here, now."""
        if self.now_us >= self.quiet_us:
            return False
        left = self._chances.get(site)
        if left is None:
            left = self._next(site)
        self._chances[site] = left - 1
        if left:
            return False
        self._chances[site] = self._next(site)
        self.faults += 1
        if self.only is not None and self.faults not in self.only:
            return False
        self.fired[site] += 1
        self.say(f"FAULT {self.faults} {site}")
        return True

    def _next(self, site: str) -> int:
        """How many opportunities of a site go by until it fires; as if each had been drawn by itself.

        Not from the stream of chance that all else is drawn from: to leave one fault out moves few others.
        """
        if not (rate := self.rates.get(site, 0.0)):
            return sys.maxsize
        self._draws[site] += 1
        drawn = (zlib.crc32(f"{self.seed} {site} {self._draws[site]}".encode()) + 0.5) / (1 << 32)
        return int(math.log(drawn) / math.log1p(-rate))

    def draw_us(self, least_us: int, most_us: int) -> int:
        """A time between these."""
        return self.random.randint(least_us, most_us)

    def say(self, what: str) -> None:
        """A line of the history."""
        self.trace.append((self.now_us, what))

    def run(self, until_us: int, done: Callable[[], bool]) -> bool:
        """Go on until it is done, or the time is over; whether it was done."""
        while self._agenda and self._agenda[0][0] <= until_us:
            at_us, _, happens = heappop(self._agenda)
            self.now_us = at_us
            happens()
            if self.now_us >= self.quiet_us and done():
                return True
        self.now_us = until_us
        return done()


class Sleeper:
    """A process or a machine that may stand still; what comes meanwhile happens when it goes on, in its order."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.until_us = 0

    @property
    def stands_still(self) -> bool:
        """Whether nothing happens there now."""
        return self._world.now_us < self.until_us

    def stand_still(self, for_us: int) -> None:
        """Let nothing happen there for so long."""
        self.until_us = max(self.until_us, self._world.now_us + for_us)

    def do(self, happens: Callable[[], None]) -> None:
        """Have it happen there: now, or when it goes on."""
        if self.stands_still:
            self._world.at(self.until_us, lambda: self.do(happens))
        else:
            happens()


class Connection:
    """Two ordered streams of frames between a node and the scheduler, as TCP has them, until it is cut.

    ``to_scheduler`` and ``to_node`` take what arrives, ``ended`` is called at each side when it is over.
    """

    def __init__(self, world: World, node: str) -> None:
        self.world = world
        self.node = node
        self.open = True
        self.lag_us = 0  # how slow one of its ends is
        self.ends: dict[str, Callable[[bytes], None]] = {}
        self.ended: dict[str, Callable[[], None]] = {}
        self._last_us = {"node": 0, "scheduler": 0}
        self._flying: dict[str, deque[bytes]] = {"node": deque(), "scheduler": deque()}

    def send(self, to: str, frame: bytes) -> None:
        """Send a frame to that side. It may be slow; it may be what a cut loses."""
        world = self.world
        if not self.open:
            return
        delay_us = self.lag_us + world.draw_us(100, 3 * MS)
        if world.fault("delay"):
            delay_us += world.draw_us(50 * MS, 8 * S)
        at_us = max(self._last_us[to], world.now_us + delay_us)
        self._last_us[to] = at_us
        self._flying[to].append(frame)
        world.at(at_us, lambda: self._arrive(to))
        if world.fault("cut"):
            self.cut()

    @property
    def late(self) -> bool:
        """Whether something that was sent comes in more than a second."""
        return self.open and max(self._last_us.values()) > self.world.now_us + S

    def _arrive(self, to: str) -> None:
        if self.open and self._flying[to]:
            frame = self._flying[to].popleft()
            if to in self.ends:
                self.ends[to](frame)

    def cut(self) -> None:
        """It is over: what has not arrived is lost. Each side learns of it by itself."""
        if not self.open:
            return
        self.open = False
        for side in ("node", "scheduler"):
            self.world.after(self.world.draw_us(MS, 200 * MS), partial(self._is_over, side))

    def _is_over(self, side: str) -> None:
        if (told := self.ended.get(side)) is not None:
            told()
