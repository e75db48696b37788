"""What a node says of its owner's word: what the core hears of it, and how a job ends that was ended there."""

from operator import methodcaller
from typing import Any

import msgspec
import pytest
from service.test_gang import empty_all, ended, orders, running
from service.test_service_core import Rules, sent

from cosched.config.cluster import ClusterConfig
from cosched.errors import BadInput
from cosched.model.job import JobState
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Kill
from space_scheduler.reasons import CANCELLED, Reason, Why
from space_scheduler.service.api.desks import paused_on
from space_scheduler.service.core.worker import Post
from space_scheduler.service.launch.gang import BY_OWNER, Gang
from space_scheduler.service.launch.orders import OrderKind
from space_scheduler.service.launch.values import Connected, Effect, Heard, InJournal, OwnerSaid, Ticked

RUNS = wire.GroupReport(1, 1, "running", 2)
MESSAGE = "the owner of n2 has ended it there"


def posted(effects: list[Effect]) -> list[Any]:
    return [each.event for each in effects if isinstance(each, Post)]


def two() -> Rules:
    """A job that runs on two nodes, both of them in service."""
    rules = Rules(JobState.RUNNING, "n1", "n2")
    for name in ("n1", "n2"):
        for event in posted(rules.comes(name, RUNS)):
            rules.feed(InJournal(event))
    return rules


def test_bans_and_a_share_are_the_nodes_terms_and_told_once() -> None:
    rules = two()
    (joined,) = posted(rules.feed(OwnerSaid("n1", wire.OwnersWord(0.25, ("bob",)), (1002,))))
    assert isinstance(joined, ev.NodeJoined)
    assert (joined.node.bans, joined.node.owned_cpu_permille) == ((1002,), 250)
    assert posted(rules.feed(OwnerSaid("n1", wire.OwnersWord(0.25, ("bob",)), (1002,)))) == []
    rules.feed(InJournal(joined))
    assert posted(rules.feed(OwnerSaid("n1", wire.OwnersWord(0.25, ("bob",)), (1002,)))) == []
    (taken_back,) = posted(rules.feed(OwnerSaid("n1", wire.NO_WORD)))
    assert isinstance(taken_back, ev.NodeJoined)
    assert (taken_back.node.bans, taken_back.node.owned_cpu_permille) == ((), 500)


def test_an_agent_that_goes_back_and_forth_fills_no_history() -> None:
    """One change after the other, few in a heartbeat's time; the last word is what the core knows in the end."""
    rules = two()
    words = [(wire.OwnersWord(bans=("bob",)), (1002,)), (wire.NO_WORD, ())] * 50
    words.append((wire.OwnersWord(bans=("eve",)), (1003,)))
    waiting: list[Any] = []
    for word, banned in words:
        waiting += posted(rules.feed(OwnerSaid("n1", word, banned)))
        assert len(waiting) == 1, "until it is in the journal"
    told = []
    while waiting:
        told.append(event := waiting.pop(0))
        waiting += posted(rules.feed(InJournal(event)))
    for word, banned in words:
        for event in posted(rules.feed(OwnerSaid("n1", word, banned))):
            told.append(event)
            told += posted(rules.feed(InJournal(event)))
    assert len(told) == 2
    (last,) = posted(rules.feed(Ticked())) or told[-1:]
    assert isinstance(last, ev.NodeJoined)
    assert last.node.bans == (1003,)
    rules.feed(InJournal(last))
    assert posted(rules.feed(Ticked())) == []


def test_a_share_above_the_contract_changes_nothing() -> None:
    assert posted(two().feed(OwnerSaid("n1", wire.OwnersWord(1.0)))) == []


def test_a_word_that_comes_first_of_all_holds_from_the_start() -> None:
    """No moment in which the node is in service without it."""
    rules = Rules()
    hello = wire.Hello(wire.VERSION, "n1", "boot", 2, 1 << 30, "127.0.0.1", 1, "test", groups=(RUNS,), session=b"s" * 8)
    rules.feed(Connected("n1", hello, b"t" * 8))
    (joined,) = posted(rules.feed(OwnerSaid("n1", wire.OwnersWord(bans=("bob",)), (1002,))))
    assert isinstance(joined, ev.NodeJoined)
    assert joined.node.bans == (1002,)


def test_who_is_not_connected_says_nothing() -> None:
    assert Rules().feed(OwnerSaid("n1", wire.OwnersWord(bans=("bob",)), (1002,))) == []


def test_a_job_that_is_ended_at_one_desk_ends_everywhere_and_is_sent_away() -> None:
    rules = two()
    word = wire.OwnersWord(ended=((1, 1), (7, 1), (1, 9)))
    assert sent(rules.feed(OwnerSaid("n2", word)), wire.Kill) == [("n1", 1), ("n2", 1)]
    assert sent(rules.feed(OwnerSaid("n2", word)), wire.Kill) == []
    rules.feed(Heard("n2", wire.GroupEnded(1, 1)))
    told = rules.feed(Heard("n1", wire.GroupEnded(1, 1)))
    assert posted(told) == [ev.JobSentAway(1, "n2")]
    (post,) = [each for each in told if isinstance(each, Post)]
    assert post.note == MESSAGE
    assert post.facts is not None
    assert post.facts.failure is not None
    assert (post.facts.failure.message, post.facts.failure.node) == (MESSAGE, "n2")
    forgotten = rules.feed(InJournal(ev.JobSentAway(1, "n2")))
    assert sent(forgotten, wire.Forget) == [("n1", 1), ("n2", 1)]


def test_who_cancels_a_job_that_an_owner_has_ended_has_it_cancelled() -> None:
    """It does not start again, though it would wait again after its owner's word."""
    rules = two()
    rules.feed(OwnerSaid("n2", wire.OwnersWord(ended=((1, 1),))))
    rules.feed(InJournal(ev.JobCancelled(1), (Kill(1, ev.JobCancelled(1), CANCELLED),)))
    rules.feed(Heard("n2", wire.GroupEnded(1, 1)))
    assert posted(rules.feed(Heard("n1", wire.GroupEnded(1, 1)))) == [ev.JobEnded(1, JobState.CANCELLED)]


def test_who_cancels_a_job_that_a_plan_ends_too_has_it_cancelled() -> None:
    """The core gives no order then: it has given one."""
    rules = two()
    rules.feed(OwnerSaid("n2", wire.OwnersWord(ended=((1, 1),))))
    rules.feed(InJournal(ev.Boundary(), (Kill(1, ev.Boundary(), Reason(Why.REQUEUED)),)))
    rules.feed(InJournal(ev.JobCancelled(1)))
    rules.feed(Heard("n2", wire.GroupEnded(1, 1)))
    assert posted(rules.feed(Heard("n1", wire.GroupEnded(1, 1)))) == [ev.JobEnded(1, JobState.CANCELLED)]


# --- the launch of a job ----------------------------------------------------------------------------------------------


def test_a_script_that_fails_because_ranks_have_vanished_was_ended_by_the_owner() -> None:
    gang = running()
    assert gang.program_ended("n1", wire.Exit(status=1)) == orders(OrderKind.KILL, "n1", "n2", "n3")
    assert gang.ended_by_owner("n2") == []
    end = ended(empty_all(gang))
    assert (end.outcome, end.message, end.node, end.code) == (JobState.NODE_LOST, MESSAGE, "n2", BY_OWNER)


def test_on_the_first_node_the_script_itself_says_whose_word_it_was() -> None:
    gang = running()
    assert gang.program_ended("n1", wire.Exit(signal=15, cause="owner")) == orders(OrderKind.KILL, "n1", "n2", "n3")
    end = ended(empty_all(gang))
    assert (end.outcome, end.node, end.code) == (JobState.NODE_LOST, "n1", BY_OWNER)
    late = running()
    late.emptied("n1")
    for node in ("n2", "n3"):
        late.emptied(node)
    end = ended(late.program_ended("n1", wire.Exit(signal=15, cause="owner")))
    assert (end.outcome, end.node, end.code) == (JobState.NODE_LOST, "n1", BY_OWNER)


@pytest.mark.parametrize(
    ("how", "outcome"), [(JobState.CANCELLED, JobState.CANCELLED), (JobState.TIMED_OUT, JobState.TIMED_OUT)]
)
def test_what_was_ended_for_another_reason_keeps_that(how: JobState, outcome: JobState) -> None:
    gang = running()
    gang.kill(how)
    assert gang.ended_by_owner("n2") == []
    assert ended(empty_all(gang)).outcome is outcome


def test_a_cancellation_goes_over_the_loss_of_a_node_and_an_owners_word_and_over_no_other_end() -> None:
    for ends in (methodcaller("lost", "n2", "n2 was not heard"), methodcaller("ended_by_owner", "n2")):
        gang = running()
        ends(gang)
        assert gang.cancel() == []
        end = ended(empty_all(gang))
        assert (end.outcome, end.message, end.node, end.code) == (JobState.CANCELLED, "", None, "")
    gang = running()
    gang.kill(JobState.TIMED_OUT)
    assert gang.cancel() == []
    assert ended(empty_all(gang)).outcome is JobState.TIMED_OUT


def test_what_is_told_of_an_end_is_of_one_cause() -> None:
    """A node was lost first; that an owner ends what is left elsewhere is not why the job has ended."""
    gang = running()
    gang.lost("n2", "n2 was not heard for 10 s")
    gang.program_ended("n1", wire.Exit(signal=15, cause="owner"))
    gang.emptied("n3")
    end = ended(gang.emptied("n1"))
    assert (end.outcome, end.message, end.node, end.code) == (
        JobState.NODE_LOST, "n2 was not heard for 10 s", "n2", "",
    )  # fmt: skip
    gang = running()
    gang.emptied("n1")
    gang.program_ended("n1", wire.Exit(signal=15, cause="owner"))
    end = ended([*gang.emptied("n2"), *gang.emptied("n3")])
    assert (end.message, end.node, end.code) == ("the owner of its first node has ended it there", "n1", BY_OWNER)


def test_a_launch_that_the_owner_ends_is_tried_elsewhere() -> None:
    gang = Gang(("n1", "n2"))
    gang.begin()
    gang.prepared("n1")
    assert gang.ended_by_owner("n2") == orders(OrderKind.KILL, "n1", "n2")
    end = ended(empty_all(gang))
    assert (end.outcome, end.unrun, end.blamed, end.code) == (JobState.LAUNCH_FAILED, True, ("n2",), BY_OWNER)


# --- the message ------------------------------------------------------------------------------------------------------


def test_what_cannot_be_a_word_is_refused() -> None:
    frame = msgspec.msgpack.encode
    good = {"type": "OwnersWord", "cpu_ratio": 0.5, "bans": ["bob"], "ended": [[1, 1]]}
    assert wire.from_agent(frame(good)) == wire.OwnersWord(0.5, ("bob",), ((1, 1),))
    for bad in (
        {"cpu_ratio": 0}, {"cpu_ratio": 2}, {"cpu_ratio": "much"}, {"bans": [""]}, {"bans": ["a" * 65]},
        {"bans": ["u"] * 33}, {"ended": [[1, 1]] * 129}, {"ended": [[1]]}, {"more": 1},
    ):  # fmt: skip
        with pytest.raises(BadInput):
            wire.from_agent(frame(good | bad))


def test_where_nothing_was_said_nothing_new_is_on_the_link() -> None:
    assert wire.encode(wire.NO_WORD) == msgspec.msgpack.encode({"type": "OwnersWord"})


# --- what users are told ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("node", "stands"), [("n1", True), ("n2", False)])
def test_a_pause_is_told_to_the_jobs_user_with_what_becomes_of_its_limit(node: str, stands: bool) -> None:
    rules = two()
    record = rules.core.launches.attempts[1].record
    config = ClusterConfig(name="c", nodes=["n1", "n2"])
    assert paused_on(record, rules.core.book, config) == []
    rules.feed(
        Heard(node, wire.Heartbeat(Usage(), Presence.PRESENT, paused="ann has paused parallel work at this desk"))
    )
    (found,) = paused_on(record, rules.core.book, config)
    assert (found.node, found.reason, found.limit_stands) == (node, "ann has paused parallel work at this desk", stands)
    ended_record = msgspec.structs.replace(record, state=JobState.COMPLETED)
    assert paused_on(ended_record, rules.core.book, config) == []
