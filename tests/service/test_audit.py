"""What a node says at a heartbeat that it was told of a job, compared with what the core holds, repaired, counted."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from kit.changing import KEY, Rules

from cosched.model.allocation import Allocation, Share
from cosched.model.job import JobState
from cosched.model.width import Range
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.service.launch.values import Heard, Say

NODES = ("n1", "n2")
RANKED = Range(1, 4, malleable=True, resident=True)
#: Of an order that was obeyed under the scheduler before.
BEFORE = 5


def enabled(n1: int, n2: int) -> Allocation:
    """Two ranks on each of two nodes, so many of them enabled."""
    return Allocation(n1 + n2, (Share("n1", 2, n1), Share("n2", 2, n2)), 4)


class Audited(Rules):
    """Nodes say with each heartbeat what they were told; at first that is what the core holds."""

    def __init__(self, held: Allocation, **how: Any) -> None:
        how.setdefault("policy", "equipartition")
        how.setdefault("shape", RANKED)
        super().__init__(held=held, **how)
        shares = {share.node: share for share in held.nodes}
        number = self.core.launches.attempts[1].map_number - (1 << 20)
        newest = wire.JobMap(number, {name: share.procs for name, share in shares.items()})
        self.has = {
            name: wire.JobHeld(*KEY, BEFORE, share.tasks, share.procs or 1, not share.procs, newest)
            for name, share in shares.items()
        }

    def other(self, name: str, **fields: Any) -> None:
        """What a node was told is something else."""
        self.has[name] = msgspec.structs.replace(self.has[name], **fields)

    def beats(self, name: str) -> list[tuple[str, wire.Order]]:
        """A heartbeat later; the orders that follow from what that node says."""
        self.now_s += 1.0
        self.feed(Heard(name, wire.JobsHeld((self.has[name],))))
        return self.all_orders()

    def obeys(self, name: str, order: wire.Order) -> None:
        if isinstance(order, wire.Resize):
            share = {"tasks": order.tasks, "cpus": order.cpus, "asleep": order.asleep}
            self.other(name, order=order.order.n, **share)
        elif isinstance(order, wire.Adapt):
            self.other(name, order=order.order.n, map=order.map)

    @property
    def found(self) -> dict[str, int]:
        return dict(sum((entry.differences for entry in self.core.book), Counter[str]()))


def test_heartbeat_that_agrees_with_the_core_sends_nothing() -> None:
    rules = Audited(enabled(2, 0))
    for name in NODES:
        assert rules.beats(name) == []
    assert rules.found == {}


def test_stale_map_is_sent_again_within_the_heartbeat() -> None:
    """A resize was undone, and the old map did not reach n2, say because its link broke and the scheduler ended."""
    rules = Audited(enabled(2, 2))
    held = rules.has["n2"].map
    assert held is not None
    rules.other("n2", map=wire.JobMap(held.number + 1, {"n1": 2, "n2": 1}))
    ((node, adapt),) = rules.beats("n2")
    assert isinstance(adapt, wire.Adapt)
    assert (node, adapt.map.enabled) == ("n2", {"n1": 2, "n2": 2})
    assert adapt.map.number > held.number + 1
    assert rules.beats("n2") == [], "the order is under way"
    rules.obeys("n2", adapt)
    assert rules.beats("n2") == []
    assert rules.found == {"map": 1}


@pytest.mark.parametrize("ahead", [0, 3])
def test_other_shares_under_that_number_or_a_higher_one_are_replaced_on_all_nodes(ahead: int) -> None:
    """Ranks take a map with a higher number alone."""
    rules = Audited(enabled(2, 2))
    number = rules.core.launches.attempts[1].map_number + ahead
    rules.other("n1", map=wire.JobMap(number, {"n1": 2, "n2": 1}))
    sent = rules.beats("n1")
    assert [name for name, _ in sent] == [*NODES]
    for _, order in sent:
        assert isinstance(order, wire.Adapt)
        assert order.map == wire.JobMap(number + 1, {"n1": 2, "n2": 2})


@pytest.mark.parametrize(
    ("held", "told", "asked"),
    [
        (enabled(2, 1), {"cpus": 2}, (2, 1, False)),
        (enabled(2, 2), {"cpus": 1}, (2, 2, False)),
        (enabled(2, 2), {"cpus": 0}, (2, 2, False)),
        (enabled(2, 0), {"cpus": 1, "asleep": False}, (2, 1, True)),
        (enabled(2, 2), {"tasks": 1}, (2, 2, False)),
        (enabled(0, 0), {"cpus": 2}, (2, 0, False)),
    ],
)
def test_other_share_is_asked_for_again(held: Allocation, told: dict[str, Any], asked: tuple[Any, ...]) -> None:
    """More or fewer CPUs than the core counts, a job that is stopped or goes on against the book, ranks awake."""
    rules = Audited(held)
    rules.other("n2", cpus=rules.has["n2"].cpus if held.procs else 0, asleep=rules.has["n2"].asleep and held.procs > 0)
    rules.other("n2", **told)
    ((node, resize),) = rules.beats("n2")
    assert isinstance(resize, wire.Resize)
    assert (node, (resize.tasks, resize.cpus, resize.asleep)) == ("n2", asked)
    rules.obeys("n2", resize)
    assert rules.beats("n2") == []
    assert rules.found == {"share": 1}


def test_folded_job_is_compared_and_has_no_map() -> None:
    folded = Allocation(2, (Share("n1", 2, 1), Share("n2", 2, 1)), 4)
    rules = Audited(folded, policy="fjt1+bfm", shape=None)
    rules.other("n1", map=None, cpus=2)
    ((_, resize),) = rules.beats("n1")
    assert rules.shape(resize)[:2] == (2, 1)


def test_refused_repair_is_repeated_and_counted_every_five_heartbeats() -> None:
    rules = Audited(enabled(2, 1))
    rules.other("n2", cpus=2)
    lines = []
    sent = []
    for _ in range(11):
        rules.now_s += 1.0
        effects = rules.core.handle(Heard("n2", wire.JobsHeld((rules.has["n2"],))), rules.now_s)
        lines += [each.what for each in effects if isinstance(each, Say)]
        for effect in effects:
            rules._note(effect)
        for name, order in rules.all_orders():
            sent.append(order.order.n)
            rules.refuses(name, order)
            rules.other("n2", order=order.order.n)
    assert sent == sorted(set(sent))
    assert (len(sent), rules.found) == (3, {"share": 3})
    assert lines.count("node differs") == 1, "once a minute"


def test_change_under_way_and_orders_under_way_are_no_difference() -> None:
    rules = Audited(enabled(2, 2))
    rules.resize(enabled(2, 1))
    maps = rules.orders()
    rules.obeys("n1", maps["n1"])
    assert [rules.beats(name) for name in NODES] == [[], []]
    rules.feed(Heard("n1", wire.Offered(maps["n1"].order, True)))
    rules.feed(Heard("n1", wire.Adapted(*KEY, maps["n1"].map.number)))  # type: ignore[attr-defined]
    ((_, shrink),) = rules.all_orders()
    rules.answers("n2", shrink)
    assert rules.posted == [ev.JobResized(1)]
    rules.other("n2", cpus=1)
    assert rules.beats("n2") == [], "its map is on its way: all ranks have adopted it, as another node says"
    late = rules.beats("n2") + rules.beats("n2")
    assert [(name, order.map.number) for name, order in late] == [("n2", maps["n2"].map.number)]  # type: ignore[attr-defined]


def test_order_that_a_broken_link_lost_is_no_longer_under_way() -> None:
    rules = Audited(enabled(2, 2))
    rules.resize(enabled(2, 1))
    maps = rules.orders()
    rules.feed(Heard("n1", wire.Adapted(*KEY, maps["n1"].map.number)))  # type: ignore[attr-defined]
    ((_, shrink),) = rules.all_orders()
    rules.answers("n2", shrink)
    rules.other("n2", cpus=1)
    rules.come("n2", "prepared")
    rules.all_orders()
    ((name, order),) = rules.beats("n2")
    assert (name, type(order)) == ("n2", wire.Adapt)


def test_job_that_a_node_does_not_have_any_more_ends_as_one_that_has_lost_it() -> None:
    rules = Audited(enabled(2, 2))
    rules.feed(Heard("n2", wire.JobsHeld()))
    kills = rules.orders()
    assert {name: type(order) for name, order in kills.items()} == dict.fromkeys(NODES, wire.Kill)
    for name, order in kills.items():
        rules.answers(name, order)
    assert rules.posted == [ev.JobEnded(1, JobState.NODE_LOST)]
    assert rules.found == {"missing": 1}


def test_missing_part_of_a_job_waits_for_the_node_of_its_script() -> None:
    """The script has ended, all nodes were told to kill the job, and the scheduler was started anew before its end."""
    rules = Audited(enabled(2, 2), come=False)
    rules.come("n2", "ended")
    rules.feed(Heard("n2", wire.JobsHeld()))
    assert (rules.found, rules.posted) == ({}, [])
    rules.come("n1", "ended", exit=wire.Exit(0))
    rules.feed(Heard("n1", wire.JobsHeld()))
    assert [each for each in rules.posted if isinstance(each, ev.JobEnded)] == []
    for name in NODES:
        rules.feed(Heard(name, wire.GroupEnded(*KEY)))
    assert [each for each in rules.posted if isinstance(each, ev.JobEnded)] == [ev.JobEnded(1, JobState.COMPLETED)]
    assert rules.found == {}


def test_job_whose_record_an_agent_has_lost_goes_on() -> None:
    rules = Audited(enabled(2, 2))
    rules.has["n2"] = wire.JobHeld(*KEY, 0)
    assert rules.beats("n2") == []
    assert rules.found == {}


def test_stray_job_is_killed_once() -> None:
    rules = Audited(enabled(2, 2))
    stray = wire.JobHeld(7, 1, 3, 1, 1)
    for _ in range(2):
        rules.feed(Heard("n3", wire.JobsHeld((stray,))))
    kills = [(name, each.order.job_id) for name, each in rules.sent if isinstance(each, wire.Kill)]
    assert kills == [("n3", 7)]
    assert rules.found == {"stray": 1}


def test_kill_that_an_agent_has_failed_at_is_ordered_again() -> None:
    rules = Audited(enabled(2, 2))
    rules.cancel()
    rules.all_orders()
    assert [len(rules.beats("n2")) for _ in range(3)] == [0, 0, 1]
    rules.now_s += 1.0
    rules.feed(Heard("n2", wire.JobsHeld()))
    assert rules.all_orders() == []
    assert rules.found == {"stray": 1}


def test_job_started_under_a_policy_without_cpu_sets_keeps_all_cpus() -> None:
    """Another policy came with a restart of the scheduler."""
    rules = Audited(enabled(2, 1))
    rules.other("n2", cpus=None, map=None)
    assert rules.beats("n2") == []
    assert rules.found == {}
