"""A malleable job whose ranks are all there: nodes that give more, the ranks told their map, nodes that take back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.changing import KEY, Rules

from cosched.model.allocation import Allocation, Share
from cosched.model.width import Range
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Answer
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.launch.adapting import NOBODY, Adapting
from space_scheduler.service.launch.inputs import TimedOut
from space_scheduler.service.launch.reshaping import Ask, Kept, Offer, Reshaped, Stage, Step

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
    assert rules.posted == [ev.ResizeFailed(1, "its processes have not come to a safe point within 1 min")]
    rules.feed_from("n1", wire.Adapted(*KEY, first["n1"].map.number))  # type: ignore[attr-defined]
    assert rules.posted[1:] == [], "they did after all, and are told the old map again"


def test_a_program_that_nobody_can_tell_is_not_waited_for() -> None:
    rules = service(2, 2)
    rules.resize(enabled(1, 1))
    asked = told(rules)
    joins(rules, {"n1": asked["n1"]}, joined=False)
    assert rules.posted == []
    rules.feed_from("n2", wire.Refused(asked["n2"].order, "unknown", "what is that"))
    assert rules.posted == [ev.ResizeFailed(1, NOBODY)]


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
    rules.instruct(Answer(1, 1, True, cause, Reason(Why.ASKED)))  # type: ignore[arg-type]
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


@given(before=st.tuples(counts, counts), after=st.tuples(counts, counts), draw=st.data())
def test_whatever_happens_it_ends_with_one_of_both_shares(
    before: tuple[int, int], after: tuple[int, int], draw: st.DataObject
) -> None:
    """What each node has is known at the end; while the ranks are asked, no node has less than either map needs."""
    if before == after or not sum(before) or not sum(after):
        return
    old, new = enabled(*before), enabled(*after)
    change = Adapting(old, new)
    has = dict(zip(NODES, before, strict=True))
    asked: dict[str, int] = {}
    ends: list[Step] = []

    def do(steps: list[Step]) -> None:
        for step in steps:
            if isinstance(step, Ask):
                asked[step.node] = next(share.procs for share in change.wanted.nodes if share.node == step.node)
            elif isinstance(step, Reshaped | Kept):
                ends.append(step)

    do(change.begin())
    for _ in range(40):
        if ends:
            break
        if change.stage is Stage.ADAPTING:
            assert all(has[node] >= max(old_, new_) for node, old_, new_ in zip(NODES, before, after, strict=True))
        what = draw.draw(st.sampled_from(("answer", "refuse", "offer", "adapt", "time")))
        node = draw.draw(st.sampled_from(NODES))
        if what == "answer" and node in asked:
            has[node] = asked.pop(node)
            do(change.answered(node))
        elif what == "refuse" and node in asked:
            done = draw.draw(st.booleans())
            has[node] = asked.pop(node) if done else has[node]
            do(change.refused(node, "no", unchanged=not done))
        elif what == "offer":
            do(change.offered(node, joined=draw.draw(st.booleans())))
        elif what == "adapt":
            do(change.adapted())
        elif what == "time":
            do(change.timed_out("a while"))
    while not ends:  # nodes are well from now on
        for node in list(asked):
            has[node] = asked.pop(node)
            do(change.answered(node))
        if not ends:
            do(change.timed_out("a while"))
    assert len(ends) == 1
    assert tuple(has.values()) == (after if isinstance(ends[0], Reshaped) else before)
    assert change.stage is Stage.OVER


@pytest.mark.parametrize("what", ["adapted", "offered"])
def test_nothing_that_comes_at_another_time_counts(what: str) -> None:
    change = Adapting(enabled(1, 1), enabled(2, 1))
    assert change.begin() == [Ask("n1")]
    found = change.adapted() if what == "adapted" else change.offered("n1", joined=False)
    assert (found, change.stage) == ([], Stage.ASKING)
    assert change.answered("n1") == [Offer("n1"), Offer("n2")]
