"""The page's live streams: one look at the published view for all of them, and each at its reader's pace.

Nothing is looked at while nobody looks on. A stream holds its place in the feed and no queue: who reads slowly skips to
what holds then, and who does not read at all is cut off (:mod:`~.readers`). A user has a bounded number; one more ends
the oldest, so nobody is shut out by tabs that were forgotten.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from cosched.admission import Bounds, Places
from space_scheduler.service.api.waiting import at_most
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.journal.records import Committed, View
from space_scheduler.service.log import Log
from space_scheduler.service.page.feed import MOST_ENDED, Feed, Seen
from space_scheduler.service.page.rows import JobRow, NodeRow, Rows

#: At most one look in this time; and where nothing is committed, one in twice the time, for what nodes say.
LOOK_S: Final = 0.5
#: A line for nobody, so that it is noticed when the other end has gone.
STILL_THERE_S: Final = 5.0
OF_ONE_USER: Final = 4
IN_ALL: Final = 64
#: After so long without anybody the feed is forgotten.
_IDLE_S: Final = 60.0
#: Jobs may end between a look at the view and the reading of the journal.
_MARGIN: Final = 50


@dataclass(eq=False)
class Stream:
    """One browser's. ``replaced``: another of the same user has taken its place."""

    user: str
    news: asyncio.Event = field(default_factory=asyncio.Event)
    replaced: bool = False

    async def waited(self) -> bool:
        """Whether there are news within :data:`STILL_THERE_S`."""
        await at_most(self.news, STILL_THERE_S)
        told = self.news.is_set()
        self.news.clear()
        return told


class Streams:
    """All streams, and the feed that they share."""

    def __init__(self, core: CoreHost, rows: Rows, log: Log) -> None:
        self._core = core
        self._log = log
        self._rows = rows
        self.feed = Feed()
        self.own: dict[str, list[JobRow]] = {}  # by user: own jobs that are not in the feed
        self.ready = False  # whether there is a frame
        self.stopping = False
        self._open: Places[str, Stream] = Places(Bounds(IN_ALL, OF_ONE_USER), replaces=True)
        self._changed = asyncio.Event()
        self._somebody = asyncio.Event()
        self._ended: int | None = None
        self._nodes: tuple[dict[str, NodeRow], int] = {}, 0
        self._nodes_s = 0.0
        self.seeing = False  # whether the last look has succeeded
        self._failing: set[str] = set()  # what has failed since it succeeded last

    def __len__(self) -> int:
        return len(self._open)

    def committed(self, _: Committed) -> None:
        """Something is in the journal: there may be something new to see."""
        self._changed.set()

    def open(self, user: str) -> Stream:
        """A stream of that user's; one of those who have most ends for it where there are too many."""
        stream = Stream(user)
        if (evicted := self._open.enter(stream, user)) is not None:
            evicted.replaced = True
            evicted.news.set()
        self._somebody.set()
        return stream

    def close(self, stream: Stream) -> None:
        """It has ended."""
        self._open.leave(stream)

    def stop(self) -> None:
        """The service ends: so do all streams."""
        self.stopping = True
        for each in self._open:
            each.news.set()

    async def run(self) -> None:
        """Look for as long as anybody looks on. For ever."""
        while True:
            await self._somebody.wait()
            idle_since_s = time.monotonic()
            while self._open or time.monotonic() - idle_since_s < _IDLE_S:
                if self._open:
                    idle_since_s = time.monotonic()
                    self.seeing = await self._tried("the page could not be made", self._look)
                await asyncio.sleep(LOOK_S)
                await at_most(self._changed, LOOK_S)
                self._changed.clear()
            self._somebody.clear()
            # all that was kept for watchers
            self.feed, self.own, self.ready, self._ended = Feed(), {}, False, None
            self._nodes, self._nodes_s = ({}, 0), 0.0
            self._rows.forget()

    async def _tried(self, what: str, part: Callable[[], Awaitable[None]]) -> bool:
        """Whether a part of a look succeeds. One that fails is tried again; it is logged once until it succeeds."""
        try:
            await part()
        except Exception as error:
            if what not in self._failing:
                self._log.fault(what, error)
            self._failing.add(what)
            return False
        self._failing.discard(what)
        return True

    async def _look(self) -> None:
        view = self._core.view()
        await self._tried("jobs that have ended could not be read for the page", partial(self._read_ended, view))
        now_s = time.time()
        if not 0 <= now_s - self._nodes_s < 2 * LOOK_S:
            self._nodes, self._nodes_s = self._rows.nodes(view), now_s
        nodes, more_nodes = self._nodes
        jobs = self._rows.jobs(view)
        queue = [job.id for _, job in view.line if job.id in jobs]
        own = self._rows.own(view, {each.user for each in self._open})
        seen = Seen(int(now_s * 1000), self._rows.cluster(view, len(jobs), more_nodes), jobs, queue, nodes)
        if self.feed.look(seen) or own != self.own:
            self.own = own
            for each in self._open:
                each.news.set()
        self.ready = True

    async def _read_ended(self, view: View) -> None:
        """Those that have ended since the last look, from the journal."""
        ended = sum(view.ended.values())
        if ended != self._ended:
            new = MOST_ENDED if self._ended is None else ended - self._ended + _MARGIN
            found = await self._core.history(limit=min(MOST_ENDED, new))
            self.feed.end(self._rows.job(each) for each in reversed(found) if each.id not in view.jobs)
            self._ended = ended
