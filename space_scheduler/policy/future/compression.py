"""Compression of reservations on counted processors: each is taken out and placed again in the earliest hole.

That is one sweep in queue order, in which most jobs stay where they are. A job may use what is free and what it holds
itself, so there are two ways for it to start earlier:

* a hole for its whole estimate lies before its start. Where the first one is, is a matter of its shape alone
  (``shapes``): it is found by one walk for all jobs of the shape, and looked for again only where a hole was left;
* its processors are free just before its start, so that it moves up to the moment from which on they are.

What is done here gives the same starts as asking the profile for each job in turn. Jobs of one shape and start with
nobody's turn in between move together as far as the hole has room.
"""

from bisect import bisect_left, bisect_right

from cosched.model.time import FOREVER_US
from space_scheduler.policy.future import reservations
from space_scheduler.policy.future.reservations import Reservations
from space_scheduler.policy.future.shapes import Alike, Shapes
from space_scheduler.policy.queue import JobQueue
from space_scheduler.profile import Profile


def compress(table: Reservations, queue: JobQueue, now_us: int) -> dict[int, int]:
    """Each job in its turn; one whose reserved start is not after now is left as it is.

    Gives the starts, in µs, that those had who have moved.
    """
    profile = table.profile
    if profile.settled:  # all that ended since the last sweep ended when expected
        return {}
    if len(table.starts_us) <= reservations.SHALLOW:
        table.shapes = None
        moved = _one_by_one(table, queue, now_us)
    else:
        moved = _by_shape(table, queue, now_us)
    profile.settled = not moved  # who has moved leaves a hole to those ahead
    return moved


def _one_by_one(table: Reservations, queue: JobQueue, now_us: int) -> dict[int, int]:
    """Ask the profile for each."""
    profile, starts_us, moved = table.profile, table.starts_us, dict[int, int]()
    for job in queue:
        start_us = starts_us.get(job.id, now_us)
        if now_us < start_us < FOREVER_US:
            earlier_us = profile.earlier(job.procs, job.estimate_us, start_us, now_us)
            if earlier_us != start_us:
                profile.move_up(start_us, earlier_us, job.estimate_us, job.procs)
                table.note((job.id,), earlier_us)
                moved[job.id] = start_us
    return moved


def _by_shape(table: Reservations, queue: JobQueue, now_us: int) -> dict[int, int]:
    """Those of one shape and start with nobody's turn in between together."""
    profile = table.profile
    shapes, moved = table.know(queue), dict[int, int]()
    times, free = profile.times, profile.free
    for run in shapes.in_order(queue, table.starts_us):
        if not run.count:
            continue
        alike = run.alike
        index = alike.next
        alike.next = end = index + run.count
        procs, starts_us = alike.procs, alike.starts_us
        while index < end:
            start_us, count = starts_us[index], 1
            while index + count < end and starts_us[index + count] == start_us:
                count += 1
            if start_us > now_us and (start_us > alike.from_us or free[bisect_left(times, start_us) - 1] >= procs):
                _move_up(table, shapes, alike, index, count, moved)
            index += count
    return moved


def _move_up(table: Reservations, shapes: Shapes, alike: Alike, index: int, count: int, moved: dict[int, int]) -> None:
    """Jobs of one shape and start, as many as can."""
    profile, procs, estimate_us, start_us = table.profile, alike.procs, alike.estimate_us, alike.starts_us[index]
    while count:
        earlier_us, least = _earlier(profile, alike, start_us)
        if earlier_us == start_us:
            return
        number = min(count, least // procs)
        ids = alike.ids[index : index + number]
        for job_id in ids:
            moved[job_id] = start_us
            alike.starts_us[index] = earlier_us
            index += 1
        table.note(ids, earlier_us)
        profile.move_up(start_us, earlier_us, estimate_us, number * procs)
        shapes.reopen(profile, max(start_us, earlier_us + estimate_us), start_us + estimate_us, number * procs)
        count -= number


def _earlier(profile: Profile, alike: Alike, start_us: int) -> tuple[int, int]:
    """Where a job of a shape could start instead, in µs, and the fewest processors free from then to its old start."""
    times, free, procs, estimate_us = profile.times, profile.free, alike.procs, alike.estimate_us
    last = first = bisect_left(times, start_us)
    alone_us = start_us - estimate_us  # from there on it would stand on what is free alone: on a hole
    while first and free[first - 1] >= procs and times[first] > alone_us:
        first -= 1
    at_us = times[first] if first < last else start_us  # its processors are free just before
    if alike.from_us < at_us and (hole_us := alike.first_hole(profile, alike.no_later_us())) < at_us:
        at_us, first = hole_us, bisect_right(times, hole_us) - 1
    if last - first > 1:
        last = bisect_left(times, at_us + estimate_us, first, last)
    return at_us, min(free[first:last]) if last - first > 1 else free[first]
