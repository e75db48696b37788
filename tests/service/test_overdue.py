"""A job that stays past its predicted end: promises that counted on it move, and no display gives a past time."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from kit.journals import HandTime
from kit.loads import SECOND
from service.test_host import Live, living

from cosched.apps.cli import queue
from cosched.config.cluster import ClusterConfig
from cosched.wire.api import JobDoc
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Tell
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.api import documents
from space_scheduler.service.core.journalled import OVERDUE_AFTER_US
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.page.rows import Rows


def when(core_us: int) -> datetime:
    return datetime(2026, 11, 27, tzinfo=UTC) + timedelta(microseconds=core_us)


async def blocked(live: Live, time: HandTime) -> None:
    """Job 1 holds all four processors for a minute, job 2 waits for it and is promised its end."""
    await live.submit(4)
    await live.until(live.started)
    await live.host.post(ev.JobLaunched(1))
    time.pass_by(SECOND)
    await live.submit(4)
    await live.until(lambda: live.host.view().jobs[2].promised_us is not None)


def shown(live: Live) -> JobDoc:
    return documents.job_doc(live.host.view().jobs[2], when, live.host.clock.now_us(), own=True)


async def test_promise_moves_when_job_is_overdue_without_an_event(tmp_path: Path) -> None:
    time = HandTime()
    async with living(tmp_path / "journal.db", sources=time.sources(), pass_interval_us=0) as live:
        await blocked(live, time)
        promised_us = live.host.view().jobs[2].promised_us
        assert promised_us is not None
        time.pass_by(60 * SECOND + OVERDUE_AFTER_US)
        live.host.wake()
        await live.until(lambda: (live.host.view().jobs[2].promised_us or 0) > live.host.clock.now_us())
        tell = [each for each in live.instructions() if isinstance(each, Tell)][-1]
        assert tell.reason == Reason(Why.OVERRUN, {"overdue_job": 1, "since_us": promised_us})
        told = len(live.instructions())
        time.pass_by(30 * SECOND)
        await live.submit(1)
        await live.until(lambda: live.host.view().decided_us == live.host.clock.now_us())
        assert len(live.instructions()) == told  # the promise stays where it was moved to


async def test_display_gives_no_past_promise_while_no_pass_is_made(tmp_path: Path) -> None:
    time = HandTime()
    async with living(tmp_path / "journal.db", sources=time.sources(), pass_interval_us=0) as live:
        await blocked(live, time)
        assert shown(live).promised_start
        rows = Rows(ClusterConfig(name="c"), NodeBook((), lambda: 0.0), live.host.clock, lambda: "easy")
        assert rows.jobs(live.host.view())[2].promised_ms
        promised_us = live.host.view().jobs[2].promised_us
        time.pass_by(59 * SECOND + 1)  # it is about to be ended
        assert shown(live).promised_start is None
        assert rows.jobs(live.host.view())[2].promised_ms is None
        explained = await live.host.explain(2)
        assert explained.promised_us is None
        assert explained.reason is not None
        assert explained.reason.numbers["overdue_job"] == 1
        assert explained.reason.numbers["since_us"] == promised_us
        assert "promised_us" not in explained.reason.numbers
        document = documents.job_doc(
            live.host.view().jobs[2], when, live.host.clock.now_us(), own=True, present=explained.reason
        )
        assert queue._row(document)[-1] == "fewer processors are free than the job needs; job 1 is overdue"
