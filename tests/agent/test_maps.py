"""Maps of malleable jobs in the agent's core: passed on to ranks, kept across restarts, and what ranks say of them."""

import msgspec
import pytest
from kit.agent_world import FENCE, KEY, NODE, World, order, prepare, started

from cosched.wire import messages as wire
from node_agent.core import inputs as happened


@pytest.fixture(name="world")
def _world() -> World:
    made = World()
    made.connect()
    assert made.welcome(FENCE)
    return made


def adapt(n: int, number: int) -> wire.Adapt:
    made: wire.Adapt = order(wire.Adapt, n, map=wire.JobMap(number, {NODE: 1, "b": 1}))
    return made


def ask(world: World, message: wire.Order) -> wire.FromAgent:
    world.order(message)
    world.settle()
    return world.heard[-1]


def shown(world: World) -> list[int]:
    """The maps that ranks were told, by their numbers."""
    return [each.map.number for each in world.maps]


def test_a_map_is_passed_on_and_an_older_one_is_refused(world: World) -> None:
    started(world)
    assert ask(world, adapt(3, 7)) == wire.Offered(adapt(3, 7).order, True)
    assert shown(world) == [7]
    refused = ask(world, adapt(4, 6))
    assert isinstance(refused, wire.Refused)
    assert (refused.code, refused.message) == ("stale", "a map with number 6; here is 7")
    assert ask(world, adapt(3, 7)) == wire.Offered(adapt(3, 7).order, True), "the same order again"
    assert shown(world) == [7]


def test_where_no_rank_is_to_be_told_the_scheduler_hears_of_it(world: World) -> None:
    started(world)
    world.ranks_there = False
    assert ask(world, adapt(3, 7)) == wire.Offered(adapt(3, 7).order, False)


def test_a_map_for_what_is_not_here_is_refused(world: World) -> None:
    refused = ask(world, adapt(3, 7))
    assert isinstance(refused, wire.Refused)
    assert refused.code == "unknown"


def test_the_first_map_comes_with_the_job_and_says_who_sleeps(world: World) -> None:
    first = {"map": wire.JobMap(5, {NODE: 0, "b": 2}), "cpus": 1}
    ready = msgspec.structs.replace(prepare(FENCE, wire.OrderId(*KEY, 1)), **first)
    assert ask(world, ready) == wire.Prepared(ready.order)
    assert shown(world) == [5]
    assert (world.guard.groups[KEY].asleep, world.guard.groups[KEY].cpus) == (True, 1)


def test_that_ranks_have_adopted_a_map_is_told_again_after_each_welcome(world: World) -> None:
    started(world)
    ask(world, adapt(3, 7))
    world.hand_in(happened.RanksAdapted(KEY, 7))
    assert world.heard[-1] == wire.Adapted(*KEY, 7)
    assert world.welcome(FENCE)
    assert world.heard[-1] == wire.Adapted(*KEY, 7)


def test_an_agent_that_is_started_anew_tells_ranks_their_map_again(world: World) -> None:
    started(world)
    ask(world, adapt(3, 7))
    world.die()
    world.start()
    world.connect()
    assert shown(world)[-1] == 7
    assert world.welcome(FENCE)
    world.hand_in(happened.RanksAdapted(KEY, 7))
    assert world.heard[-1] == wire.Adapted(*KEY, 7)


def test_ranks_that_start_later_take_the_newest_map(world: World) -> None:
    """No rank has come yet: the map is kept for them, also by an agent that is started anew, and adopted at once."""
    started(world)
    world.ranks_there = False
    assert ask(world, adapt(3, 7)) == wire.Offered(adapt(3, 7).order, False)
    world.die()
    world.start()
    world.connect()
    assert shown(world)[-1] == 7
    assert world.welcome(FENCE)
    world.hand_in(happened.RanksAdapted(KEY, 7))
    assert world.heard[-1] == wire.Adapted(*KEY, 7)


def test_map_adopted_before_its_order_arrives_is_told_when_it_does(world: World) -> None:
    """Another node was told earlier, and the new leading rank is here: it says so once."""
    started(world)
    ask(world, adapt(3, 7))
    world.hand_in(happened.RanksAdapted(KEY, 8))
    assert wire.Adapted(*KEY, 8) not in world.heard
    ask(world, adapt(4, 8))
    assert wire.Adapted(*KEY, 8) in world.heard
    ask(world, adapt(5, 9))
    assert world.heard[-1] == wire.Offered(adapt(5, 9).order, True), "said of another map"


@pytest.mark.parametrize("number", [8, 1 << 40])
def test_a_map_that_nobody_gave_is_not_adopted(world: World, number: int) -> None:
    started(world)
    ask(world, adapt(3, 7))
    before = len(world.heard)
    world.hand_in(happened.RanksAdapted(KEY, number))
    world.hand_in(happened.RanksAdapted((9, 9), 7))
    assert len(world.heard) == before
    assert world.complaints == {"channel": 2}


def test_request_of_a_job_is_passed_on(world: World) -> None:
    started(world)
    world.hand_in(happened.RanksAsked(KEY, -2))
    assert world.heard[-1] == wire.Asked(*KEY, -2)
