"""Who is the scheduler: one at a time is meant to be. Sites: ``second scheduler`` and ``taken over``.

A *second scheduler* is started on the journal that one works with: it has to be refused. *Taken over*: the scheduler
stands still, or its machine does, its leases run out, an operator starts another one on a copy of its journal; then the
old one wakes up and does not know. Nodes are given the new address, and what they had sent to the old one is lost; a
node that has obeyed the new may reach the old by mistake. (A node that has not, and reaches the old one only, obeys
it: no epoch can fence a scheduler at a node that has not heard of the newer one.)
"""

from collections.abc import Callable
from pathlib import Path

from cosched.errors import Failed
from cosched.wire import messages as wire
from faults.scheduler import Scheduler
from faults.violation import Violation
from faults.world import Connection, S, World
from space_scheduler.service.journal.journal import Journal

_LEASE_US = 5 * S


class Schedulers:
    """The one that is meant to drive the nodes, ``now``, and old ones that have not been stopped yet."""

    def __init__(self, world: World, directory: Path, make: Callable[[Path, Scheduler | None], Scheduler]) -> None:
        """``make`` makes one on the journal of a directory, in the place of another."""
        self.world = world
        self._directory = directory
        self._make = make
        self._old: list[Scheduler] = []
        self._copies = 0
        self.now = make(directory, None)

    def start(self) -> None:
        """The first one."""
        self.now.start()
        self.world.after(S, self._tick)

    def _tick(self) -> None:
        self.world.after(S, self._tick)
        scheduler = self.now
        if not scheduler.alive or scheduler.process.stands_still:
            return
        if self.world.fault("second scheduler"):
            self._start_second(scheduler)
        if self.world.fault("taken over"):
            awakes_us = self.world.draw_us(_LEASE_US + 4 * S, 40 * S)
            scheduler.freeze(awakes_us)
            start = scheduler.starts
            self.world.after(_LEASE_US + 3 * S, lambda: self._take_over(scheduler, start, awakes_us))

    def _start_second(self, scheduler: Scheduler) -> None:
        try:
            second = Journal(scheduler.path)
        except Failed:
            self.world.say("a second scheduler is refused")
            return
        second.close()
        raise Violation("O4: two schedulers work with one journal")

    def _take_over(self, old: Scheduler, start: int, awakes_us: int) -> None:
        """Another one is started on a copy of the journal; the old one is stopped some time after it has woken up."""
        if not old.alive or old.starts != start:
            return
        self._copies += 1
        directory = self._directory / f"copy-{self._copies}"
        directory.mkdir()
        self._old.append(old)
        old.unreach()
        self.now = self._make(directory, old)
        self.now.disk.put(old.disk.read())
        self.world.say("another scheduler takes over")
        self.now.start()
        self.world.after(awakes_us + self.world.draw_us(0, 10 * S), old.stop)

    def dial(self, connection: Connection, obeyed: wire.Fence | None) -> bool:
        """A node calls, that has obeyed this one; whether anybody listens."""
        old = [each for each in self._old if each.alive]
        if obeyed is not None and hasattr(self.now, "fence") and obeyed == self.now.fence and old:
            return self.world.random.choice([*old, self.now]).accept(connection)
        return self.now.accept(connection)

    def resume_all(self) -> None:
        """An operator takes back all nodes that were set aside."""
        self.now.resume_all()

    def stop(self) -> None:
        """All of them."""
        for each in (*self._old, self.now):
            each.stop()
