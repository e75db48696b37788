"""The list of all that is set aside: each source's row by the rule alone, who sees which, and a real service's list."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from kit.service import ME, Cluster, Running, running

from cosched.config.cluster import ClusterConfig
from cosched.model.job import Job, JobState
from cosched.model.node import Node
from cosched.model.stall import Stall, StalledProcess
from cosched.wire import messages as wire
from cosched.wire.api import SetAsideDoc, SetAsideList, Submission
from space_scheduler.eligibility.set_aside import AGAIN, SetAside
from space_scheduler.machine import events as ev
from space_scheduler.reasons import HELD, Reason, Why
from space_scheduler.service.access.callers import Caller
from space_scheduler.service.api.set_aside import Known, for_caller, set_aside
from space_scheduler.service.journal.records import JobRecord, Transition, View
from space_scheduler.service.launch.nodes import ASLEEP, NodeBook
from space_scheduler.service.launch.owners import BY_ITS_OWNER, PAUSED, STALLED

S = 1_000_000
BEGAN = datetime(2026, 11, 27, tzinfo=UTC)
ANN, BOB, ROOT = Caller("ann"), Caller("bob"), Caller("root", operator=True)


def at(core_us: int) -> str:
    return (BEGAN + timedelta(microseconds=core_us)).isoformat(timespec="milliseconds")


def record(number: int, user: str, state: JobState, *history: Transition) -> JobRecord:
    submission = Submission(script="#!/bin/sh\n", directory="/", tasks=1)
    job = Job(number, 1, 60 * S, 0)
    return JobRecord(job=job, user=user, submission=submission, state=state, submit_us=S, history=history)


def rows(*records: JobRecord, book: NodeBook | None = None, **view: Any) -> list[SetAsideDoc]:
    config = ClusterConfig(name="office", nodes=["n1", "n2"])
    shown = View(jobs={each.id: each for each in records}, **view)
    when = lambda core_us: BEGAN + timedelta(microseconds=core_us)  # noqa: E731
    return set_aside(Known(shown, book or nodes(), config, "easy", when))


def nodes() -> NodeBook:
    """Two that are in service."""
    book = NodeBook(["n1", "n2"], lambda: 0.0)
    for name in ("n1", "n2"):
        book.committed(ev.NodeJoined(Node(name, 4, 1 << 30)))
    return book


def test_nothing_is_set_aside_where_all_takes_part() -> None:
    assert rows(record(1, "ann", JobState.QUEUED), record(2, "ann", JobState.RUNNING)) == []


def test_job_with_which_the_pass_fails_is_told_with_the_error_and_what_brings_it_back() -> None:
    aside = {7: SetAside(7, 5 * S, 9 * S, "KeyError: shape", 2, 4)}
    found = rows(record(7, "ann", JobState.QUEUED), aside=aside)
    (row,) = found
    assert (row.kind, row.name, row.user, row.by, row.since) == ("job", "7", "ann", "policy", at(5 * S))
    assert (row.what, row.back) == ("the pass fails with it: KeyError: shape", AGAIN)
    assert for_caller(BOB, found) == []
    assert for_caller(ANN, found) == for_caller(ROOT, found) == found


@pytest.mark.parametrize(
    ("reason", "by", "back"),
    [
        ("new disk", "operator", "'cosched node resume n1'"),
        ("", "operator", "'cosched node resume n1'"),
        ("3 launches in a row have failed there, the last: x", "scheduler", "'cosched node resume n1', when its fault"),
        ("it was lost 3 times within 1 h", "scheduler", "'cosched node resume n1', when its fault"),
        (f"{PAUSED}ann has paused parallel work at this desk", "owner", "its owner lets parallel work go on"),
        (ASLEEP, "machine", "the machine is awake"),
        (f"{wire.NO_GUARD}it does not answer", "guard", "its guard answers"),
        (f"{STALLED}/srv does not answer", "file system", "the file system answers"),
        (f"{wire.NO_ROOM}the disk of /var/lib/cosched is full", "disk", "there is room on it again"),
        (f"{wire.EXPIRED}it has expired", "certificate", "'cosched node renew n1'"),
    ],
)
def test_drained_node_is_told_by_whom_since_when_and_until_what(reason: str, by: str, back: str) -> None:
    book = nodes()
    book.committed(ev.NodeDrained("n1", reason))
    (row,) = rows(book=book, out_since_us={"n1": 5 * S})
    assert (row.kind, row.name, row.what, row.by, row.since) == ("node", "n1", reason or "drained", by, at(5 * S))
    assert row.back.startswith(back)


def test_lost_and_refused_nodes_are_told_and_one_that_never_came_is_not() -> None:
    book = nodes()
    book.admit("n3")
    book.committed(ev.NodeLost("n1"))
    book.entry("n2").refused = "hello: version 9"
    assert [(each.name, each.what, each.since) for each in rows(book=book, out_since_us={"n1": 7 * S})] == [
        ("n1", "lost", at(7 * S)),
        ("n2", "refused: hello: version 9", None),
    ]


def test_held_job_is_told_with_its_holder_and_the_command_that_releases_it() -> None:
    by_root = Transition(3, 9 * S, JobState.WAITING, HELD, note="by root")
    at_once = Transition(1, S, JobState.WAITING, HELD)
    held, born = rows(record(4, "ann", JobState.WAITING, by_root), record(5, "bob", JobState.WAITING, at_once))
    assert (held.name, held.by, held.since, held.back) == ("4", "root", at(9 * S), "'cosched release 4'")
    assert (born.name, born.by, born.since) == ("5", "bob", at(S))


def test_failed_launch_that_waits_is_told_and_one_that_runs_again_is_not() -> None:
    reason = Reason(Why.LAUNCH_RETRIED, {"failed_launches": 1, "launch_retries": 2}, "n1")
    failed = Transition(3, 9 * S, JobState.QUEUED, reason, note="n1 refused: no such directory")
    again = Transition(4, 10 * S, JobState.STARTING)
    (row,) = rows(record(4, "ann", JobState.QUEUED, failed), record(5, "ann", JobState.STARTING, failed, again))
    assert (row.kind, row.name, row.by) == ("launch", "4", "n1")
    assert row.what == "launch 1 of 3 failed: n1 refused: no such directory"


def test_what_cannot_be_ended_and_who_is_banned_are_told() -> None:
    book = nodes()
    process = StalledProcess(pid=7, command="cat", channel="nfs", mount="/srv", path="/srv/x", device="0:1")
    book.entry("n1").stalls = {(6, 1): Stall(user="ann", for_us=S, procs=1, memory_bytes=1, processes=(process,))}
    book.entry("n2").word = wire.OwnersWord(bans=("bob",))
    banned, stalled = rows(book=book)
    assert (banned.kind, banned.name, banned.what) == ("user", "bob", "jobs of bob are not taken on n2")
    assert (stalled.kind, stalled.name, stalled.by) == ("job", "6", "n1")
    assert stalled.what.startswith("cannot be ended on n1: ")
    assert stalled.back == "it ends when /srv answers"


def test_failing_policy_and_unwritable_journal_are_told_since_the_last_time_that_they_worked() -> None:
    (policy,) = rows(problem="the policy fails, nothing is started: x", decided_us=8 * S, now_us=9 * S)
    assert (policy.kind, policy.name, policy.since) == ("policy", "easy", at(8 * S))
    (service,) = rows(problem="disk full", accepting=False, decided_us=8 * S, now_us=9 * S)
    assert (service.kind, service.name, service.since) == ("service", "office", at(9 * S))


def test_users_see_what_the_api_tells_everybody_and_jobs_of_their_own() -> None:
    book = nodes()
    book.committed(ev.NodeDrained("n1", f"{PAUSED}eve has paused parallel work at this desk"))
    book.entry("n2").word = wire.OwnersWord(bans=("bob",))
    held = Transition(3, 9 * S, JobState.WAITING, HELD, note="by root")
    found = rows(
        record(4, "ann", JobState.WAITING, held),
        record(5, "bob", JobState.WAITING, held),
        book=book,
        problem="x",
        decided_us=S,
    )
    assert for_caller(ROOT, found) == found
    assert [each.name for each in for_caller(BOB, found)] == ["easy", "n1", "bob", "5"]
    assert [each.name for each in for_caller(ANN, found)] == ["easy", "n1", "4"]
    (node,) = [each for each in for_caller(BOB, found) if each.kind == "node"]
    assert node.what == PAUSED + BY_ITS_OWNER
    assert "eve" not in str(for_caller(BOB, found))


async def listed(service: Running) -> list[SetAsideDoc]:
    return msgspec.convert(await service.get("/v1/set-aside"), SetAsideList).set_aside


async def test_service_lists_a_held_job_and_a_drained_node_as_before_its_restart(cluster: Cluster) -> None:
    async with running(cluster) as service, service.agent("n1"):
        assert await listed(service) == []
        await service.runs()
        held = await service.submit(tasks=2)
        await service.post(f"/v1/jobs/{held}/hold")
        await service.post("/v1/nodes/n1/drain", {"reason": "new disk"})
        before = await listed(service)
        assert [(each.kind, each.name, each.what, each.by) for each in before] == [
            ("node", "n1", "new disk", "operator"),
            ("job", str(held), "held", ME),
        ]
        assert all(each.since for each in before)
    async with running(cluster) as service:
        node, job = await listed(service)
        assert (node.since, job) == (before[0].since, before[1])
