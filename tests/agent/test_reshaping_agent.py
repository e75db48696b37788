"""An attempt that is here changes: a renewed grant, another share of the node; the agent's core and a model guard."""

import msgspec
import pytest
from kit.agent_world import CLUSTER, FENCE, KEY, NODE, USER, World, kill, order, prepare, prepared, started

from cosched.wire import messages as wire
from cosched.wire.grant import Grant
from node_agent.core import effects as fx
from node_agent.core import inputs as happened

OTHERS = (wire.Peer(NODE, "127.0.0.1", 7421, 2), wire.Peer("b", "127.0.0.1", 7422, 1))


@pytest.fixture(name="world")
def _world() -> World:
    made = World()
    made.connect()
    assert made.welcome(FENCE)
    return made


def grant(serial: int, nodes: tuple[str, ...] = (NODE, "b"), epoch: int = 1, user: str = USER) -> bytes:
    return msgspec.msgpack.encode(Grant(CLUSTER, epoch, *KEY, user, nodes, serial))


def resize(n: int, serial: int = 1, cpus: int | None = 1, peers: tuple[wire.Peer, ...] = OTHERS) -> wire.Resize:
    made: wire.Resize = order(wire.Resize, n, tasks=2, cpus=cpus, peers=peers, grant=grant(serial))
    return made


def given(world: World) -> tuple[int, int | None]:
    """What the guard has for the attempt: places, and CPUs."""
    group = world.guard.groups[KEY]
    return group.tasks, group.cpus


def ask(world: World, message: wire.Order) -> wire.FromAgent:
    world.order(message)
    world.settle()
    return world.heard[-1]


def test_a_share_is_changed_once_and_answered_again(world: World) -> None:
    started(world)
    assert ask(world, resize(3)) == wire.Resized(resize(3).order, (0,))
    assert given(world) == (2, 1)
    asked = len(world.to_guard)
    assert ask(world, resize(3)) == wire.Resized(resize(3).order, (0,)), "an answer that was lost"
    assert len(world.to_guard) == asked
    assert ask(world, resize(4, cpus=None)) == wire.Resized(resize(4).order)
    stale = ask(world, resize(3))
    assert stale == wire.Refused(resize(3).order, "stale", "order 4 was obeyed already"), "what it said holds no more"
    assert given(world) == (2, None)
    assert ask(world, order(wire.Run, 2, script=b"", arguments=())) == wire.Started(
        order(wire.Kill, 2, grace_us=0).order, 4711
    )


def test_commands_that_come_later_go_by_the_change(world: World) -> None:
    started(world)
    ask(world, resize(3))
    assert world.core is not None
    attempt = world.core.get(*KEY)
    assert attempt is not None
    assert attempt.prepare is not None
    assert (attempt.prepare.tasks, attempt.prepare.peers, attempt.prepare.grant) == (2, OTHERS, grant(1))
    world.hand_in(happened.CommandWanted(1, KEY, ("sh",), "x"))
    _, spawn = world.to_guard[-1]
    assert isinstance(spawn, fx.Spawn)
    assert spawn.prepare.peers == OTHERS
    world.die()
    world.start()
    kept = world.core.get(*KEY)
    assert kept is not None
    assert kept.prepare == attempt.prepare


def test_an_older_grant_is_refused_whatever_its_order(world: World) -> None:
    started(world)
    ask(world, resize(3, serial=4))
    old = ask(world, resize(5, serial=3))
    assert old == wire.Refused(resize(5).order, "stale", "a grant of epoch 1, serial 3; here is 1, 4")
    assert given(world) == (2, 1)
    assert ask(world, resize(6, serial=4, cpus=2)) == wire.Resized(resize(6).order, (0, 1))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"grant": b"forged"}, "Expected `array`"),
        ({"grant": grant(1, ("b",))}, "the grant does not name a"),
        ({"grant": grant(1, ("a",))}, "the grant does not name b"),
        ({"grant": grant(1, user="eve")}, "the grant is for user 'eve', the order for 'root'"),
        ({"grant": grant(1, epoch=9)}, "the grant is of epoch 9 of another cluster or scheduler"),
    ],
)
def test_a_grant_that_does_not_fit_changes_nothing(world: World, change: dict[str, bytes], words: str) -> None:
    started(world)
    refused = ask(world, msgspec.structs.replace(resize(3), **change))
    assert isinstance(refused, wire.Refused)
    assert refused.code == "failed"
    assert words in refused.message
    assert given(world) == (1, None)


def test_what_is_not_here_or_is_being_killed_is_not_resized(world: World) -> None:
    assert ask(world, resize(1)) == wire.Refused(resize(1).order, "unknown", "the job was not prepared here")
    started(world)
    world.order(kill())
    refused = [*world.order(resize(4))]
    world.settle()
    refused += world.heard
    assert wire.Refused(resize(4).order, "stale", "job 5.1 is being killed") in refused


def test_a_node_joins_an_attempt_that_runs_and_a_renewed_grant_is_taken(world: World) -> None:
    """To the node it is a Prepare like any other; given again for other nodes it renews what is here."""
    first = prepare(FENCE, wire.OrderId(*KEY, 3))
    renewed = msgspec.structs.replace(first, order=wire.OrderId(*KEY, 4), peers=OTHERS, grant=grant(2))
    assert ask(world, first) == wire.Prepared(first.order)
    assert ask(world, renewed) == wire.Prepared(renewed.order)
    assert ask(world, renewed) == wire.Prepared(renewed.order)
    assert world.core is not None
    attempt = world.core.get(*KEY)
    assert attempt is not None
    assert attempt.prepare == renewed
    with_uid = msgspec.structs.replace(renewed, order=wire.OrderId(*KEY, 5), uid=1007)  # of an upgraded scheduler
    assert ask(world, with_uid) == wire.Prepared(with_uid.order)
    for n, change in enumerate(({"tasks": 7}, {"uid": 1008}), start=6):
        other = msgspec.structs.replace(with_uid, order=wire.OrderId(*KEY, n), **change)
        assert ask(world, other) == wire.Refused(other.order, "busy", "job 5.1 is still here")
    older = msgspec.structs.replace(with_uid, order=wire.OrderId(*KEY, 8), grant=grant(1))
    assert ask(world, older) == wire.Refused(older.order, "stale", "a grant of epoch 1, serial 1; here is 1, 2")


def test_who_left_and_joins_again_is_prepared_anew_after_a_discard(world: World) -> None:
    prepared(world)
    for message in (kill(), order(wire.Forget, 4), order(wire.Discard, 5)):
        ask(world, message)
    again = prepare(FENCE, wire.OrderId(*KEY, 7))
    assert ask(world, again) == wire.Prepared(again.order)
    assert ask(world, kill()) == wire.Prepared(again.order), "a Kill of the time before says nothing, and does nothing"
    assert not world.guard.groups[KEY].ending


def test_the_newest_order_is_told_also_where_it_has_not_been_obeyed_yet(world: World) -> None:
    """A guard that dies before its answer: what was obeyed nobody knows, and the same order brings it to light."""
    started(world)
    world.order(resize(3))
    world.lose_guard(asked=1)
    assert world.heard[-1] == wire.Refused(resize(3).order, "failed", "the guard has gone")
    world.connect()
    assert given(world) == (2, 1)
    assert ask(world, resize(4, serial=2, cpus=None)) == wire.Resized(resize(4).order)
    assert given(world) == (2, None)


def test_an_agent_killed_after_the_guard_has_obeyed_has_it_done_again(world: World) -> None:
    started(world)
    world.order(resize(3))
    world.guard_works()
    world.die()
    world.start()
    world.welcome(FENCE)
    assert ask(world, resize(3)) == wire.Resized(resize(3).order, (0,))


def held(world: World) -> tuple[wire.JobHeld, ...]:
    assert world.core is not None
    return world.core.held().jobs


def test_heartbeat_says_what_the_node_was_told_last(world: World) -> None:
    started(world)
    assert held(world) == (wire.JobHeld(*KEY, 2, 1),)
    ask(world, resize(3))
    newest = wire.JobMap(7, {NODE: 0, "b": 1})
    ask(world, order(wire.Adapt, 4, map=newest))
    told = wire.JobHeld(*KEY, 4, 2, 1, map=newest)
    assert held(world) == (told,)
    asleep = msgspec.structs.replace(resize(5), asleep=True)
    ask(world, asleep)
    ask(world, resize(6, serial=0))  # refused
    told = msgspec.structs.replace(told, order=6, asleep=True)
    assert held(world) == (told,)
    world.die()
    world.start()
    world.connect()
    assert held(world) == (told,), "of an agent that is started anew too"


def test_heartbeat_leaves_out_what_is_being_ended(world: World) -> None:
    started(world)
    world.order(kill())
    assert held(world) == ()


def test_heartbeat_says_that_a_record_was_lost(world: World) -> None:
    started(world)
    world.die()
    world.records.clear()
    world.start()
    world.connect()
    assert held(world) == (wire.JobHeld(*KEY, 0),)
