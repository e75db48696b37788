"""The reasons of policies of jobs that change shape, as ``explain`` gives them and as people read them."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from kit.carried_out import Machine
from kit.drive import happen
from kit.service import Cluster, running

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from cosched.model.node import Node
from cosched.model.width import Range
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Kill, Resize
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.api.documents import worded

S = 1_000_000


def when(core_us: int) -> datetime:
    return datetime(2026, 11, 21, tzinfo=UTC) + timedelta(microseconds=core_us)


def said(state: SchedulerState, job_id: int) -> str:
    return worded(state.explain(job_id), when)


def machine(policy: str) -> Machine:
    """Sixteen processors."""
    return Machine(procs=16, policy=policy, ends_killed=True)


def rigid(number: int, procs: int, estimate_s: int, *, foldable: bool = True) -> Job:
    return Job(number, procs, estimate_s * S, 0, foldable=foldable)


def folding(policy: str = "fjt1+bfm", *, foldable: bool = True) -> Machine:
    """3 is backfilled while 2 waits for 1; when 1 has ended everybody that runs was backfilled, and 2 needs room."""
    made = machine(policy)
    made.submit(0, rigid(1, 8, 50), rigid(2, 14, 60), rigid(3, 8, 200, foldable=foldable))
    return made


def test_moulded_folded_and_unfolded() -> None:
    made = folding()
    assert said(made.state, 1) == (
        "fits: the next job in order, and enough processors are free "
        "(job 2 waits for it, 8 processes on 8 processors, free_procs=16)"
    )
    assert said(made.state, 3) == (
        "backfilled: moulded to what is free while the head of the queue waits "
        "(8 processes on 8 processors, free_procs=8)"
    )
    made.happen(50, ev.JobEnded(1))
    assert said(made.state, 3) == (
        "folded: its processes share fewer processors, so that the head of the queue can start "
        "(8 processes on 2 processors, head=2)"
    )
    assert made.state.records[3].allocation == Allocation(2, folded=8)
    made.happen(110, ev.JobEnded(2))
    assert said(made.state, 3) == (
        "unfolded: processors are free for processes that shared one (8 processes on 8 processors)"
    )


def test_the_head_is_told_that_nobody_may_be_folded() -> None:
    made = folding(foldable=False)
    assert made.state.explain(2).why is Why.WINDOW_OPEN
    made.happen(50, ev.JobEnded(1))
    assert said(made.state, 2) == (
        "jobs before which it waits may not be folded, or compute while they wait for messages "
        "(waits for job 3, procs=14, free_procs=8)"
    )
    made.submit(51, rigid(4, 16, 10))
    assert made.state.explain(4).why is Why.NOT_ENOUGH_FREE


def test_head_that_has_no_room_whatever_is_ended_names_no_job() -> None:
    made = folding("fjt1+bfa")
    made.happen(50, ev.NodesDrained(4), ev.JobEnded(1))
    assert 3 in made.state.records, "12 processors are in service, and job 2 wants 14"
    assert (made.state.explain(2).why, made.state.explain(2).numbers.get("blocking_job")) == (Why.NOT_ENOUGH_FREE, None)


def test_head_names_the_job_started_in_order_that_keeps_windows_from_expiring() -> None:
    made = folding()
    window = "jobs that were started in order run: room is made for it when backfilled jobs alone run "
    assert said(made.state, 2) == f"{window}(waits for job 1, procs=14, free_procs=0)"
    assert said(made.state, 1).endswith("(job 2 waits for it, 8 processes on 8 processors, free_procs=16)")
    assert "waits" not in said(made.state, 3).partition("(")[2]


def test_head_names_the_job_with_one_process_on_each_node_that_cannot_be_folded() -> None:
    state = SchedulerState(resolve("fjt1+bfm"))
    nodes = [ev.NodeJoined(Node(name, 1, 100)) for name in "abcd"]
    happen(state, 0, *nodes, *map(ev.JobSubmitted, (rigid(1, 2, 50), rigid(2, 4, 60), rigid(3, 2, 200))))
    happen(state, 10, ev.JobEnded(1))
    assert said(state, 2) == (
        "jobs before which it waits cannot be folded further: a node keeps a processor for its processes "
        "(waits for job 3, procs=4, free_procs=2)"
    )
    assert "(job 2 waits for it, " in said(state, 3)


def test_head_of_equipartition_names_the_job_whose_end_makes_its_minimum_fit() -> None:
    made = machine("equipartition")
    made.submit(0, rigid(1, 8, 90), rigid(2, 4, 20), rigid(3, 8, 10))
    assert said(made.state, 3) == (
        "its minimum does not fit beside the minima of all that run "
        "(waits for job 2, 8 processors, 8 at least, spare_procs=4, free_procs=4)"
    )
    assert "(job 3 waits for it, " in said(made.state, 2)
    assert "waits" not in said(made.state, 1)


def test_waiting_job_and_the_one_that_has_not_shrunk_name_each_other() -> None:
    """The first comes to no safe point: it was told to shrink, and has not answered."""
    state = SchedulerState(resolve("equipartition"))
    nodes = [ev.NodeJoined(Node(name, 1, 100)) for name in "abcd"]
    blocker = Job(1, 4, 100 * S, 0, shape=Range(1, 4, malleable=True, resident=True))
    happen(state, 0, *nodes, ev.JobSubmitted(blocker))
    happen(state, 2, ev.JobSubmitted(rigid(2, 2, 10)))
    assert said(state, 2) == (
        "starts when jobs that shrink or are ended have given back what it needs "
        "(waits for job 1, 2 processors, 2 at least)"
    )
    assert said(state, 1) == (
        "shrunk: others need some of its processors (job 2 waits for it, 2 of its 4 processes work, 4 before)"
    )
    happen(state, 3, ev.JobResized(1))
    assert "waits" not in said(state, 1) + said(state, 2)


def test_so_many_of_its_processes_work() -> None:
    made = machine("equipartition")
    made.submit(0, Job(1, 16, 100 * S, 0, shape=Range(4, 16, malleable=True, resident=True)))
    assert said(made.state, 1) == (
        "admitted: its minimum fits beside the minima of all that run (16 of its 16 processes work, 4 at least)"
    )
    made.submit(10, rigid(2, 12, 10))
    assert said(made.state, 1) == ("shrunk: others need some of its processors (4 of its 16 processes work, 16 before)")


def test_ended_to_make_room() -> None:
    made = folding("fjt1+bfa")
    made.happen(50, ev.JobEnded(1))
    (kill,) = [each for each in made.told if isinstance(each, Kill)]
    assert worded(kill.reason, when) == (
        "ended to make room, and waits again in its old place: it runs from its beginning (8 processes)"
    )
    assert made.state.explain(3).why is Why.WINDOW_OPEN


def test_admitted_shrunk_and_widened() -> None:
    made = machine("equipartition")
    wide = Range(4, 16, malleable=True)
    made.submit(0, Job(1, 16, 100 * S, 0, shape=wide))
    assert said(made.state, 1) == (
        "admitted: its minimum fits beside the minima of all that run (16 processors, 4 at least)"
    )
    made.submit(10, rigid(2, 6, 10))
    assert said(made.state, 1) == "shrunk: others need some of its processors (10 processors, 16 before)"
    assert said(made.state, 2) == (
        "admitted: its minimum fits beside the minima of all that run (6 processors, 6 at least)"
    )
    made.happen(20, ev.JobEnded(2))
    assert said(made.state, 1) == "widened: processors are free that it can use (16 processors, 10 before)"


@pytest.mark.parametrize(
    ("asks", "policy", "words"),
    [
        (4, "equipartition", "given what it asked for while it ran (asked for +4 processes, given +4)"),
        (8, "equipartition(part)", "given what it asked for while it ran (asked for +8 processes, given +6)"),
        (-2, "equipartition", "given what it asked for while it ran (asked for -2 processes, given -2)"),
        (8, "equipartition", "beside the minima of others: it keeps what it has (asked for +8 processes, given +0)"),
        (8, "equipartition(wait)", "it is not free beside the minima of others (asked for +8 processes, given +0)"),
    ],
)
def test_answers_to_an_evolving_job(asks: int, policy: str, words: str) -> None:
    made = machine(policy)
    made.submit(0, Job(1, 4, 100 * S, 0, shape=Range(4, 4, malleable=True, ask_more=12, ask_fewer=3)), rigid(2, 6, 99))
    made.happen(10, ev.ResizeAsked(1, asks))
    answers = [each.reason for each in made.told if getattr(each, "job_id", 0) == 1 and hasattr(each, "reason")]
    assert any(worded(reason, when).endswith(words) for reason in answers), [worded(each, when) for each in answers]


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (Reason(Why.WIDER_THAN_MACHINE, {"procs": 9, "machine_procs": 4}), "(procs=9, machine_procs=4)"),
        (Reason(Why.RESERVED_LATER, {"promised_us": S}), "(promised=2026-11-21T00:00:01.000+00:00)"),
        (Reason(Why.RESIZE_REFUSED), "could not be resized, or nodes are away"),
    ],
)
def test_other_reasons_are_said_as_ever(reason: Reason, words: str) -> None:
    assert worded(reason, when).endswith(words)


SHRINKS = '''
from space_scheduler.policy.interface import Plan, PlannedResize, PlannedStart
from space_scheduler.policy.reshape.resident import shrunk
from space_scheduler.policy.order import fcfs
from space_scheduler.reasons import Reason, Why


class Shrinks:
    """Starts each job as it is, and shrinks it once."""

    memory_type = int
    order = staticmethod(fcfs)

    def plan(self, snapshot):
        starts = [PlannedStart(job, Reason(Why.FITS)) for job in snapshot.queue]
        able = [each for each in snapshot.running() if each.resizable] if not snapshot.memory else []
        shrinks = [PlannedResize(each.job, Reason(Why.SHRUNK), shrunk(each.allocation, 1)) for each in able]
        return Plan([*starts, *shrinks], 1 if shrinks else snapshot.memory or 0)
'''


async def test_a_job_that_runs_is_shown_with_what_was_decided_since(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    """A policy of one's own that resizes is told that a node does not: so are its jobs' users."""
    (tmp_path / "shrinks.py").write_text(SHRINKS)
    cluster = make_cluster(policy="shrinks:Shrinks", policy_directory=str(tmp_path))
    async with running(cluster) as service, service.agent("n1") as agent:
        agent.refuses = {wire.Resize: "stale"}
        await agent.beat()
        job_id = await service.submit(min_tasks=1, max_tasks=2)
        started = await service.job_in(job_id, "running")
        assert started.tasks == 2
        await service.logged('"resize failed"')
        shown = await service.job(job_id)
        assert shown.reason is not None
        assert shown.reason.why == "resize_refused"
        assert sum(share.tasks for share in shown.nodes) == 2


def test_the_reasons_of_instructions_are_the_decisions_own() -> None:
    """What the host is told to do has the same reason as the job that it is done to."""
    made = folding()
    made.happen(50, ev.JobEnded(1))
    resizes: Sequence[Resize] = [each for each in made.told if isinstance(each, Resize)]
    assert [each.reason for each in resizes] == [made.state.records[3].reason]
