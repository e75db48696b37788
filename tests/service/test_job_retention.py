"""Ended jobs, with script and story, are in the journal for as long as ``keep_jobs`` says; their numbers stay given."""

from contextlib import closing
from pathlib import Path

import pytest
from kit.journals import SCRIPT, Driven, recovered, state_bytes
from kit.loads import SECOND

from cosched.config.cluster import cluster_config
from cosched.errors import BadInput
from cosched.model.job import Job, JobState
from space_scheduler.machine import events as ev
from space_scheduler.service.core.journalled import JournalledCore
from space_scheduler.service.journal.jobs import history, look_up
from space_scheduler.service.journal.schema import connect

HOUR = 3600 * SECOND
DAY = 24 * HOUR


def ended(made: Driven) -> int:
    """A job that is cancelled within the hour."""
    job_id = made.core.submit(Job(0, 1, HOUR, 0, memory_bytes=1 << 28), SCRIPT, "ann", made.clock.now_us())
    made.time.pass_by(HOUR)
    made.core.take_in(ev.JobCancelled(job_id), made.clock.now_us(), note="by ann")
    made.commit()
    return job_id


def kept(path: Path) -> list[int]:
    return sorted(record.id for record in history(path, 1000, None, None))


def test_ended_jobs_are_dropped_after_their_time_with_script_and_story(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", keep_us=DAY, keep_jobs_us=2 * DAY)
    alive = made.core.submit(Job(0, 1, HOUR, 0, memory_bytes=1 << 28), SCRIPT, "bob", made.clock.now_us(), hold=True)
    made.commit()
    numbers = [ended(made) for _ in range(80)]
    oldest = look_up(made.path, kept(made.path)[0])
    assert oldest is not None
    assert oldest.end_us is not None
    assert 2 * DAY - 2 * HOUR <= made.clock.now_us() - oldest.end_us <= 2 * DAY + DAY // 2 + 2 * HOUR
    dropped = sorted({*numbers} - {*kept(made.path)})
    assert dropped
    assert look_up(made.path, dropped[-1]) is None
    with closing(connect(made.path, write=False)) as db:
        told = {row[0] for row in db.execute("SELECT DISTINCT job_id FROM transitions")}
    assert told == {alive, *kept(made.path)}, "no step of a dropped job is left, all of a job that waits"
    made.crash()


def test_journal_without_its_dropped_jobs_recovers_and_gives_no_number_twice(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", keep_us=DAY, keep_jobs_us=DAY)
    last = [ended(made) for _ in range(3)][-1]
    while kept(made.path):
        made.time.pass_by(HOUR)
        made.core.save_if_due(made.clock.now_us())
    assert made.journal.jobs_due_us is None, "nothing is left to be dropped"
    before = state_bytes(made.core.state)
    made.crash()
    assert isinstance(recovered(made.path), JournalledCore)
    made.open()
    assert state_bytes(made.core.state) == before
    assert made.core.ended == {JobState.CANCELLED: 3}, "those that were dropped are counted"
    assert ended(made) == last + 1
    made.crash()


def test_ended_jobs_stay_without_the_setting(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", keep_us=DAY)
    numbers = [ended(made) for _ in range(80)]
    assert kept(made.path) == numbers
    made.crash()


@pytest.mark.parametrize("keep", ["13d", "0s", "forever"])
def test_time_shorter_than_twice_that_of_output_is_refused(keep: str) -> None:
    with pytest.raises(BadInput, match="keep_jobs"):
        cluster_config({"name": "c", "keep_jobs": keep}, "cluster.yaml")
