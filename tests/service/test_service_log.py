"""The log: JSON lines or readable ones, and a bounded rate for what peers can cause."""

import io
import json
import logging
from datetime import UTC, datetime, timedelta

import pytest

from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job, JobState
from cosched.model.time import FOREVER_US
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Kill, Resize, SetTimer, Start, Tell
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.journal.records import Committed, Transition
from space_scheduler.service.log import Log
from space_scheduler.service.tell import Bridge, tell


def lines(stream: io.StringIO) -> list[dict[str, object]]:
    return [
        {key: value for key, value in json.loads(line).items() if key != "time"}
        for line in stream.getvalue().splitlines()
    ]


def when(core_us: int) -> datetime:
    return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(microseconds=core_us)


def test_a_line_of_json() -> None:
    stream = io.StringIO()
    Log(stream).info("start", job=7, nodes={"n1": 2}, name="a\nb")
    assert lines(stream) == [{"level": "info", "event": "start", "job": 7, "nodes": {"n1": 2}, "name": "a\nb"}]
    assert json.loads(stream.getvalue())["time"].startswith("20")


def test_a_line_for_people() -> None:
    stream = io.StringIO()
    log = Log(stream, people=True)
    log.warn("node lost", node="n1", why="not heard", text="\x1b[2J", nothing="")
    assert stream.getvalue()[9:] == 'warning: node lost node=n1 why="not heard" text=\'\\x1b[2J\' nothing=""\n'


def test_what_a_peer_causes_is_said_once_a_minute_with_how_often() -> None:
    now_s = 0.0
    stream = io.StringIO()
    log = Log(stream, now_s=lambda: now_s)
    for second in range(0, 130, 1):
        now_s = second
        log.peer("n1", "garbage", why="x")
    log.peer("n2", "garbage", why="y")
    assert [(line["peer"], line.get("times_before")) for line in lines(stream)] == [
        ("n1", None), ("n1", 59), ("n1", 59), ("n2", None),
    ]  # fmt: skip


def test_many_peers_do_not_fill_the_memory() -> None:
    log = Log(io.StringIO(), now_s=lambda: 0.0)
    for number in range(5000):
        log.peer(f"n{number}", "garbage")
    assert len(log._peers.minutes) <= 1000


def test_many_peers_do_not_fill_the_log() -> None:
    now_s = 0.0
    stream = io.StringIO()
    log = Log(stream, now_s=lambda: now_s)
    for number in range(5000):
        log.peer(f"n{number}", "garbage")
    assert len(lines(stream)) == 60
    now_s = 61.0
    log.peer("n1", "rubbish")
    assert lines(stream)[60:] == [
        {"level": "warning", "event": "more of this", "lines_left_out": 4940},
        {"level": "warning", "event": "rubbish", "peer": "n1"},
    ]


def test_events_of_one_subject_are_logged_twenty_times_a_minute() -> None:
    now_s = 0.0
    stream = io.StringIO()
    log = Log(stream, now_s=lambda: now_s)
    for number in range(100):
        log.of("n1", "info", "stray job", node="n1", job=number)
    log.of("n1", "warn", "order refused", node="n1")
    log.of("n2", "info", "stray job", node="n2", job=1)
    found = lines(stream)
    assert [line["job"] for line in found[:20]] == list(range(20))
    assert found[20:] == [
        {"level": "warning", "event": "order refused", "node": "n1"},
        {"level": "info", "event": "stray job", "node": "n2", "job": 1},
    ]
    now_s = 61.0
    log.of("n1", "info", "stray job", node="n1", job=100)
    assert lines(stream)[22:] == [{"level": "info", "event": "stray job", "node": "n1", "job": 100, "times_before": 80}]


def test_many_subjects_do_not_fill_the_memory() -> None:
    log = Log(io.StringIO(), now_s=lambda: 0.0)
    for number in range(20_000):
        log.of(f"job {number}", "info", "start")
    assert len(log._subjects.minutes) <= 10_000


def test_a_fault_that_can_be_caused_again_is_told_once_a_minute() -> None:
    stream = io.StringIO()
    log = Log(stream, now_s=lambda: 0.0)
    for number in range(1000):
        try:
            raise KeyError(number)
        except KeyError as error:
            log.fault("request failed", error)
    assert len(lines(stream)) == 1


def test_a_log_that_nobody_reads_stops_nothing() -> None:
    stream = io.StringIO()
    stream.close()
    Log(stream, people=False).info("still here")


def test_a_fault_has_its_trace() -> None:
    stream = io.StringIO()
    try:
        raise KeyError("x")
    except KeyError as error:
        Log(stream).fault("went wrong", error, job=1)
    (line,) = lines(stream)
    assert (line["level"], line["job"], line["error"]) == ("error", 1, "KeyError: 'x'")
    assert "test_service_log.py" in str(line["trace"])


def test_decisions_are_told_with_reason_and_numbers() -> None:
    stream = io.StringIO()
    job = Job(7, 4, 60_000_000, 0)
    cause = ev.Boundary()
    instructions = (
        Start(job, Allocation(4, (Share("n1", 4),)), None, cause, Reason(Why.FITS, {"free_procs": 8})),
        Kill(8, cause, Reason(Why.NODE_LOST, node="n2")),
        Tell(9, 90_000_000, cause, Reason(Why.RESERVED, {"shadow_us": 1_500_000})),
        Tell(10, FOREVER_US, cause, Reason(Why.NODES_AWAY)),
        SetTimer(5, cause, Reason(Why.WAKE)),
    )
    tell(Log(stream), when, Committed(1, 0, cause, instructions))
    assert lines(stream) == [
        {"level": "info", "event": "start", "job": 7, "reason": "fits", "free_procs": 8, "nodes": {"n1": 4}},
        {"level": "info", "event": "kill", "job": 8, "reason": "node_lost", "at_node": "n2"},
        {
            "level": "info",
            "event": "promise",
            "job": 9,
            "start": "2026-01-01T00:01:30.000+00:00",
            "reason": "reserved",
            "shadow": "2026-01-01T00:00:01.500+00:00",
        },
        {"level": "info", "event": "promise", "job": 10, "start": None, "reason": "nodes_away"},
    ]


def test_events_are_told_with_what_was_noted() -> None:
    stream = io.StringIO()
    step = Transition(3, 0, JobState.FAILED, note="the script ended with status 1")
    tell(Log(stream), when, Committed(3, 0, ev.JobEnded(7, JobState.FAILED), (), ((7, step),)))
    tell(Log(stream), when, Committed(4, 0, ev.NodeDrained("n1", "new disk")))
    tell(Log(stream), when, Committed(5, 0, ev.Boundary()))
    first, second = lines(stream)
    assert first == {
        "level": "info", "event": "job ended", "seq": 3, "job": 7, "outcome": "failed",
        "note": "the script ended with status 1",
    }  # fmt: skip
    assert second == {"level": "info", "event": "node drained", "seq": 4, "node": "n1", "why": "new disk"}


@pytest.mark.parametrize("library", ["aiohttp.server", "space_scheduler.service.core.host"])
def test_what_libraries_say_is_taken_in(library: str) -> None:
    stream = io.StringIO()
    record = logging.LogRecord(library, logging.ERROR, __file__, 1, "bad thing %d", (7,), None)
    bridge = Bridge(Log(stream))
    bridge.handle(record)
    bridge.handle(record)
    found = lines(stream)
    assert "bad thing 7" in (str(found[0]["said"]) if library.startswith("aio") else str(found[0]["event"]))
    assert len(found) == (1 if library.startswith("aio") else 2), "libraries speak for peers; we speak for ourselves"


def test_a_change_is_told_whatever_numbers_its_reason_has() -> None:
    """(Found live: a reason with ``procs`` among its numbers broke the line, and the change was not carried out.)"""
    stream = io.StringIO()
    reason = Reason(Why.FOLDED, {"processes": 2, "procs": 1, "head": 9, "job": 3})
    event = ev.Boundary()
    resize = Resize(6, Allocation(2, (Share("n1", 2),)), Allocation(1, (Share("n1", 2, 1),), 2), event, reason)
    tell(Log(stream), when, Committed(1, 0, event, (resize,)))
    assert lines(stream) == [
        {"level": "info", "event": "resize", "reason": "folded", "processes": 2, "procs": 1, "head": 9, "job": 6,
         "procs_before": 2}
    ]  # fmt: skip
