"""Equipartition of a machine among malleable jobs (Kalé, Kumar & DeSouza 2002, section 2), with others beside them.

Whenever something changes, the queue is looked at in order, and a job is admitted if its minimum fits beside the minima
of all that run; so a newcomer may pass a job that waits. Then all processors are divided anew (``shares``): rigid jobs
have what they have, moldable ones the size that they were started with. Odd processors go to the jobs that started
first.

An evolving job that asks for more processes gets all of them, if they fit beside everybody's minimum; they are part of
its minimum and its maximum from then on. What becomes of a request that does not fit is a parameter. A request for
fewer is always met. A resident job (``resident``) is enlarged as far as it has processes, which stay on their nodes.
What of anybody's share has no place on the nodes is divided among the others in the same pass.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from cosched.model.width import Range
from space_scheduler.policy.interface import (
    Plan,
    PlannedAnswer,
    PlannedChange,
    PlannedResize,
    PlannedStart,
    RunningJob,
    Snapshot,
)
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.policy.reshape import resident
from space_scheduler.policy.reshape.free import FreeProcs, done_us, narrower, shadow, smallest
from space_scheduler.policy.reshape.shares import equal, waterfill
from space_scheduler.progress import Rate
from space_scheduler.reasons import Reason, Why


class Strategy(StrEnum):
    """How what is left beside the minima is divided."""

    EQUAL = "equal"
    WATERFILL = "waterfill"


class Evolving(StrEnum):
    """What becomes of a request for more processes that does not fit: it is refused, waits, or is met in part."""

    KEEP = "keep"
    WAIT = "wait"
    PART = "part"


class _Member(NamedTuple):
    """A job among which processors are divided. ``running`` is None for one that is admitted in this pass.

    ``turn``: when it started, and the rank of its arrival; so the next pass has it in the same place.
    ``given``: how many processes more it is given in this pass, because it asked for them.
    """

    job: Job
    least: int
    most: int
    turn: tuple[int, int]
    running: RunningJob | None = None
    given: int = 0

    @property
    def held(self) -> int:
        """What it holds; 0 for a newcomer."""
        return 0 if self.running is None else self.running.allocation.procs

    @property
    def present(self) -> int | None:
        """How many processes of a resident job are there; None: it can have others."""
        return None if self.running is None or not self.job.resident else self.running.allocation.processes

    @property
    def asked_us(self) -> int:
        """Since when it waits for an answer."""
        return 0 if self.running is None else self.running.asked_us


_DIVIDE: dict[Strategy, Callable[[Sequence[tuple[int, int]], int], list[int]]] = {
    Strategy.EQUAL: equal,
    Strategy.WATERFILL: waterfill,
}


@dataclass(frozen=True)
class Equipartition:
    """``reserve``: the first job that waits has a reservation, as in EASY, that nobody behind it may delay.

    ``in_order``: nobody passes a job that waits.

    ``threshold``: a job whose share would change by fewer processors than this keeps what it has, where it can.
    """

    strategy: Strategy = Strategy.EQUAL
    evolving: Evolving = Evolving.KEEP
    reserve: bool = False
    in_order: bool = False
    threshold: int = 0
    order: Order = fcfs
    place: str = ""
    mpl: int | None = 1
    shares: ClassVar = True  # one task on a CPU: what others do there does not make room
    reshapes: ClassVar = True

    def plan(self, snapshot: Snapshot) -> Plan:
        """Requests first, then who is admitted, then everybody's share."""
        procs = snapshot.procs_total
        members = sorted((_member(each, procs) for each in snapshot.running()), key=_turn)
        answers = self._answered(members, procs)
        newcomers = self._admitted(snapshot, members, procs)
        changes, newcomers = self._shared(snapshot, members, newcomers, {answer.job.id for answer in answers})
        wake_us = None
        if self.reserve and len(newcomers) < len(snapshot.queue):  # a predicted end that does not come moves others
            ends = [end_us for end_us, *_ in snapshot.ends if end_us < FOREVER_US]
            ends += [
                done_us(snapshot.now_us, change.job, change.allocation, change.job.alone_us)
                for change in changes
                if isinstance(change, PlannedStart) and change.allocation
            ]
            wake_us = min(ends, default=None)
        return Plan([*answers, *changes], wake_us=wake_us)

    def waits(self, snapshot: Snapshot, head: Job) -> Reason | None:
        """For which job the head waits: with whose end, of those in order of their latest ends, its minimum fits."""
        procs, least = snapshot.procs_total, smallest(head)
        members = [_member(each, procs) for each in snapshot.running()]
        spare = procs - sum(each.least for each in members)
        numbers = {"minimum_procs": least, "spare_procs": max(0, spare)}
        for each in sorted(members, key=lambda each: _latest_end_us(snapshot.now_us, each)) if least > spare else ():
            spare += each.least
            if least <= spare:
                return Reason(Why.MINIMA_HELD, {"blocking_job": each.job.id, **numbers})
        return None

    # requests of evolving jobs

    def _answered(self, members: list[_Member], procs: int) -> list[PlannedAnswer]:
        """Answers to those who asked, the first to ask first; what is given moves their minima and maxima."""
        asking = sorted(
            (at for at, each in enumerate(members) if (it := each.running) is not None and it.asks and it.resizable),
            key=lambda at: members[at].asked_us,
        )
        left = {at: running.asks for at in asking if (running := members[at].running)}
        before = None
        while before != (before := dict(left)):  # what one gives up, another may have waited for
            for at in asking:
                if left[at]:
                    members[at], left[at] = self._met(members, at, left[at], procs)
        answers = []
        for at in asking:
            each = members[at]
            assert each.running is not None
            if each.given or left[at] != each.running.asks or not each.running.waits:
                why = Why.ASKED if each.given else Why.ASK_WAITS if left[at] else Why.ASK_REFUSED
                numbers = {"asked_procs": sum(each.running.asks), "given_procs": each.given}
                answers.append(PlannedAnswer(each.job, Reason(why, numbers), each.given, left[at]))
        return answers

    def _met(
        self, members: Sequence[_Member], at: int, asks: tuple[int, ...], procs: int
    ) -> tuple[_Member, tuple[int, ...]]:
        """A job with what it is given of these requests, and those that it waits for."""
        each, spare = members[at], procs - sum(other.least for other in members)
        assert each.running is not None
        shape = each.job.shape
        assert isinstance(shape, Range)
        fewest = -shape.ask_fewer - each.running.given
        ever = procs if each.present is None else min(procs, each.present)
        for number, wanted in enumerate(asks):
            got = max(wanted, fewest - each.given)  # what it asked for before may have been refused
            fitting = min(spare, ever - each.least)
            if wanted > fitting:
                if self.evolving is Evolving.WAIT and each.least + wanted <= ever:
                    return each, asks[number:]
                got = max(0, fitting) if self.evolving is Evolving.PART else 0
            spare -= got
            given = each.given + got
            most = _most(shape, each.running.given + given, each.present, procs)
            each = each._replace(least=each.least + got, most=most, given=given)
        return each, ()

    # who is admitted

    def _admitted(self, snapshot: Snapshot, members: Sequence[_Member], procs: int) -> list[_Member]:
        """The jobs of the queue that are started, in order."""
        spare = procs - sum(each.least for each in members)
        admitted: list[_Member] = []
        shadow_us, extra = -1, 0
        for job in snapshot.queue:
            if spare <= 0:
                break
            least = smallest(job)
            if least > spare:
                if self.in_order:
                    break
                if self.reserve and shadow_us < 0:
                    shadow_us, extra = _reservation(snapshot.now_us, [*members, *admitted], least, spare)
                continue
            turn = snapshot.now_us, snapshot.queue.key(job.id)[1]
            newcomer = _Member(job, least, job.width.largest(procs) or least, turn)
            if shadow_us >= 0 and _latest_end_us(snapshot.now_us, newcomer) > shadow_us:
                if least > extra:
                    continue
                extra -= least
            spare -= least
            admitted.append(newcomer)
        return admitted

    # shares

    def _shared(
        self, snapshot: Snapshot, members: Sequence[_Member], newcomers: Sequence[_Member], granted: Collection[int]
    ) -> tuple[list[PlannedChange], list[_Member]]:
        """Everybody's share as changes, and who is started.

        On named nodes a share that has no place there, or not where a resident job's processes are, is divided anew.
        """
        old, new, rounds = [*members], [*newcomers], 0
        while True:
            everybody = sorted([*old, *new], key=_turn)
            changes, short = _changes(snapshot, everybody, self._divided(everybody, snapshot.procs_total), granted)
            if snapshot.nodes is None or not short:
                break
            placed = [each for each in newcomers if short.get(each.job.id) != 0]
            if len(placed) < len(newcomers):  # as if they had not been there
                newcomers, old, new, rounds = placed, [*members], placed, 0
                continue
            old, new = [_at_most(each, short) for each in old], [_at_most(each, short) for each in new]
            rounds += 1
            if sorted([*old, *new], key=_turn) == everybody or rounds > len(everybody):
                break
        return changes, [*newcomers]

    def _divided(self, members: Sequence[_Member], procs: int) -> list[int]:
        """Everybody's share, in order. A moldable newcomer is given its size, one after the other.

        Each first gets a share as if it were malleable, then the largest of its sizes within that, for good.
        """
        everybody = [*members]
        if sum(each.least for each in everybody) > procs:  # nodes are away, and what runs there is held all the same
            return [each.held or each.least for each in everybody]
        divide = _DIVIDE[self.strategy]
        for at, each in enumerate(everybody):
            if each.running is None and not _malleable(each.job) and each.least < each.most:
                share = divide([(other.least, other.most) for other in everybody], procs)[at]
                size = each.job.width.largest(share) or each.least
                everybody[at] = each._replace(least=size, most=size)
        shares = divide([(each.least, each.most) for each in everybody], procs)
        if self.threshold > 1:
            shares = self._left_alone(everybody, shares, procs)
        return [_allowed(each.job, share) for each, share in zip(everybody, shares, strict=True)]

    def _left_alone(self, everybody: Sequence[_Member], shares: Sequence[int], procs: int) -> list[int]:
        """The shares, but that jobs keep what they hold whose share is another by less than the threshold.

        Those who would have more are left alone always, those who would have less while there are processors for that.
        """
        kept = list(shares)
        near = [
            at
            for at, (each, share) in enumerate(zip(everybody, shares, strict=True))
            if each.held and each.least <= each.held <= each.most and 0 < abs(share - each.held) < self.threshold
        ]
        for at in near:
            if shares[at] > everybody[at].held:
                kept[at] = everybody[at].held
        spare = procs - sum(kept)
        for at in near:
            more = everybody[at].held - shares[at]
            if 0 < more <= spare:
                kept[at] = everybody[at].held
                spare -= more
        return kept


def _member(each: RunningJob, procs: int) -> _Member:
    """A job that runs: between which numbers of so many processors its share may be."""
    held, job, turn = each.allocation.procs, each.job, (each.started_us, each.rank)
    folded = each.allocation.folded and not job.resident  # by another policy: its processes stay where they are
    if not each.resizable or not _malleable(job) or folded:
        return _Member(job, held, held, turn, each)
    assert isinstance(job.shape, Range)
    present = each.allocation.processes if job.resident else None
    return _Member(job, smallest(job) + each.given, _most(job.shape, each.given, present, procs), turn, each)


def _turn(each: _Member) -> tuple[int, int]:
    return each.turn


def _most(shape: Range, given: int, present: int | None, procs: int) -> int:
    """The most of so many processors that a malleable job can have that was given so many more.

    ``present``: how many processes of it are there (None: any number). Of its sizes, one that the machine has.
    """
    most = (shape.largest(procs) or shape.sizes[0]) if shape.sizes else shape.most + given
    return most if present is None else min(most, present)


def _at_most(each: _Member, short: Mapping[int, int]) -> _Member:
    """A job with no higher maximum than what it can have, where that is known."""
    can = short.get(each.job.id)
    return each if can is None else each._replace(most=max(each.least, can))


def _malleable(job: Job) -> bool:
    return isinstance(job.shape, Range) and job.shape.malleable


def _reservation(now_us: int, members: Sequence[_Member], least: int, spare: int) -> tuple[int, int]:
    """When so many processors are free beside everybody's minimum, and how many are left over then.

    As if everybody did what it has left on its minimum, the least that it can ever have: so nobody who is admitted
    later moves that to a later time.
    """
    return shadow(((_latest_end_us(now_us, each), each.least) for each in members), spare, least)


def _latest_end_us(now_us: int, each: _Member) -> int:
    """When a job ends if it never has more than its minimum again."""
    if not each.least:  # another policy has suspended it
        return FOREVER_US
    left_us: Rate = each.job.alone_us if each.running is None else each.running.left_us
    return done_us(now_us, each.job, Allocation(each.least), left_us)


def _changes(
    snapshot: Snapshot, members: Sequence[_Member], shares: Sequence[int], granted: Collection[int]
) -> tuple[list[PlannedChange], dict[int, int]]:
    """The shares as changes: who gives back first, then who starts, then who gets more.

    And how many processors each job can have whose share has no place on the nodes; 0: it is not started.
    """
    free = FreeProcs(snapshot)
    short: dict[int, int] = {}
    changes: list[PlannedChange] = []
    wider: list[tuple[RunningJob, int]] = []
    for each, share in zip(members, shares, strict=True):
        running = each.running
        if running is None or share == each.held:
            continue
        if share > each.held:
            wider.append((running, share))
            continue
        held = running.allocation
        new = resident.shrunk(held, share) if each.job.resident else narrower(held, share)
        why = Why.ASKED if each.job.id in granted else Why.SHRUNK
        changes.append(PlannedResize(each.job, _reason(why, each.job, held, new), new))
        free.give(each.job, running.allocation)
        free.take(each.job, new)
    for each, share in zip(members, shares, strict=True):
        if each.running is None:
            job = each.job
            place = resident.started(free, job, share) if job.resident else free.largest(job, share)
            if place is None or place.procs < share:
                short[job.id] = 0 if place is None else place.procs
            if place is not None:  # else its minimum is free in all, and not together on the nodes
                changes.append(_start(each, place))
                free.take(job, place)
    for running, share in wider:
        job, held = running.job, running.allocation
        found = resident.widened(free, job, held, share) if job.resident else free.wider(job, held, share)
        if found is None or found.procs < share:
            short[job.id] = held.procs if found is None else found.procs
        if found is not None:
            changes.append(_wider(running, found, granted))
            free.take(job, found.beyond(held))
    return changes, short


def _start(each: _Member, place: Allocation) -> PlannedStart:
    numbers = {"procs": place.procs, "minimum_procs": each.least, **_present(each.job, place)}
    return PlannedStart(each.job, Reason(Why.ADMITTED, numbers), place)


def _wider(running: RunningJob, new: Allocation, granted: Collection[int]) -> PlannedResize:
    why = Why.ASKED if running.job.id in granted else Why.WIDENED
    return PlannedResize(running.job, _reason(why, running.job, running.allocation, new), new)


def _allowed(job: Job, share: int) -> int:
    """The largest size that a malleable job can have within its share."""
    shape = job.shape
    return shape.largest(share) or share if isinstance(shape, Range) and shape.malleable and shape.sizes else share


def _reason(why: Why, job: Job, before: Allocation, now: Allocation) -> Reason:
    return Reason(why, {"before_procs": before.procs, "procs": now.procs, **_present(job, now)})


def _present(job: Job, allocation: Allocation) -> dict[str, int]:
    """Of a resident job, as a number of a reason, how many processes are there."""
    return {"present_processes": allocation.processes} if job.resident else {}
