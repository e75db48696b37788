"""Rooms, ways of placing, and the profile of named nodes, against plain search."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job
from space_scheduler.clusters import Clusters
from space_scheduler.feasibility import Place, Room
from space_scheduler.node_profile import NodeProfile
from space_scheduler.on_nodes import Resident
from space_scheduler.policy.place import PLACES, first_fit, place_of, spread
from space_scheduler.reasons import Why

frees = st.lists(st.tuples(st.integers(-1, 3), st.integers(-2, 8)), min_size=1, max_size=4)
places = st.sampled_from([place for place in PLACES.values() if not place.refuses])


def room_of(free: list[tuple[int, int]], most_nodes: int | None, place: Place = PLACES["first-fit"]) -> Room:
    names = [f"n{i}" for i in range(len(free))]
    return Room(names, [procs for procs, _ in free], [memory for _, memory in free], most_nodes, place)


def every_way(free: list[tuple[int, int]], job: Job, most_nodes: int | None) -> set[tuple[int, ...]]:
    """Every way of laying the tasks on the nodes, by trying them all."""
    most = (min(procs, memory // job.memory_bytes if job.memory_bytes else procs) for procs, memory in free)
    ways = product(*(range(max(0, tasks) + 1) for tasks in most))
    return {way for way in ways if sum(way) == job.procs and sum(map(bool, way)) <= (most_nodes or len(free))}


@given(
    free=frees, procs=st.integers(1, 5), memory=st.integers(0, 4), most=st.sampled_from([None, 1, 2]), place=places,
    other=st.lists(st.integers(0, 3), min_size=4, max_size=4),
)  # fmt: skip
def test_there_is_a_place_when_there_is_a_way_and_it_is_one_and_others_do_not_fit(
    free: list[tuple[int, int]], procs: int, memory: int, most: int | None, place: Place, other: list[int]
) -> None:
    room, job = room_of(free, most, place), Job(1, procs, 10, 0, memory_bytes=memory)
    ways = every_way(free, job, most)
    assert (room.obstacle(job) is None) == bool(ways)
    allocation = room.placed(job)
    assert (allocation is not None) == bool(ways)
    if allocation is not None:
        tasks = {share.node: share.tasks for share in allocation.nodes}
        assert tuple(tasks.get(name, 0) for name in room.names) in ways
        assert list(tasks) == [name for name in room.names if name in tasks]  # in the nodes' order
    for way in (*ways, tuple(other[: len(free)])):
        shares = tuple(Share(f"n{i}", tasks) for i, tasks in enumerate(way) if tasks)
        assert (room.misfit(job, Allocation(procs, shares)) is None) == (way in ways)


def test_what_is_wrong_with_a_place_is_said() -> None:
    room, job = room_of([(2, 8), (2, 8), (2, 8)], 2), Job(1, 3, 10, 0, memory_bytes=4)
    wrong = {
        (Share("n9", 3),): "node n9 is not in service",
        (Share("n0", 3),): "3 tasks on node n0, which takes 2",
        (Share("n0", 2), Share("n1", 0)): "0 tasks on node n1, which takes 2",
        (Share("n0", 1), Share("n0", 2)): "a node is named twice",
        (Share("n0", 2),): "places for 2 tasks",
        (Share("n0", 1), Share("n1", 1), Share("n2", 1)): "3 nodes, and a job may use 2",
    }
    assert {shares: room.misfit(job, Allocation(3, shares)) for shares in wrong} == wrong


def test_first_fit_passes_over_nodes_on_which_it_could_not_end() -> None:
    assert first_fit([1, 1, 2, 2], 4, 2) == [(2, 2), (3, 2)]
    assert first_fit([1, 1, 2, 2], 3, 2) == [(0, 1), (2, 2)]
    assert first_fit([1, 1, 2, 2], 4, 4) == [(0, 1), (1, 1), (2, 2)]


def test_spread_takes_the_roomiest_nodes_where_not_all_may_be_used() -> None:
    assert spread([1, 3, 2, 3], 4, 4) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert spread([1, 3, 2, 3], 4, 2) == [(1, 2), (3, 2)]
    assert spread([1, 4, 0, 0], 5, 4) == [(0, 1), (1, 4)]


@pytest.mark.parametrize(
    ("free", "job", "why"),
    [
        ([(2, 8), (1, 8)], Job(1, 4, 1, 0), Why.NOT_ENOUGH_FREE),
        ([(2, 8), (2, 8)], Job(1, 4, 1, 0, memory_bytes=5), Why.NOT_ENOUGH_MEMORY),
        ([(2, 6), (2, 9)], Job(1, 3, 1, 0, memory_bytes=5), Why.FRAGMENTED),
        ([(-2, 8), (2, 8)], Job(1, 2, 1, 0), None),
        ([(1, 8), (1, 8), (2, 8)], Job(1, 4, 1, 0), Why.SPREAD_OUT),
    ],
)
def test_the_obstacle_is_named(free: list[tuple[int, int]], job: Job, why: Why | None) -> None:
    found = room_of(free, 2).obstacle(job)
    assert (found and found.why) == why


# --- the profile ------------------------------------------------------------------------------------------------------

jobs = st.builds(
    Job,
    id=st.integers(1, 99),
    procs=st.integers(1, 4),
    estimate_us=st.integers(1, 12),
    submit_us=st.just(0),
    memory_bytes=st.integers(0, 3),
)


@given(
    sizes=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 8)), min_size=1, max_size=3),
    running=st.lists(jobs, max_size=4),
    waiting=st.lists(jobs, max_size=6),
    most=st.sampled_from([None, 1, 2]),
    place=places,
)
def test_the_earliest_place_is_the_first_moment_at_which_there_is_one(
    sizes: list[tuple[int, int]], running: list[Job], waiting: list[Job], most: int | None, place: Place
) -> None:
    now_us, room = 100, room_of(sizes, most, place)
    empty, held = room.copy(), []
    for job in running:
        if allocation := room.placed(job):
            room.take(job, allocation)
            held.append((now_us + job.estimate_us, job, allocation))
    profile = NodeProfile.of_running(now_us, room, sorted(held, key=lambda each: each[0]))
    start = profile.copy()
    spans = [(now_us, end_us, job, allocation) for end_us, job, allocation in held]

    free: dict[int, Room] = {}  # at each time, as long as nothing is booked

    def free_at(time_us: int) -> Room:
        left = free.get(time_us)
        if left is None:
            left = free[time_us] = empty.copy()
            for begin_us, end_us, job, allocation in spans:
                if begin_us <= time_us < end_us:
                    left.take(job, allocation)
        return left

    def throughout(begin_us: int, end_us: int) -> Room:
        rooms = [free_at(time_us) for time_us in range(begin_us, end_us)]
        procs = [min(each) for each in zip(*(each.procs for each in rooms), strict=True)]
        memory = [min(each) for each in zip(*(each.memory_bytes for each in rooms), strict=True)]
        return empty.with_free(procs, memory)

    def moments() -> range:
        """Until all is free again, and a little longer."""
        return range(now_us, max((end_us for _, end_us, *_ in spans), default=now_us) + 3)

    booked = []
    for job in waiting:
        found = profile.earliest(job, now_us)
        expected = next((at for at in moments() if not throughout(at, at + job.estimate_us).obstacle(job)), None)
        assert (found[0] if found else None) == expected
        if found:
            profile.take(job, *found)
            spans.append((found[0], found[0] + job.estimate_us, job, found[1]))
            booked.append((job, *found))
            free.clear()
        assert not profile.over_committed(start)
    for job, at, allocation in booked:
        profile.give(job, at, allocation)
    for time_us in moments():
        before, after = start.throughout(time_us, time_us + 1), profile.throughout(time_us, time_us + 1)
        assert (before.procs, before.memory_bytes) == (after.procs, after.memory_bytes)


def test_over_commitment_is_seen() -> None:
    room = room_of([(1, 4)], None)
    profile, running = NodeProfile(0, room), NodeProfile(0, room)
    place = Allocation(1, (Share("n0", 1),))
    profile.take(Job(1, 1, 5, 0), 10, place)
    assert not profile.over_committed(running)
    profile.take(Job(2, 1, 5, 0), 14, place)
    assert profile.over_committed(running)


def test_a_copy_has_all_that_a_room_has() -> None:
    """It is made without the constructor, which a field more would have to be told of."""
    bans = {7: frozenset({"n2"})}
    clusters = Clusters.named(["a", "b"], None)
    names, most_nodes, place = ["n1", "n2"], 1, place_of("spread")
    one = Room(names, [2, 3], [4, 5], most_nodes, place, [(), ()], [2, 4], [None, None], [5, 6], clusters, bans)
    assert one.free_procs == 5
    other = one.copy()
    for slot in Room.__slots__:
        assert getattr(other, slot) == getattr(one, slot), slot
    other.procs[0] = other.memory_bytes[0] = 0
    other.residents[0] = (Resident(1, 2, 0, "", 1000),)
    assert (one.procs, one.memory_bytes, one.residents) == ([2, 3], [4, 5], [(), ()])
