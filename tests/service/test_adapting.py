"""A malleable job whose ranks are all there: nodes that give more, the ranks told their map, nodes that take back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.changing import KEY, Rules

from cosched.model.allocation import Allocation, Share
from cosched.model.width import Range
from cosched.wire import messages as wire
from cosched.wire.messages import RIGID_VERSION
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Answer
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.launch.resizing import (
    NO_RANK,
    Absent,
    Ask,
    Kept,
    MalleableResizing,
    Offer,
    Resized,
    Stage,
    Step,
)
from space_scheduler.service.launch.values import TimedOut

NODES = ("n1", "n2")


def enabled(n1: int, n2: int) -> Allocation:
    """Two ranks on each of two nodes, so many of them enabled."""
    return Allocation(n1 + n2, (Share("n1", 2, n1), Share("n2", 2, n2)), 4)


def service(n1: int, n2: int, ask_more: int = 0) -> Rules:
    shape = Range(1, 4, malleable=True, resident=True, ask_more=ask_more)
    return Rules(shape=shape, held=enabled(n1, n2), policy="equipartition")


def told(rules: Rules) -> dict[str, wire.Order]:
    return rules.orders()


def joins(rules: Rules, asked: dict[str, wire.Order], joined: bool = True) -> None:
    for name, order in asked.items():
        assert isinstance(order, wire.Adapt)
        rules.feed_from(name, wire.Offered(order.order, joined))


def test_a_job_shrinks_when_its_ranks_have_done_so() -> None:
    rules = service(2, 2)
    rules.resize(enabled(2, 0))
    asked = told(rules)
    assert all(isinstance(each, wire.Adapt) and each.map.enabled == {"n1": 2, "n2": 0} for each in asked.values())
    joins(rules, asked)
    assert (told(rules), rules.posted) == ({}, []), "nothing is taken before they have"
    number = asked["n1"].map.number  # type: ignore[attr-defined]
    rules.feed_from("n2", wire.Adapted(*KEY, number - 1))
    assert told(rules) == {}, "an older map"
    rules.feed_from("n2", wire.Adapted(*KEY, number))
    after = told(rules)
    assert set(after) == {"n2"}, "the other has what it had"
    assert rules.shape(after["n2"])[:2] == (2, 1)
    assert after["n2"].asleep  # type: ignore[attr-defined]
    assert after["n2"].order.n > asked["n2"].order.n
    rules.answers("n2", after["n2"])
    assert rules.posted == [ev.JobResized(1)]


def test_a_job_grows_where_nodes_have_given_it_cpus() -> None:
    rules = service(1, 0)
    rules.resize(enabled(2, 2))
    asked = told(rules)
    assert {name: rules.shape(order)[:2] for name, order in asked.items()} == {"n1": (2, 2), "n2": (2, 2)}
    assert not any(order.asleep for order in asked.values())  # type: ignore[attr-defined]
    rules.answers("n1", asked["n1"])
    assert told(rules) == {}
    rules.answers("n2", asked["n2"])
    maps = told(rules)
    assert all(isinstance(each, wire.Adapt) and each.map.enabled == {"n1": 2, "n2": 2} for each in maps.values())
    assert set(maps) == {*NODES}
    joins(rules, maps)
    rules.feed_from("n1", wire.Adapted(*KEY, maps["n1"].map.number))  # type: ignore[attr-defined]
    assert rules.posted == [ev.JobResized(1)]


def test_a_program_that_does_not_come_to_a_safe_point_keeps_what_it_has() -> None:
    rules = service(1, 2)
    rules.resize(enabled(2, 1))
    grown = told(rules)
    assert set(grown) == {"n1"}
    rules.answers("n1", grown["n1"])
    first = told(rules)
    joins(rules, first)
    rules.feed(TimedOut(KEY))
    assert rules.posted == []
    back = rules.all_orders()
    maps = [order for _, order in back if isinstance(order, wire.Adapt)]
    assert [order.map.enabled for order in maps] == [{"n1": 1, "n2": 2}] * 2
    assert all(order.map.number > first["n1"].map.number for order in maps)  # type: ignore[attr-defined]
    (share,) = [(name, order) for name, order in back if isinstance(order, wire.Resize)]
    assert (share[0], rules.shape(share[1])[:2]) == ("n1", (2, 1))
    rules.answers(*share)
    assert rules.posted == []
    joins(rules, {name: order for name, order in back if isinstance(order, wire.Adapt)})
    assert rules.posted == [ev.ResizeFailed(1, "its processes have not come to a safe point within 1 min")]
    rules.feed_from("n1", wire.Adapted(*KEY, first["n1"].map.number))  # type: ignore[attr-defined]
    assert rules.posted[1:] == [], "they did after all, and are told the old map again"


def test_undo_of_a_pure_shrink_offers_the_old_map_by_a_higher_number() -> None:
    rules = service(2, 2)
    rules.resize(enabled(2, 1))
    first = told(rules)
    joins(rules, first)
    rules.feed(TimedOut(KEY))
    undone = told(rules)
    assert set(undone) == {*NODES}
    assert all(order.map.enabled == {"n1": 2, "n2": 2} for order in undone.values())  # type: ignore[attr-defined]
    assert all(order.map.number > first["n1"].map.number for order in undone.values())  # type: ignore[attr-defined]
    assert rules.posted == []


def test_resize_before_the_first_rank_is_taken_at_the_start_of_the_ranks() -> None:
    rules = service(2, 2)
    rules.resize(enabled(2, 1))
    asked = told(rules)
    joins(rules, asked, joined=False)
    assert (told(rules), rules.posted) == ({}, []), "the agents keep the map for ranks to come"
    rules.feed_from("n1", wire.Adapted(*KEY, asked["n1"].map.number))  # type: ignore[attr-defined]
    (shrink,) = told(rules).items()
    assert (shrink[0], rules.shape(shrink[1])[:2]) == ("n2", (2, 1))
    rules.answers(*shrink)
    assert rules.posted == [ev.JobResized(1)]


@pytest.mark.parametrize("refused", [False, True])
def test_program_that_never_adapts_keeps_what_it_has_after_one_timeout(refused: bool) -> None:
    rules = service(2, 2)
    for waits in (True, False):
        rules.resize(enabled(1, 1))
        asked = told(rules)
        joins(rules, {"n1": asked["n1"]}, joined=False)
        assert rules.posted == []
        if refused:
            rules.feed_from("n2", wire.Refused(asked["n2"].order, "unknown", "what is that"))
        else:
            joins(rules, {"n2": asked["n2"]}, joined=False)
        if waits:  # its ranks may be on their way
            assert (told(rules), rules.posted) == ({}, [])
            rules.now_s += 60.0
            rules.feed(TimedOut(KEY))
        back = told(rules)
        assert all(order.map.enabled == {"n1": 2, "n2": 2} for order in back.values())  # type: ignore[attr-defined]
        assert rules.posted == [], "not before each node has the old map"
        joins(rules, back, joined=False)
        assert rules.posted == [ev.ResizeFailed(1, NO_RANK)]
        rules.posted.clear()


def test_job_whose_ranks_have_left_gives_up_processors_at_once() -> None:
    """In its last seconds: the program is over, its script is not."""
    rules = service(2, 2)
    rules.feed_from("n1", wire.Adapted(*KEY, 1))
    rules.now_s += 600.0
    rules.resize(enabled(2, 1))
    joins(rules, told(rules), joined=False)
    (shrink,) = told(rules).items()
    rules.answers(*shrink)
    assert rules.posted == [ev.JobResized(1)]


def test_undo_is_repeated_until_each_node_has_the_old_map() -> None:
    rules = service(2, 2)
    rules.resize(enabled(2, 1))
    joins(rules, told(rules))
    rules.feed(TimedOut(KEY))
    undone = told(rules)
    joins(rules, {"n1": undone["n1"]})
    assert rules.posted == []
    rules.feed(TimedOut(KEY))
    again = told(rules)
    assert set(again) == {"n2"}
    assert again["n2"].map.enabled == {"n1": 2, "n2": 2}  # type: ignore[attr-defined]
    joins(rules, {"n2": undone["n2"]})
    assert rules.posted == [], "another order has replaced that one"
    joins(rules, again)
    assert rules.posted == [ev.ResizeFailed(1, "its processes have not come to a safe point within 1 min")]


def test_undo_does_not_wait_for_a_node_whose_agent_resizes_no_job_any_more() -> None:
    rules = service(2, 2)
    rules.resize(enabled(2, 1))
    joins(rules, told(rules))
    rules.feed(TimedOut(KEY))
    joins(rules, {"n1": told(rules)["n1"]})
    assert rules.posted == []
    rules.come("n2", "prepared", version=RIGID_VERSION)
    assert rules.posted == [ev.ResizeFailed(1, "its processes have not come to a safe point within 1 min")]


def test_resumed_change_is_undone_on_every_node() -> None:
    """The scheduler before may have asked any of them: here n2, which has given up its processor."""
    shape = Range(1, 4, malleable=True, resident=True)
    rules = Rules(shape=shape, held=enabled(2, 2), policy="equipartition", resizing=enabled(2, 1), come=False)
    for name in NODES:
        rules.come(name, "running" if name == "n1" else "prepared")
    joins(rules, told(rules))
    rules.feed(TimedOut(KEY))
    back = rules.all_orders()
    shares = {name: rules.shape(order)[:2] for name, order in back if isinstance(order, wire.Resize)}
    assert shares == {"n1": (2, 2), "n2": (2, 2)}


def test_a_node_that_comes_back_is_asked_again_by_the_same_order() -> None:
    rules = service(2, 2)
    rules.resize(enabled(1, 1))
    asked = told(rules)
    rules.come("n2", "prepared")
    (again,) = [order for order in told(rules).values() if isinstance(order, wire.Adapt)]
    assert again == asked["n2"]


def test_a_job_asks_within_what_it_has_said_and_is_answered() -> None:
    rules = service(1, 1, ask_more=2)
    rules.feed_from("n1", wire.Asked(*KEY, 3))
    assert rules.posted == []
    assert rules.told() == [(name, wire.AskAnswered(*KEY, 0, False)) for name in NODES]
    rules.feed_from("n1", wire.Asked(*KEY, 2))
    assert rules.posted == [ev.ResizeAsked(1, 2)]
    cause = ev.Boundary()
    rules.instruct(Answer(1, 1, True, cause, Reason(Why.ASKED)))
    assert rules.told() == [(name, wire.AskAnswered(*KEY, 1, True)) for name in NODES]
    rules.feed_from("n1", wire.Asked(*KEY, 2))
    assert rules.posted[1:] == [], "more than it may ask for, with what it was given"


def test_a_job_asks_one_thing_at_a_time_also_after_a_restart() -> None:
    rules = service(1, 1, ask_more=2)
    rules.feed_from("n1", wire.Asked(*KEY, 1))
    for more in (1, -1) * 3:
        rules.feed_from("n1", wire.Asked(*KEY, more))
    assert rules.posted == [ev.ResizeAsked(1, 1)]
    assert rules.told() == [], "what was not heard has no answer"
    shape = Range(1, 4, malleable=True, resident=True, ask_more=2)
    again = Rules(shape=shape, held=enabled(1, 1), policy="equipartition", asked=(2, False))
    again.feed_from("n1", wire.Asked(*KEY, 1))
    assert again.posted == [], "it has what it may ask for"
    assert again.told() == [(name, wire.AskAnswered(*KEY, 0, False)) for name in NODES]
    waits = Rules(shape=shape, held=enabled(1, 1), policy="equipartition", asked=(0, True))
    waits.feed_from("n1", wire.Asked(*KEY, 1))
    assert (waits.posted, waits.told()) == ([], [])


def test_a_job_that_is_suspended_is_stopped_and_no_rank_is_asked() -> None:
    shape = Range(1, 4, malleable=True, resident=True)
    rules = Rules(shape=shape, held=enabled(1, 0), policy="fjt1+bfm(expired=suspend)")
    rules.resize(enabled(0, 0))
    asked = told(rules)
    assert {name: rules.shape(order)[:2] for name, order in asked.items()} == {"n1": (2, 0), "n2": (2, 0)}
    for name, order in asked.items():
        rules.answers(name, order)
    assert rules.posted == [ev.JobResized(1)]
    rules.held = enabled(0, 0)
    rules.resize(enabled(2, 0))
    grown = told(rules)
    assert {name: rules.shape(order)[:2] for name, order in grown.items()} == {"n1": (2, 2), "n2": (2, 1)}
    assert grown["n2"].asleep, "stopped no more: it would not hear of the job's end"  # type: ignore[attr-defined]
    for name, order in grown.items():
        rules.answers(name, order)
    assert all(isinstance(order, wire.Adapt) for order in told(rules).values())


counts = st.integers(0, 2)


class Ranked:
    """What two nodes have of a job that changes, and the maps that they keep; answers come when a test says so."""

    def __init__(self, old: Allocation, new: Allocation) -> None:
        self.change = MalleableResizing(old, new)
        self.has = {share.node: share.procs for share in old.nodes}
        self.maps = dict.fromkeys(NODES, old)
        self.asked: dict[str, int] = {}
        self.ends: list[Step] = []
        self.do(self.change.begin())

    def do(self, steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Ask):
                self.asked[step.node] = next(each.procs for each in self.change.wanted.nodes if each.node == step.node)
            elif isinstance(step, Offer):
                self.maps[step.node] = self.change.wanted
            elif isinstance(step, Resized | Kept):
                self.ends.append(step)

    def happens(self, what: str, node: str, draw: st.DataObject) -> None:
        yes = draw.draw(st.booleans())
        if what == "answer" and node in self.asked:
            self.answers(node)
        elif what == "refuse" and node in self.asked:
            asked = self.asked.pop(node)
            self.has[node] = asked if yes else self.has[node]
            self.do(self.change.refused(node, "no", unchanged=not yes))
        elif what == "offer":
            self.do(self.change.offered(node, joined=yes, absent=draw.draw(st.sampled_from(Absent))))
        elif what == "adapt":
            self.do(self.change.adapted())
        elif what == "time":
            self.do(self.change.timed_out("a while"))

    def answers(self, node: str) -> None:
        self.has[node] = self.asked.pop(node)
        self.do(self.change.answered(node))

    def ends_well(self) -> None:
        """Nodes are well from now on."""
        while not self.ends:
            for node in list(self.asked):
                self.answers(node)
            for node in NODES:
                if self.change.stage is Stage.UNDOING:
                    self.do(self.change.offered(node, joined=True))
            if not self.ends:
                self.do(self.change.timed_out("a while"))


@given(before=st.tuples(counts, counts), after=st.tuples(counts, counts), draw=st.data())
def test_change_ends_with_one_share_and_its_map_on_every_node(
    before: tuple[int, int], after: tuple[int, int], draw: st.DataObject
) -> None:
    """While the ranks are asked, no node has less than either map needs."""
    if before == after or not sum(before) or not sum(after):
        return
    old, new = enabled(*before), enabled(*after)
    job = Ranked(old, new)
    for _ in range(40):
        if job.ends:
            break
        if job.change.stage is Stage.MAPPING:
            most = [max(each) for each in zip(before, after, strict=True)]
            assert all(job.has[node] >= needed for node, needed in zip(NODES, most, strict=True))
        what = draw.draw(st.sampled_from(("answer", "refuse", "offer", "adapt", "time")))
        job.happens(what, draw.draw(st.sampled_from(NODES)), draw)
    job.ends_well()
    (end,) = job.ends
    assert tuple(job.has.values()) == (after if isinstance(end, Resized) else before)
    assert set(job.maps.values()) == {new if isinstance(end, Resized) else old}
    assert job.change.stage is Stage.OVER


@pytest.mark.parametrize("what", ["adapted", "offered"])
def test_nothing_that_comes_at_another_time_counts(what: str) -> None:
    change = MalleableResizing(enabled(1, 1), enabled(2, 1))
    assert change.begin() == [Ask("n1")]
    found = change.adapted() if what == "adapted" else change.offered("n1", joined=False)
    assert (found, change.stage) == ([], Stage.ASKING)
    assert change.answered("n1") == [Offer("n1"), Offer("n2")]
