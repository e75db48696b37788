"""A capacity is a value: whatever happened to it, what it says follows from its nodes, its rules and what jobs hold."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job
from cosched.model.node import Node, Owner
from space_scheduler.feasibility import Room
from space_scheduler.machine import named_capacity
from space_scheduler.machine.capacity import CountedCapacity
from space_scheduler.machine.named_capacity import Capacity, NamedCapacity
from space_scheduler.machine.nodes import Member, UnknownNode
from space_scheduler.machine.rules import MachineRules
from space_scheduler.policy.place import place_of
from space_scheduler.reasons import Why

Held = dict[int, tuple[Job, Allocation]]
NAMES = ("n1", "n2", "n10")


def totals(capacity: Capacity) -> tuple[int, int, int]:
    return capacity.procs_installed, capacity.procs_total, capacity.free_procs


def follows(capacity: Capacity, held: Held) -> Capacity:
    """The capacity that follows from what is held; the other one must say the same."""
    derived = capacity.anew()
    for job, allocation in reversed(held.values()):  # in another order than it came about
        derived.take(job, allocation)
    assert totals(capacity) == totals(derived)
    return derived


def job_of(number: int, procs: int, memory_bytes: int = 0) -> Job:
    return Job(number, procs, 10, 0, memory_bytes=memory_bytes)


# --- counted processors -----------------------------------------------------------------------------------------------


@given(seed=st.integers(0, 1 << 32))
def test_what_is_free_follows_from_what_is_held(seed: int) -> None:
    chance, held = Random(seed), Held()
    capacity = CountedCapacity(12)
    for number in range(40):
        dice = chance.random()
        allocation = Allocation(chance.randint(1, max(1, capacity.free_procs)))
        if dice < 0.5:
            held[number] = (job_of(number, allocation.procs), allocation)
            capacity.take(*held[number])
        elif dice < 0.7 and held:
            capacity.give(*held.pop(chance.choice(list(held))))
        elif dice < 0.85 and held:
            job, old = held[which := chance.choice(list(held))]
            capacity.change(job, old, allocation)
            held[which] = (job, allocation)
        elif capacity.procs_total > 1:
            capacity.resize(chance.choice((-1, 1)))
        follows(capacity, held)
        assert capacity.free_procs == capacity.procs_total - sum(each.procs for _, each in held.values())


def test_processors_that_left_may_still_be_held() -> None:
    capacity = CountedCapacity(8)
    job = job_of(1, 3)
    capacity.take(job, Allocation(3))
    capacity.resize(-6)
    assert totals(capacity) == (8, 2, -1)  # one of those that left is still held
    assert capacity.room().obstacle(job_of(2, 1)) is not None
    capacity.give(job, Allocation(3))
    assert totals(capacity) == (8, 2, 2)
    with pytest.raises(ValueError, match="3 processors cannot go: 2 are in service"):
        capacity.resize(-3)


def test_a_place_on_counted_processors_names_no_node() -> None:
    room = CountedCapacity(8).room()
    assert room.misfit(job_of(1, 2), Allocation(2)) is None
    assert room.misfit(job_of(1, 2), Allocation(2, (Share("a", 2),))) == "nodes are named where processors are counted"


# --- nodes by name ----------------------------------------------------------------------------------------------------


def nodes(mpl: int | None = None, most: int | None = None) -> NamedCapacity:
    capacity = NamedCapacity(MachineRules(mpl=mpl, max_nodes_per_job=most), place_of("first-fit"))
    for name in NAMES:
        capacity.join(Node(name, 4, 8, 2))
    return capacity


def happens_to(capacity: NamedCapacity, name: str, chance: Random) -> None:
    match chance.randrange(6):
        case 0:
            capacity.join(Node(name, chance.choice((1, 2, 4)), chance.choice((2, 8)), 2))
        case 1:
            capacity.drain(name, "dust")
        case 2:
            capacity.resume(name)
        case 3:
            capacity.lose(name)
        case _:
            capacity.own(name, chance.choice((None, Owner(100, 5))))


@given(seed=st.integers(0, 1 << 32), mpl=st.sampled_from([None, 1, 2]), other=st.sampled_from([None, 1, 2]))
def test_what_is_free_on_nodes_follows_from_what_is_held(seed: int, mpl: int | None, other: int | None) -> None:
    chance, held = Random(seed), Held()
    capacity = nodes(mpl)
    for number in range(40):
        name, dice = chance.choice(NAMES), chance.random()
        job = job_of(number, chance.randint(1, 5), chance.choice((0, 1, 2)))
        if dice < 0.4 and (allocation := capacity.room().placed(job)):
            held[number] = (job, allocation)
            capacity.take(job, allocation)
        elif dice < 0.6 and held:
            capacity.give(*held.pop(chance.choice(list(held))))
        elif dice < 0.7 and held:
            job, old = held[which := chance.choice(list(held))]
            capacity.give(job, old)
            new = capacity.room().placed(job)
            capacity.take(job, old)
            if new:
                capacity.change(job, old, new)
                held[which] = (job, new)
        else:
            happens_to(capacity, name, chance)
        derived = follows(capacity, held)
        kept, anew = capacity.room(), derived.room()
        assert isinstance(kept, Room)
        assert isinstance(anew, Room)
        assert (kept.names, kept.procs, kept.memory_bytes) == (anew.names, anew.procs, anew.memory_bytes)
        assert [set(here) for here in kept.residents] == [set(here) for here in anew.residents]
        assert capacity.free_procs == kept.free_procs >= 0
    restored = nodes(other)
    for status in map(Member.status, capacity):
        restored.join(status.node)
    for job, allocation in held.values():
        restored.take(job, allocation)
    places = {each.node.name: min(each.node.procs, (other or 4) * 2) for each in map(Member.status, restored)}
    used = {each.node.name: each.used_procs for each in map(Member.status, restored)}
    assert restored.procs_total == sum(places.values())
    assert restored.free_procs == sum(max(0, places[name] - used[name]) for name in NAMES)


def test_more_is_held_than_the_rules_of_now_allow() -> None:
    """Two tasks on a CPU were allowed, one is: what is held stays, each node for itself has nothing free."""
    before = nodes(mpl=2)
    job = job_of(1, 4)
    allocation = before.room().placed(job)
    assert allocation == Allocation(4, (Share("n1", 4),))
    now = nodes(mpl=1)
    now.take(job, allocation)
    now.settle()
    assert totals(now) == (6, 6, 4)  # not 2: n1 lacks two, and the others lend it none
    assert now.room().placed(job_of(2, 4)) == Allocation(4, (Share("n2", 2), Share("n10", 2)))
    found = now.room().obstacle(job_of(2, 5))
    assert found is not None
    assert found.why is Why.NOT_ENOUGH_FREE


def test_jobs_that_are_known_to_fit_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_capacity, "_MOST_KNOWN", 2)
    capacity = nodes()
    for procs in (1, 2, 3, 4, 1):
        assert capacity.ever_fits(job_of(1, procs))
        assert len(capacity._known_to_fit) <= 2
    assert not capacity.ever_fits(job_of(1, 13))


def test_nodes_stand_in_the_order_of_their_numbers() -> None:
    capacity = nodes()
    capacity.join(Node("n3", 1, 1))
    assert [each.status().node.name for each in capacity] == ["n1", "n2", "n3", "n10"]
    with pytest.raises(UnknownNode, match="n4 never joined"):
        capacity.drain("n4", "")


def test_a_change_that_changes_nothing_says_so() -> None:
    capacity = nodes()
    assert not capacity.join(Node("n1", 4, 8, 2))
    assert capacity.drain("n1", "dust")
    assert not capacity.drain("n1", "more dust")
    assert capacity["n1"].status().reason == "more dust"
    assert totals(capacity) == (12, 8, 8)
    assert capacity.resume("n1")
    assert not capacity.resume("n1")
    assert capacity.lose("n1")
    assert not capacity.lose("n1")
    assert totals(capacity) == (12, 8, 8)
    assert capacity.join(Node("n1", 4, 8, 2))  # it is back
    assert not capacity.own("n1", None)
    assert totals(capacity) == (12, 12, 12)
