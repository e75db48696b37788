"""The selections, each from its definition."""

from typing import Any

from reference.world import AnyJob, Job, News, World


class NoAppointments:
    def wants_to_look_at(self, world: World[Any]) -> list[int]:
        return []


class JustTheHead(NoAppointments):
    """FCFS, SJF and LJF: the head or nobody."""

    def decide(self, world: World[AnyJob], news: News[AnyJob]) -> None:
        while world.waiting and world.fits(world.queue()[0]):
            world.start(world.queue()[0])


class BestFit(NoAppointments):
    """The job that leaves the fewest processors unused, again and again; of equals the first in order."""

    def decide(self, world: World[AnyJob], news: News[AnyJob]) -> None:
        while fitting := [job for job in world.queue() if world.fits(job)]:
            world.start(min(fitting, key=lambda job: world.free() - job.procs))


class Fpfs(NoAppointments):
    """The first from the head on that fits; each start past the present head counts; at the bound nobody passes."""

    def __init__(self, max_jumps: int) -> None:
        self.max_jumps = max_jumps
        self.head: Job | None = None
        self.jumps = 0

    def decide(self, world: World[AnyJob], news: News[AnyJob]) -> None:
        while world.waiting:
            head = world.queue()[0]
            if world.fits(head):
                world.start(head)
                continue
            if head is not self.head:  # another job has to wait at the head now
                self.head, self.jumps = head, 0
            first = next((job for job in world.queue() if world.fits(job)), None)
            if first is None or self.jumps == self.max_jumps:
                return
            self.jumps += 1
            world.start(first)


class Easy(NoAppointments):
    """Feitelson & Weil 1998, Fig. 5, executed again and again until it identifies no job."""

    def __init__(self, *, shortest_first: bool = False) -> None:
        self.shortest_first = shortest_first

    def decide(self, world: World[Job], news: News[Job]) -> None:
        JustTheHead().decide(world, news)
        while job := self.find_a_backfill_job(world):
            world.start(job)

    def find_a_backfill_job(self, world: World[Job]) -> Job | None:
        if not world.waiting:
            return None
        head, *others = world.queue()
        # 1. find the shadow time and extra nodes
        running = sorted(world.holding(), key=lambda job: job.expected_end)
        available = world.free()
        for job in running:
            available += job.procs
            if available >= head.procs:
                shadow = job.expected_end
                break
        still_there = sum(job.procs for job in running if job.expected_end > shadow)
        extra = world.total - still_there - head.procs
        if head.promised is None:
            head.promised = shadow
        # 2. find a backfill job
        if self.shortest_first:
            others.sort(key=lambda job: job.estimate)
        for job in others:
            if job.procs <= world.free() and world.now + job.estimate <= shadow:
                return job
            if job.procs <= min(world.free(), extra):
                return job
        return None


#: Reservations: when each of some jobs is to start.
Reserved = dict[Job, int]


def earliest(world: World[Job], reserved: Reserved, job: Job) -> int:
    """Scan the future for the first point where the processors are there and stay there (Fig. 2, step 2b)."""
    spans = [(world.now, other.expected_end, other.procs) for other in world.holding()]
    spans += [(start, start + other.estimate, other.procs) for other, start in reserved.items() if other is not job]
    points = sorted({world.now} | {end for _, end, _ in spans if end > world.now})
    for anchor in points:
        end = anchor + job.estimate
        moments = [anchor] + [start for start, _, _ in spans if anchor < start < end]
        if all(job.procs + sum(p for s, e, p in spans if s <= at < e) <= world.total for at in moments):
            return anchor
    raise AssertionError("a job wider than the machine")


class Backfill(NoAppointments):
    """backfill(n): a job may start now if, with it there, the reservations of this pass come out the same."""

    def __init__(self, n: int) -> None:
        self.n = n

    def decide(self, world: World[Job], news: News[Job]) -> None:
        JustTheHead().decide(world, news)
        first = world.queue()[: self.n]
        for job in [job for job, start in self.reservations(world, first).items() if start == world.now]:
            first.remove(job)
            world.start(job)
        for job in [job for job in world.queue() if job not in first]:
            if not world.fits(job):
                continue
            before = self.reservations(world, first)
            with_it = self.reservations(world, first, {job: world.now})
            del with_it[job]
            if with_it == before:
                world.start(job)

    def reservations(self, world: World[Job], jobs: list[Job], taken: Reserved | None = None) -> Reserved:
        reserved = dict(taken or {})
        for job in jobs:
            reserved[job] = earliest(world, reserved, job)
        return reserved


class Conservative:
    """A reservation for every job at its submission; at an end, one of the four choices of section 2.1."""

    def __init__(self, choice: str) -> None:
        self.choice = choice
        self.reserved: Reserved = {}

    def wants_to_look_at(self, world: World[Job]) -> list[int]:
        return [start for start in self.reserved.values() if start > world.now]

    def decide(self, world: World[Job], news: News[Job]) -> None:
        if news.ended:
            in_order = [job for job in world.queue() if job in self.reserved]
            if self.choice == "anew":  # what is due now is as good as started
                due = [job for job in in_order if self.reserved[job] <= world.now]
                self.from_scratch(world, due + [job for job in in_order if job not in due])
            elif self.choice == "schedule":
                self.from_scratch(world, sorted(in_order, key=lambda job: self.reserved[job]))
            elif self.choice == "arrival":
                for job in in_order:
                    del self.reserved[job]
                    self.reserved[job] = earliest(world, self.reserved, job)
        for job in sorted(news.submitted, key=world.key):
            self.reserved[job] = earliest(world, self.reserved, job)
        for job in world.queue():
            if self.reserved[job] <= world.now:
                world.start(job)
                del self.reserved[job]
            elif job.promised is None:
                job.promised = self.reserved[job]

    def from_scratch(self, world: World[Job], jobs: list[Job]) -> None:
        self.reserved = {}
        for job in jobs:
            self.reserved[job] = earliest(world, self.reserved, job)
