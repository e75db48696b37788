"""Whom an agent obeys and for whom it ends what is there: grants, leases, other clusters, another boot."""

from typing import Any

import msgspec
import pytest
from kit.agent_world import CLUSTER, END, FENCE, KEY, LEASE_US, World, prepare, prepared, run, started

from cosched.wire import messages as wire
from cosched.wire.grant import Grant
from node_agent.core import effects as fx
from node_agent.core import inputs as happened


@pytest.fixture(name="world")
def _world() -> World:
    made = World()
    made.connect()
    assert made.welcome(FENCE)
    return made


def test_an_order_that_waited_for_a_guard_while_its_job_was_given_up_is_refused(world: World) -> None:
    prepared(world)
    world.lose_guard()
    world.order(run())
    world.hand_in(happened.Removed(FENCE))
    world.connect()
    assert world.heard[-1] == wire.Refused(run().order, "stale", "job 5.1 is being killed")


def test_after_a_power_cut_the_attempt_is_of_another_boot_and_its_script_ended_unknown(world: World) -> None:
    started(world)
    world.reboot()
    assert world.core is not None
    assert world.core.reports() == (wire.GroupReport(5, 1, "running", 2, None, True),)
    world.connect()
    world.welcome(FENCE)
    assert world.heard == [wire.ProgramEnded(5, 1, wire.Exit(cause="unknown"), b"the last words"), END]


def test_another_cluster_that_takes_over_finds_nothing_also_where_the_agent_was_killed_meanwhile(world: World) -> None:
    started(world)
    other = wire.Fence("d" * 32, wire.TAKE_OVER_EPOCH, "other")
    assert world.welcome(other)
    busy = world.order(prepare(other, wire.OrderId(*KEY, 9)))
    assert busy == [wire.Refused(run(9).order, "busy", "job 5.1 of the cluster before is still here")]
    world.die()
    world.start()
    world.connect()
    assert world.welcome(other)
    world.settle()
    assert (world.records, world.guard.groups) == ({}, {})
    assert not world.welcome(wire.Fence(CLUSTER, 2, "the old one")), "a count of starts is no take-over"


def test_a_second_take_over_also_ends_what_the_first_has_brought(world: World) -> None:
    started(world)
    second, third = (wire.Fence(name * 32, wire.TAKE_OVER_EPOCH + ord(name), name) for name in "de")
    assert world.welcome(second)
    world.guard_works()
    world.order(prepare(second, wire.OrderId(6, 1, 1)))
    world.guard_works()
    for _ in range(2):
        world.guard_is_heard()
    assert world.heard == [wire.Prepared(wire.OrderId(6, 1, 1))]
    world.pass_time(600_000)
    assert not world.to_guard, "what is being killed is not killed again"
    assert world.welcome(third)
    assert [request for _, request in world.to_guard] == [fx.KillGroup((6, 1), 0)]
    world.settle()
    assert (world.records, world.guard.groups) == ({}, {})


def test_a_take_over_leaves_alone_what_the_new_cluster_has_under_a_number_of_the_last(world: World) -> None:
    """The last order of the old cluster drops its attempt while the take-over goes on."""
    started(world)
    world.guard_ends(KEY, wire.Exit(0))
    world.settle()
    world.order(wire.Discard(FENCE, wire.OrderId(*KEY, 9)))
    other = wire.Fence("d" * 32, wire.TAKE_OVER_EPOCH, "other")
    assert world.welcome(other)
    for _ in range(2):  # forgotten for the old cluster's order, then killed for the take-over: it is not known
        world.guard_works()
    world.guard_is_heard()
    assert world.records == {}
    world.order(prepare(other, wire.OrderId(*KEY, 1)))
    world.guard_works()
    world.settle()
    assert world.heard[-1] == wire.Prepared(wire.OrderId(*KEY, 1))
    assert list(world.records) == [KEY]
    assert list(world.guard.groups) == [KEY]


def test_a_node_that_was_removed_ends_what_it_has_if_its_own_scheduler_says_so(world: World) -> None:
    started(world)
    for stranger in (wire.Fence("d" * 32, 9, "x"), wire.Fence(CLUSTER, 0, "x")):
        world.hand_in(happened.Removed(stranger))
        world.settle()
        assert world.guard.running(KEY) == {0}
    world.hand_in(happened.Removed(FENCE))
    world.settle()
    assert (world.records, world.guard.groups) == ({}, {})


def test_a_scheduler_that_is_silent_for_longer_than_its_lease_is_left(world: World) -> None:
    world.now_us = LEASE_US
    world.hand_in(happened.LeaseLooked())
    assert world.hung_up == []
    world.now_us += 1
    world.hand_in(happened.Heard())
    world.now_us += LEASE_US
    world.hand_in(happened.LeaseLooked())
    assert world.hung_up == []
    world.now_us += 1
    world.hand_in(happened.LeaseLooked())
    assert world.hung_up == ["nothing heard for 1 s"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"job_id": 6}, "the grant is for job 6.1"),
        ({"attempt": 2}, "the grant is for job 5.2"),
        ({"cluster_id": "d" * 32}, "the grant is of epoch 1 of another cluster or scheduler"),
        ({"epoch": 2}, "the grant is of epoch 2 of another cluster or scheduler"),
        ({"user": "daemon"}, "the grant is for user 'daemon', the order for 'root'"),
        ({"nodes": ("b",)}, "the grant does not name a"),
    ],
)
def test_a_grant_that_does_not_fit_its_order(world: World, change: dict[str, Any], words: str) -> None:
    asked = prepare(FENCE, wire.OrderId(*KEY, 1))
    grant = msgspec.structs.replace(msgspec.msgpack.decode(asked.grant, type=Grant), **change)
    world.order(msgspec.structs.replace(asked, grant=msgspec.msgpack.encode(grant)))
    assert world.heard == [wire.Refused(asked.order, "failed", words)]
    assert not world.to_guard
