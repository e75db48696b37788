"""Compression of a whole queue in blocks gives what taking each reservation out and placing it again gives."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from space_scheduler.policy.future.compression import Compression
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


def one_by_one(profile: Profile, queue: JobQueue, starts_us: dict[int, int]) -> set[int]:
    """What compression is (``policy.select.conservative``)."""
    moved = set()
    for job in queue:
        start_us = starts_us.get(job.id, NOW_US)
        if NOW_US < start_us < FOREVER_US:
            profile.change(start_us, start_us + job.estimate_us, job.procs)
            starts_us[job.id] = min(start_us, profile.earliest(job.procs, job.estimate_us, NOW_US))
            profile.change(starts_us[job.id], starts_us[job.id] + job.estimate_us, -job.procs)
            if starts_us[job.id] != start_us:
                moved.add(job.id)
    return moved


@given(st.integers(0, 1 << 32))
def test_a_sweep_is_placing_one_by_one(seed: int) -> None:
    profile, queue, starts_us = a_schedule(Random(seed))
    plain, expected_us = profile.copy(), starts_us.copy()
    compression = Compression(profile, NOW_US, starts_us)
    compression.sweep(queue)
    assert compression.moved == one_by_one(plain, queue, expected_us)
    assert list(starts_us.items()) == list(expected_us.items())
    assert (profile.times, profile.free) == (plain.times, plain.free)
