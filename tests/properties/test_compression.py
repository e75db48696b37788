"""Compression of a whole queue at once gives what taking each reservation out and placing it again gives, and what is
kept from pass to pass is what would be made anew.
"""

from random import Random
from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.policy.future import reservations
from space_scheduler.policy.future.compression import compress
from space_scheduler.policy.future.reservations import Reservations, Version
from space_scheduler.policy.future.shapes import Shapes
from space_scheduler.policy.order import ORDERS
from space_scheduler.policy.queue import JobQueue
from space_scheduler.profile import Profile

NOW_US = 3
PROCS = 8


def a_schedule(chance: Random) -> tuple[Profile, JobQueue, dict[int, int]]:
    """Jobs of few shapes with reservations, not all as early as they could be, after some that ran have ended."""
    profile, queue, starts_us = Profile(NOW_US, PROCS), JobQueue(ORDERS[chance.choice(sorted(ORDERS))]), {}
    running = []
    for _ in range(chance.randint(0, 6)):
        procs, until_us = chance.randint(1, PROCS), NOW_US + chance.randint(1, 40)
        if profile.earliest(procs, until_us - NOW_US, NOW_US) == NOW_US:
            profile.change(NOW_US, until_us, -procs)
            running.append((until_us, procs))
    shapes = [(chance.randint(1, PROCS), chance.randint(1, 20)) for _ in range(chance.randint(1, 4))]
    for number in range(chance.randint(1, 40)):
        procs, estimate_us = shapes[number // chance.randint(1, 6) % len(shapes)]
        queue.add(job := Job(number, procs, estimate_us, 0), number)
        if not chance.randrange(20):  # a newcomer, or one that awaits nodes
            starts_us.update({number: FOREVER_US} if chance.randrange(2) else {})
            continue
        after_us = NOW_US + chance.choice([0, 0, chance.randint(0, 60)])
        starts_us[number] = start_us = profile.earliest(job.procs, job.estimate_us, after_us)
        profile.change(start_us, start_us + job.estimate_us, -job.procs)
    for until_us, procs in running:
        if chance.randrange(3):
            profile.change(NOW_US, until_us, procs)
    return profile, queue, starts_us


def one_by_one(profile: Profile, queue: JobQueue, starts_us: dict[int, int], now_us: int) -> dict[int, int]:
    """What compression is (``policy.select.conservative``)."""
    moved = {}
    for job in queue:
        start_us = starts_us.get(job.id, now_us)
        if now_us < start_us < FOREVER_US:
            profile.change(start_us, start_us + job.estimate_us, job.procs)
            starts_us[job.id] = min(start_us, profile.earliest(job.procs, job.estimate_us, now_us))
            profile.change(starts_us[job.id], starts_us[job.id] + job.estimate_us, -job.procs)
            if starts_us[job.id] != start_us:
                moved[job.id] = start_us
    return moved


@given(st.integers(0, 1 << 32), st.sampled_from([0, 5, 100]))
def test_a_sweep_is_placing_one_by_one(seed: int, shallow: int) -> None:
    profile, queue, starts_us = a_schedule(Random(seed))
    plain, expected_us = profile.copy(), starts_us.copy()
    expected = one_by_one(plain, queue, expected_us, NOW_US)
    with patch.object(reservations, "SHALLOW", shallow):
        assert compress(Reservations(profile, starts_us), queue, NOW_US) == expected
    assert list(starts_us.items()) == list(expected_us.items())
    assert (profile.times, profile.free) == (plain.times, plain.free)


# --- kept from pass to pass -------------------------------------------------------------------------------------------


class Passes:
    """Passes over one table, each from the version that the last one left, beside the same done plainly."""

    def __init__(self, chance: Random) -> None:
        self.chance, self.now_us, self.number = chance, NOW_US, 0
        self.queue = JobQueue(ORDERS[chance.choice(sorted(ORDERS))])
        self.profile, self.starts_us = Profile(NOW_US, PROCS), dict[int, int]()
        self.running: list[tuple[int, int]] = []  # (end, processors)
        self.shapes = [(chance.randint(1, PROCS), chance.randint(1, 20)) for _ in range(chance.randint(1, 4))]
        self.version = Reservations(self.profile.copy(), {}, Shapes()).version(FOREVER_US)

    def make(self) -> None:
        """One pass, perhaps after one that failed on its way and left its version as it was."""
        chance = self.chance
        if not chance.randrange(6):
            self.spoil(self.version.taken())
        table = self.version.taken()
        self.now_us += chance.randint(0, 3)
        self.profile.advance(self.now_us)
        table.profile.advance(self.now_us)
        self.end(table)
        self.withdraw(table)
        if chance.randrange(3):
            expected = one_by_one(self.profile, self.queue, self.starts_us, self.now_us)
            assert compress(table, self.queue, self.now_us) == expected
        for _ in range(chance.randint(0, 4)):
            self.place(table)
        self.start(table)
        assert table.next_us() == min(self.starts_us.values(), default=FOREVER_US)
        self.version = table.version(table.next_us())

    def spoil(self, table: Reservations) -> None:
        table.profile.advance(self.now_us + 1)
        table.give_back(self.now_us + 1, self.now_us + 30, 1)
        table.note(list(self.starts_us)[:2], self.now_us)

    def end(self, table: Reservations) -> None:
        for until_us, procs in self.running:
            if until_us <= self.now_us or not self.chance.randrange(3):
                self.running.remove((until_us, procs))
                self.profile.change(self.now_us, until_us, procs)
                table.give_back(self.now_us, until_us, procs)
                return

    def withdraw(self, table: Reservations) -> None:
        if not self.starts_us or self.chance.randrange(4):
            return
        job = self.queue.job(self.chance.choice(list(self.starts_us)))
        self.queue.remove(job)
        table.withdraw(job, self.now_us)
        start_us = self.starts_us.pop(job.id)
        self.profile.change(max(self.now_us, start_us), start_us + job.estimate_us, job.procs)

    def place(self, table: Reservations) -> None:
        procs, estimate_us = self.chance.choice(self.shapes)
        self.number += 1
        self.queue.add(job := Job(self.number, procs, estimate_us, 0), self.number)
        start_us = self.profile.earliest(procs, estimate_us, self.now_us)
        assert table.first_hole(job, self.now_us, self.queue) == start_us
        self.profile.change(start_us, start_us + estimate_us, -procs)
        self.starts_us[job.id] = start_us
        table.place(job, start_us, self.queue)

    def start(self, table: Reservations) -> None:
        due = [job_id for job_id, start_us in self.starts_us.items() if start_us <= self.now_us]
        assert sorted(table.due(self.now_us)) == due
        for job in map(self.queue.job, due):
            table.drop(job)
            self.running.append((self.starts_us.pop(job.id) + job.estimate_us, job.procs))
            self.queue.remove(job)


def values(of: Version | Passes) -> tuple[list[int], list[int], list[tuple[int, int]]]:
    return of.profile.times.copy(), of.profile.free.copy(), list(of.starts_us.items())


@given(st.integers(0, 1 << 32), st.integers(1, 40), st.sampled_from([0, 5, 100]))
def test_what_is_kept_is_what_would_be_made_anew(seed: int, count: int, shallow: int) -> None:
    """After every pass; and a version stays what it was, whatever later passes make of its table."""
    passes, kept = Passes(Random(seed)), []
    for _ in range(count):
        with patch.object(reservations, "SHALLOW", shallow):
            passes.make()
        assert values(passes.version) == values(passes)
        kept.append((passes.version, values(passes)))
    for version, was in kept:
        assert values(version) == was


def test_a_pass_does_not_copy_what_it_leaves_as_it_is() -> None:
    """The base of a version is that of many before it: with a thousand reservations as well."""
    queue, table = JobQueue(), Reservations(Profile(0, 1), {}, Shapes())
    for number in range(1000):
        queue.add(job := Job(number, 1, 10, 0), number)
        table.place(job, 10 * number, queue)
    version = table.version(0)
    bases = set()
    for number in range(300):
        table = version.taken()
        table.profile.advance(10 * number)
        assert table.due(10 * number) == [number]
        table.drop(queue.job(number))
        queue.remove(queue.job(number))
        version = table.version(table.next_us())
        bases.add(id(version._base))
    assert len(bases) == 1
