"""Equipartition among jobs that grow and shrink, once more: plain, slow, read from the paper and the design.

Kalé, Kumar & DeSouza, "A Malleable-Job System for Timeshared Parallel Machines", 2002, section 4, and the design,
section 3 (equipartition). CPUs are interchangeable; a process has one. Rigid, moldable and malleable jobs are in one
queue; with rigid ones alone this is first fit.

**The pass**

1. Requests of evolving jobs are answered.
2. The queue is scanned in order: who fits with its minimum beside everybody's minimum is admitted.
3. Everybody has its minimum, and what is left over is handed out one by one: ``equal`` in rounds, one to each below its
   maximum, in order of starts; ``waterfill`` to whoever has least and is below its maximum, the earliest start first.
4. Who is to hold something else than it holds is resized; no work for ``resize_cost`` microseconds from then on.

**What paper and design leave open, and how it is read here**

1.  *Order of starts*: the last start, then submission, then number; newcomers of a pass come last, as the queue has
    them. The same for both strategies and for the rest of a round.
2.  *Minimum and maximum* of a malleable job are its smallest and largest size, and every number between is one; of a
    rigid job both are its size. A maximum above the machine's CPUs is allowed, a minimum above them is refused.
3.  *Moldable jobs* are admitted by their smallest size. In the pass in which they start each gets a share as if it were
    malleable, and then the largest of its sizes within that share, for good. With several this is done one after the
    other, in order of the queue, and all shares are worked out again after each, so that others get what a size leaves.
4.  *What is a change* for ``resize_cost``? That what a running job holds after the pass is not what it held before; not
    what it was to hold in between, and not a share that stays. It is the same for a growth and a shrink by any number,
    for evolving jobs too. A later change starts the time anew. Its end is no event.
5.  *The threshold* T: a running job whose share is larger than what it holds by fewer than T CPUs is left alone. Whose
    share is smaller by fewer than T is left alone too, in order of starts, as long as there are CPUs for that after all
    other changes: whoever starts gets its share, and the rest of what would have been handed out stays free. Nobody is
    left alone whose minimum or maximum has moved past what it holds.
6.  *A request of an evolving job for d CPUs more* moves its minimum and its maximum by d, and is granted if the new
    minimum fits beside the minima of all others that run: malleable jobs shrink for it. For d CPUs fewer it is always
    granted, down to 1. What it then holds follows from step 3.
7.  *When does it ask?* In the first whole microsecond at which that part of its own work (not of its estimate) is done;
    not if it ends then. All that come about by then are answered one after the other.
8.  *Which request is first?* The one asked first, ties in order of starts; all before the queue, in each pass, and
    again while one of them is granted: what a job gives up may be what another waits for.
9.  *If it does not fit*: ``keep``: refused for good, in the pass in which it is asked. ``part``: as many CPUs as fit,
    perhaps none, and refused for the rest. ``wait``: it does no work from then on, and holds (and is resized like any
    other) until it fits. Others may be admitted meanwhile: what it waits for is not reserved. A request that the
    machine is too small for is refused. Jobs that wait for each other do so for ever, and have no end.
10. *EASY among malleable jobs* (``admits="easy"``): the first that does not fit is the head. Its shadow time is when
    its minimum fits beside everybody's minimum, if each that runs does the rest of its estimate *on its minimum*, the
    least it can ever have (a moldable one that starts: its smallest size); the extra CPUs are what the minima leave
    then. Others are admitted that fit, in order, if they end by then on their minimum, or if their minimum is within
    the extra CPUs, asked anew for each. So a newcomer, which shrinks others, never moves the head's reservation to a
    later time. There is a pass at each predicted end (at the rate of now). Among rigid jobs this is EASY.
11. *How many passes has an instant?* Another one after each in which a running job was resized: that it has been is an
    event. It matters for EASY alone: a moldable job that started in the first has its size in the second, and may end
    earlier than on its smallest one.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction

from reference.shaped import Job, Machine, Outcome, Running


@dataclass(frozen=True)
class Policy:
    strategy: str = "equal"  # or waterfill
    admits: str = "first-fit"  # or easy
    resize_cost: int = 0  # microseconds
    threshold: int = 1  # CPUs; at 1 every change is made
    refused: str = "keep"  # or wait, part: what an evolving job does


@dataclass(eq=False)
class Member(Running):
    least: int = 0
    most: int = 0
    steps: list[tuple[Fraction, int]] = field(default_factory=list)  # of work, in which it is still to ask
    request: tuple[int, int] | None = None  # asked at, for so many CPUs more; not answered yet


def shares(cpus: int, ranges: list[tuple[int, int]], strategy: str) -> list[int]:
    """What jobs get that have these minima and maxima, in order of their starts."""
    held = [least for least, _ in ranges]
    while sum(held) < cpus and (below := [i for i, (_, most) in enumerate(ranges) if held[i] < most]):
        if strategy == "waterfill":
            below = [min(below, key=lambda i: held[i])]
        for i in below[: cpus - sum(held)]:
            held[i] += 1
    return held


def simulate(cpus: int, jobs: list[Job], policy: Policy, *, kill: bool = True) -> dict[int, Outcome]:
    """What becomes of each job, by its number."""
    return Equipartition(cpus, jobs, policy, kill=kill).play()


class Equipartition(Machine[Member]):
    def __init__(self, cpus: int, jobs: list[Job], policy: Policy, *, kill: bool = True) -> None:
        super().__init__(cpus, jobs, kill=kill)
        self.policy = policy
        self.predicts = policy.admits == "easy"

    def rate(self, running: Member) -> Fraction:
        return Fraction(running.job.speed(running.cpus) if running.cpus and not running.request else 0)

    def decide(self) -> None:
        resized = True
        while resized:  # that a job has been resized is an event too
            self.answer()
            self.admit()
            resized = self.share()

    # evolving jobs

    def moments(self, running: Member) -> list[int | None]:
        asks = [running.moment(part * running.job.work) for part, _ in running.steps[:1]]
        return super().moments(running) + asks

    def asks(self, member: Member) -> bool:
        """Whether a job has a request, perhaps since now."""
        if not member.request and member.steps and member.done >= member.steps[0][0] * member.job.work:
            member.request = (self.now, member.steps.pop(0)[1])
        return member.request is not None

    def answer(self) -> None:
        open_before = -1
        while (still_open := self.sweep()) != open_before:  # what one gives up, another may have waited for
            open_before = still_open

    def sweep(self) -> int:
        """Answer whoever asks, once; how many still ask."""
        asking = [member for member in self.in_order() if self.asks(member)]
        for member in sorted(asking, key=lambda member: member.request or (0, 0)):
            self.settle(member)
            while not member.request and self.asks(member):
                self.settle(member)
        return sum(member.request is not None for member in self.running)

    def settle(self, member: Member) -> None:
        """Grant what was asked for, or a part, or nothing; or leave it for later."""
        assert member.request is not None
        _, more = member.request
        fits = self.cpus - sum(one.least for one in self.running)
        if more > fits:
            if self.policy.refused == "wait" and member.least + more <= self.cpus:
                return
            more = fits if self.policy.refused == "part" else 0
        member.request = None
        member.least = max(1, member.least + more)
        member.most = max(1, member.most + more)

    # the queue

    def admit(self) -> None:
        waiting = list(self.queue)
        for place, job in enumerate(waiting):
            if self.fits(job):
                self.start(job)
            elif self.policy.admits == "easy":
                self.backfill(job, waiting[place + 1 :])
                return

    def fits(self, job: Job) -> bool:
        return job.sizes[0] + sum(member.least for member in self.running) <= self.cpus

    def start(self, job: Job) -> None:
        self.begin(Member(job, 0, self.now, least=job.sizes[0], most=job.sizes[-1], steps=list(job.evolve)), 0)

    def backfill(self, head: Job, others: list[Job]) -> None:
        for job in others:
            if self.fits(job) and self.harmless(job, head):
                self.start(job)

    def harmless(self, job: Job, head: Job) -> bool:
        """Whether a job may start beside the reservation of the head."""
        shadow, extra = self.shadow(head)
        if shadow is None or job.sizes[0] <= extra:
            return True
        return job.estimate is not None and self.slowest(Member(job, 0, self.now, least=job.sizes[0])) <= shadow

    def shadow(self, head: Job) -> tuple[int | None, int]:
        """When the head's minimum fits at the latest, and how many CPUs are left over then."""
        ends = sorted((self.slowest(one), one.least) for one in self.running if one.expected is not None)
        for moment, _ in ends:
            gone = sum(least for end, least in ends if end <= moment)
            free = self.cpus - sum(member.least for member in self.running) + gone
            if free >= head.sizes[0]:
                return moment, free - head.sizes[0]
        return None, 0

    def slowest(self, member: Member) -> int:
        """When a job ends by its estimate if it has its minimum from now on."""
        rate = Fraction(member.job.speed(member.least))
        end = replace(member, rate=rate, as_of=self.now).predicted_end()
        assert end is not None
        return end

    # shares

    def share(self) -> bool:
        """Give everybody its share; whether a job that ran before has another one now."""
        resized = False
        members = self.in_order()
        for i, member in enumerate(members):
            if not member.cpus and not member.job.malleable:
                most = self.shares(members)[i]
                member.least = member.most = max(size for size in member.job.sizes if size <= most)
        for member, cpus in zip(members, self.left_alone(members, self.shares(members)), strict=True):
            if member.cpus not in (0, cpus):
                member.stalled_until = self.now + self.policy.resize_cost
                resized = True
            member.processes = cpus
            self.hold(member, cpus)
        return resized

    def shares(self, members: list[Member]) -> list[int]:
        return shares(self.cpus, [(member.least, member.most) for member in members], self.policy.strategy)

    def left_alone(self, members: list[Member], wanted: list[int]) -> list[int]:
        """What they get if small changes are not made."""
        held = [member.cpus for member in members]
        small = [
            0 < abs(wanted[i] - held[i]) < self.policy.threshold and member.least <= held[i] <= member.most
            for i, member in enumerate(members)
        ]
        given = [held[i] if small[i] and held[i] < wanted[i] else wanted[i] for i in range(len(members))]
        for i in range(len(members)):
            if small[i] and held[i] > wanted[i] and sum(given) - given[i] + held[i] <= self.cpus:
                given[i] = held[i]
        return given
