"""A scheduler that is cut off from a whole lab: whose jobs are lost, whose go on, and how they are adopted."""

from collections.abc import Callable
from contextlib import AsyncExitStack

import pytest
from kit.service import Cluster, running
from service.test_service_core import Rules, posted, sent

from cosched.model.job import JobState
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Kill
from space_scheduler.reasons import CANCELLED
from space_scheduler.service.core.worker import Post
from space_scheduler.service.launch.values import Effect, Heard, InJournal, Removed, Say

#: n1 is in the scheduler's own lab, n2 and n3 are in the other.
LABS = {"n1": "a", "n2": "b", "n3": "b"}


def labs(*on: str, of: dict[str, str] = LABS) -> Rules:
    """Job 1 runs on these of the nodes, all of which are in service."""
    rules = Rules(JobState.RUNNING, *on, others=tuple(LABS.keys() - set(on)))
    for name in LABS:
        comes(rules, name, of)
    return rules


def comes(rules: Rules, name: str, of: dict[str, str] = LABS) -> list[Effect]:
    """A node calls, with what it has of the job."""
    there = [wire.GroupReport(1, 1, "running", 1)] if name in rules.core.launches.attempts[1].gang.nodes else []
    return rules.journalled(rules.comes(name, *there, cluster=of[name]))


def end(effects: list[Effect]) -> tuple[JobState, str | None, str]:
    """How the job has ended: its state, and the node and the message that its user is told."""
    (post,) = [each for each in effects if isinstance(each, Post) and isinstance(each.event, ev.JobEnded)]
    assert isinstance(post.event, ev.JobEnded)
    failure = post.facts and post.facts.failure
    return (post.event.outcome, failure.node, failure.message) if failure else (post.event.outcome, None, "")


def test_a_job_wholly_there_goes_on_and_is_adopted() -> None:
    rules = labs("n2", "n3")
    told = rules.passes(6, "n1")
    assert posted(told, ev.NodeCutOff) == [ev.NodeCutOff("n2"), ev.NodeCutOff("n3")]
    assert (posted(told, ev.JobEnded), sent(told, wire.Kill)) == ([], [])
    assert [each.fields["todo"] for each in told if isinstance(each, Say) and each.what == "job cut off"] == [
        "it goes on there"
    ]
    back = [*comes(rules, "n2"), *comes(rules, "n3"), *rules.passes(6, "n1", "n2", "n3")]
    assert (sent(back, wire.Prepare), sent(back, wire.Kill), posted(back, ev.JobEnded)) == ([], [], [])
    rules.feed(Heard("n2", wire.ProgramEnded(1, 1, wire.Exit(status=0))))
    rules.feed(Heard("n2", wire.GroupEnded(1, 1)))
    assert end(rules.feed(Heard("n3", wire.GroupEnded(1, 1))))[0] is JobState.COMPLETED


def test_a_job_across_labs_has_lost_a_node() -> None:
    rules = labs("n1", "n2")
    assert set(sent(rules.passes(6, "n1"), wire.Kill)) == {("n1", 1)}
    assert end(rules.feed(Heard("n1", wire.GroupEnded(1, 1))))[:2] == (JobState.NODE_LOST, "n2")


@pytest.mark.parametrize("of", [LABS, dict.fromkeys(LABS, "")], ids=["one node alone", "the one lab"])
def test_nodes_that_are_no_whole_lab_of_several_are_lost_with_their_jobs(of: dict[str, str]) -> None:
    rules = labs("n2", "n3", of=of)
    heard = ["n1", "n3"] if of is LABS else []
    told = rules.passes(6, *heard)
    assert {event.name for event in posted(told, ev.NodeLost)} == LABS.keys() - set(heard)
    told += rules.feed(Heard("n3", wire.GroupEnded(1, 1)))
    assert end(told)[:2] == (JobState.NODE_LOST, "n2")


def test_a_node_that_does_not_come_back_with_its_lab_is_lost() -> None:
    rules = labs("n2", "n3")
    rules.passes(6, "n1")
    comes(rules, "n2")
    assert posted(rules.passes(3, "n1", "n2"), ev.JobEnded) == []
    told = rules.passes(3, "n1", "n2")
    assert end([*told, *rules.feed(Heard("n2", wire.GroupEnded(1, 1)))])[:2] == (JobState.NODE_LOST, "n3")


def test_a_job_cancelled_meanwhile_has_ended_and_is_ended_there_when_the_lab_is_back() -> None:
    rules = labs("n2", "n3")
    rules.passes(6, "n1")
    cancelled = ev.JobCancelled(1)
    told = rules.journalled(rules.feed(InJournal(cancelled, (Kill(1, cancelled, CANCELLED),))))
    assert end(told)[0] is JobState.CANCELLED
    back = rules.comes("n2", wire.GroupReport(1, 1, "running", 1), cluster="b")
    assert sent(back, wire.Kill) == [("n2", 1)]


def test_an_operator_who_removes_a_node_of_it_ends_the_wait() -> None:
    rules = labs("n2", "n3")
    rules.passes(6, "n1")
    assert end(rules.feed(Removed("n2")))[0] is JobState.NODE_LOST


def test_it_is_not_waited_for_longer_than_it_may_run() -> None:
    rules = labs("n2", "n3")
    assert posted(rules.passes(64, "n1"), ev.JobEnded) == []
    told = rules.passes(9, "n1")
    assert end(told) == (JobState.NODE_LOST, "n2", "it was cut off for longer than its time limit")


async def test_a_scheduler_that_is_started_anew_meanwhile_waits_for_it_too(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(lease="5s")
    async with running(cluster, still=True) as service, AsyncExitStack() as stack:
        first, _, _ = [await stack.enter_async_context(service.agent(name, cluster=LABS[name])) for name in LABS]
        job_id = await service.submit(tasks=3)
        assert {share.name for share in (await service.job_in(job_id, "running")).nodes} == {"n2", "n3"}
        await service.passes(6, first)
        states = {node["name"]: node["state"] for node in (await service.get("/v1/nodes"))["nodes"]}
        assert states == {"n1": "up", "n2": "lost", "n3": "lost"}
    async with running(cluster, still=True) as service, AsyncExitStack() as stack:
        first = await stack.enter_async_context(service.agent("n1", cluster="a"))
        await service.passes(7, first)
        assert (await service.job(job_id)).state == "running"
        there = (wire.GroupReport(job_id, 1, "running", 2),)
        back = [
            await stack.enter_async_context(service.agent(name, cluster="b", groups=there)) for name in ("n2", "n3")
        ]
        await service.passes(6, first, *back)
        assert (await service.job(job_id)).state == "running"
        assert not back[0].heard_already(wire.Run)
