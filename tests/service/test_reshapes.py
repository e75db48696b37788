"""What a running job holds is changed on its nodes, undone where one does not go along, and reported once."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.changing import KEY, NODES, Rules, on

from cosched.model.allocation import Allocation, Share
from cosched.model.job import JobState
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.service.launch.orders import OrderKind
from space_scheduler.service.launch.resizing import Ask, Join, Kept, Leave, Resized, Resizing, Stage, Step
from space_scheduler.service.launch.values import Heard, TimedOut


def test_a_share_is_asked_for_everywhere_and_reported_when_all_have_answered() -> None:
    rules = Rules()
    rules.resize(on(n1=1, n2=2))
    asked = rules.orders()
    assert {name: rules.shape(order) for name, order in asked.items()} == {
        "n1": (1, 1, ("n1", "n2"), 1),
        "n2": (2, 2, ("n1", "n2"), 1),
    }
    rules.answers("n1", asked["n1"])
    rules.answers("n1", asked["n1"])
    assert (rules.posted, rules.timed) == ([], True)
    rules.answers("n2", asked["n2"])
    assert (rules.posted, rules.timed) == ([ev.JobResized(1)], False)
    assert rules.core.launches.attempts[1].tasks == {"n1": 1, "n2": 2}


def test_a_job_is_folded_its_processes_stay_and_have_fewer_processors() -> None:
    rules = Rules()
    rules.resize(Allocation(2, (Share("n1", 2, 1), Share("n2", 2, 1)), 4))
    asked = rules.orders()
    assert {rules.shape(order)[:2] for order in asked.values()} == {(2, 1)}
    for name, order in asked.items():
        rules.answers(name, order)
    assert rules.posted == [ev.JobResized(1)]
    rules.held = rules.core.launches.attempts[1].allocation
    rules.resize(Allocation(0, (Share("n1", 2, 0), Share("n2", 2, 0)), 4))
    asked = rules.orders()
    assert {rules.shape(order)[:2] for order in asked.values()} == {(2, 0)}
    for name, order in asked.items():
        rules.answers(name, order)
    assert rules.posted[1:] == [ev.JobResized(1)]


def test_an_answer_of_the_launch_that_comes_again_is_no_answer_to_a_change() -> None:
    """Its Prepare was given twice. (Found by simulated faults: the share was counted, and had not been changed.)"""
    rules = Rules()
    order = rules.core.launches.orders.of("n1", KEY, OrderKind.PREPARE)
    rules.resize(on(n1=1))
    rules.feed(Heard("n1", wire.Prepared(order)))
    assert list(rules.orders()) == ["n1"]
    assert rules.posted == []


def test_where_tasks_share_cpus_none_are_set_aside() -> None:
    rules = Rules(mpl=2)
    rules.resize(on(n1=1, n2=2))
    assert {rules.shape(order)[1] for order in rules.orders().values()} == {None}


def test_a_node_joins_and_counts_when_it_is_ready() -> None:
    rules = Rules()
    rules.resize(on(n1=2, n2=2, n3=1))
    kinds = [(name, type(each).__name__) for name, each in rules.sent]
    assert kinds == [("n1", "Resize"), ("n2", "Resize"), ("n3", "Discard"), ("n3", "Prepare")]
    asked = rules.orders()
    prepare = asked["n3"]
    assert isinstance(prepare, wire.Prepare)
    assert (prepare.tasks, [peer.name for peer in prepare.peers]) == (1, ["n1", "n2", "n3"])
    for name, order in asked.items():
        rules.answers(name, order)
    assert rules.posted == [ev.JobResized(1)]
    rules.cancel()
    assert {name: type(each) for name, each in rules.orders().items()} == dict.fromkeys(NODES, wire.Kill)


def test_a_node_leaves_when_all_others_have_answered_and_may_join_again() -> None:
    rules = Rules()
    rules.resize(on(n1=3))
    asked = rules.orders()
    assert list(asked) == ["n1"]
    rules.answers("n1", asked["n1"])
    (kill,) = rules.orders().values()
    assert isinstance(kill, wire.Kill)
    assert rules.posted == []
    rules.answers("n2", kill)
    assert rules.posted == [ev.JobResized(1)]
    assert [(name, type(each)) for name, each in rules.sent] == [("n2", wire.Forget), ("n2", wire.Discard)]
    last = rules.orders()["n2"].order.n

    rules.held = on(n1=3)
    rules.resize(on(n1=2, n2=1))
    numbers = [each.order.n for name, each in rules.sent if name == "n2" and isinstance(each, wire.Order)]
    assert last < numbers[0] < numbers[1]
    for name, order in rules.orders().items():
        rules.answers(name, order)
    rules.cancel()
    assert rules.orders()["n2"].order.n > numbers[1], "another Kill than that of before"


@pytest.mark.parametrize(("code", "asks"), [("memory", ["n1"]), ("failed", ["n1", "n2"])])
def test_a_refusal_is_undone_where_it_may_have_been_obeyed(code: str, asks: list[str]) -> None:
    """A guard that went before it had answered may have done it."""
    rules = Rules()
    rules.resize(on(n1=3, n2=1, n3=1))
    asked = rules.orders()
    rules.answers("n1", asked["n1"])
    rules.answers("n3", asked["n3"])
    rules.refuses("n2", asked["n2"], code)
    back = rules.orders()
    assert {name: type(order) for name, order in back.items()} == dict.fromkeys(asks, wire.Resize) | {"n3": wire.Kill}
    assert all(rules.shape(back[name]) == (2, 2, ("n1", "n2"), 2) for name in asks)
    assert rules.posted == [], "not before it holds for certain what it held"
    rules.answers("n2", asked["n2"])
    rules.refuses("n2", asked["n2"], code)
    for name, order in back.items():
        assert rules.posted == []
        rules.answers(name, order)
    assert rules.posted == [ev.ResizeFailed(1, "n2 refused: it has none")]
    assert rules.core.launches.attempts[1].gang.nodes == ("n1", "n2")
    assert rules.core.launches.attempts[1].allocation == rules.held


def test_what_is_not_answered_in_time_is_undone_and_a_late_answer_changes_nothing() -> None:
    rules = Rules()
    rules.resize(on(n1=1, n2=1))
    asked = rules.orders()
    rules.answers("n1", asked["n1"])
    rules.feed(TimedOut(KEY))
    back = rules.orders()
    rules.answers("n2", asked["n2"])
    rules.answers("n1", back["n1"])
    assert rules.posted == []
    rules.feed(TimedOut(KEY))
    again = rules.orders()
    assert list(again) == ["n2"], "who is late with the old share is asked again"
    assert again["n2"].order.n > back["n2"].order.n > asked["n2"].order.n
    rules.answers("n2", back["n2"])
    assert rules.posted == []
    rules.answers("n2", again["n2"])
    assert rules.posted == [ev.ResizeFailed(1, "no answer within 1 min from n2")]


def test_a_node_that_calls_again_is_asked_again_under_the_same_number() -> None:
    rules = Rules()
    rules.resize(on(n1=2, n2=1, n3=1))
    asked = rules.orders()
    rules.answers("n2", asked["n2"])
    rules.come("n1", "running")
    rules.come("n2", "prepared")
    rules.come("n3", "prepared")
    again = rules.orders()
    assert {name: each.order for name, each in again.items()} == {name: asked[name].order for name in ("n1", "n3")}
    rules.answers("n1", again["n1"])
    rules.come("n3")  # it was never there: what was sent is lost
    to_n3 = [each for name, each in rules.sent if name == "n3" and isinstance(each, wire.Order)]
    assert [type(each) for each in to_n3 if each.order.job_id == 1] == [wire.Discard, wire.Prepare]
    rules.answers("n3", rules.orders()["n3"])
    assert rules.posted == [ev.JobResized(1)]


def test_a_machine_that_was_started_anew_while_it_joined_is_not_awaited() -> None:
    rules = Rules()
    rules.resize(on(n1=2, n2=2, n3=1))
    rules.orders()
    rules.come("n3", "prepared", rebooted=True)
    for name, order in rules.orders().items():
        rules.answers(name, order)
    assert rules.posted == [ev.ResizeFailed(1, "n3 refused: it was started anew")]


def test_a_scheduler_that_starts_anew_goes_on_with_what_was_under_way() -> None:
    new = on(n1=1, n3=1)
    rules = Rules(resizing=new, come=False)
    rules.come("n1", "running")
    rules.come("n2", "prepared")
    assert rules.orders() == {}, "n3 has not said where it is"
    rules.come("n3", "prepared")
    asked = rules.orders()
    assert {name: type(each) for name, each in asked.items()} == {"n1": wire.Resize, "n3": wire.Prepare}
    for name, order in asked.items():
        rules.answers(name, order)
    (kill,) = rules.orders().items()
    rules.answers(*kill)
    assert rules.posted == [ev.JobResized(1)]


@pytest.mark.parametrize("new", [on(n2=2), on(n2=1, n1=1)])
def test_the_scripts_node_stays_the_first(new: Allocation) -> None:
    rules = Rules()
    rules.resize(new)
    assert rules.posted == [ev.ResizeFailed(1, "its script runs on n1, which has to be the first of its nodes")]
    assert rules.orders() == {}


@pytest.mark.parametrize("end", ["cancelled", "ended", "lost"])
def test_a_job_that_ends_meanwhile_ends_on_every_node_and_nothing_else_is_reported(end: str) -> None:
    rules = Rules()
    rules.resize(on(n1=1, n2=1, n3=1))
    asked = rules.orders()
    rules.answers("n1", asked["n1"])
    if end == "cancelled":
        rules.cancel()
    elif end == "ended":
        rules.feed(Heard("n1", wire.ProgramEnded(1, 1, wire.Exit(0))))
    else:
        rules.core.launches.lost(rules.core.book.entry("n2"))
        rules.feed(Heard("n1", wire.GroupEnded(98, 1)))
    kills = {name: order for name, order in rules.orders().items() if isinstance(order, wire.Kill)}
    assert list(kills) == (["n1", "n3"] if end == "lost" else ["n1", "n2", "n3"])
    assert not rules.timed
    rules.answers("n2", asked["n2"])
    rules.refuses("n3", asked["n3"])
    rules.feed(TimedOut(KEY))
    for name, order in kills.items():
        rules.answers(name, order)
    outcome = {"cancelled": JobState.CANCELLED, "ended": JobState.COMPLETED, "lost": JobState.NODE_LOST}[end]
    assert [each for each in rules.posted if not isinstance(each, ev.NodeLost)] == [ev.JobEnded(1, outcome)]


# --- one change by itself, and whatever happens to it ------------------------------------------------------------

shapes = st.dictionaries(st.sampled_from(("n2", "n3", "n4")), st.integers(1, 3)).map(lambda more: on(n1=1, **more))
happenings = st.lists(
    st.tuples(
        st.sampled_from(("answers", "refuses", "is late", "calls again", "has left")),
        st.sampled_from(("n1", "n2", "n3", "n4")),
        st.booleans(),
    ),
    max_size=40,
)


def happens(change: Resizing, what: str, node: str, yes: bool) -> list[Step]:
    done: dict[str, Callable[[], list[Step]]] = {
        "answers": lambda: change.answered(node),
        "has left": lambda: change.answered(node),
        "refuses": lambda: change.refused(node, "no", unchanged=yes),
        "is late": lambda: change.timed_out("1 min"),
        "calls again": lambda: change.again(node, has_it=yes),
    }
    return done[what]()


@given(old=shapes, new=shapes, history=happenings)
def test_whatever_happens_one_end_is_reported_once(
    old: Allocation, new: Allocation, history: list[tuple[str, str, bool]]
) -> None:
    change = Resizing(old, new)
    steps = change.begin()
    before, after = {share.node for share in old.nodes}, {share.node for share in new.nodes}
    for what, node, yes in history:
        if change.stage is not Stage.OVER:
            steps += happens(change, what, node, yes)
    for _ in range(2):
        for node in sorted(before | after):
            if change.stage is not Stage.OVER:
                steps += change.answered(node)
    assert change.stage is Stage.OVER
    ends = [step for step in steps if isinstance(step, Resized | Kept)]
    assert ends == steps[-1:]
    left = {step.node for step in steps if isinstance(step, Leave)}
    joined = {step.node for step in steps if isinstance(step, Join)}
    asked = {step.node for step in steps if isinstance(step, Ask)}
    assert joined <= after - before
    assert asked <= before & after
    assert left == ((before - after) if isinstance(ends[0], Resized) else joined)
