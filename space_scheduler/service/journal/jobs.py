"""The journal's tables of jobs and their steps: what ``show`` and ``history`` need when a job is long over."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import msgspec

from cosched.model.job import JobState
from cosched.wire.api import Submission
from space_scheduler.reasons import Reason
from space_scheduler.service.journal.reading import Reader
from space_scheduler.service.journal.records import JobRecord, Kept, Transition
from space_scheduler.service.journal.schema import JournalRefused, agrees, checksum, connect, readable

#: What was submitted is written once; the rest of a job's row again and again.
INSERT: Final = "INSERT INTO jobs VALUES (?, ?, ?, ?, ?, NULL, '', 0)"
UPDATE: Final = "UPDATE jobs SET state = ?, ended = coalesce(?, ended), record = ?, checksum = ? WHERE job_id = ?"
STEP: Final = "INSERT INTO transitions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_SELECT: Final = "SELECT job_id, user, submission, submitted_checksum, state, record, checksum FROM jobs "
_STEPS: Final = "SELECT seq, job_id, now_us, was, state, reason, cause, note, checksum FROM transitions"
_ENDED: Final = (
    "WHERE ended IS NOT NULL AND (:user IS NULL OR user = :user)"
    " AND ended < CASE WHEN :before IS NULL THEN 1 << 62 ELSE (SELECT ended FROM jobs WHERE job_id = :before) END"
    " ORDER BY ended DESC LIMIT :limit"
)
#: Of a journal's ``meta``: how many jobs were dropped that had ended in a state.
_DROPPED: Final = "dropped "
#: Dropped in one transaction, at most: no other can be written meanwhile.
_MOST_DROPPED: Final = 2_000
_json: Final = msgspec.json.Encoder()


def new_row(record: JobRecord) -> tuple[Any, ...]:
    """What was submitted, for :data:`INSERT`."""
    submission = _json.encode(record.submission).decode()
    return record.id, record.user, submission, checksum(record.id, record.user, submission), record.state.value


def job_row(record: JobRecord, step: int | None) -> tuple[Any, ...]:
    """The rest, for :data:`UPDATE`; ``step`` is the number of its last transition in this transaction, if any."""
    rest = _json.encode(Kept(**{name: getattr(record, name) for name in Kept.__struct_fields__})).decode()
    state = record.state.value
    return state, None if record.alive else step, rest, checksum(record.id, state, rest), record.id


def transition_row(job_id: int, was: str, step: Transition) -> tuple[Any, ...]:
    """A step of a job's life as a row, less its number."""
    reason = _json.encode(step.reason).decode()
    row = (step.seq, job_id, step.now_us, was, step.state.value, reason, step.cause, step.note)
    return (*row, checksum(*row))


def dropping(db: sqlite3.Connection, until_us: int, last_job_id: int) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Statements that drop the jobs that ended until then, the first to end first; the numbers they had stay given."""
    first_kept = db.execute("SELECT min(id) FROM transitions WHERE now_us > ?", (until_us,)).fetchone()[0]
    rows = db.execute(
        "SELECT ended, state FROM jobs WHERE ended < ? ORDER BY ended LIMIT ?",
        (1 << 62 if first_kept is None else first_kept, _MOST_DROPPED),
    ).fetchall()
    if not rows:
        return []
    return _dropping(Counter(state for _, state in rows), last_job_id, "ended <= ?", rows[-1][0])


def dropping_of(db: sqlite3.Connection, user: str, last_job_id: int) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Statements that drop all jobs of a user, which have ended; the numbers they had stay given."""
    counts = dict(db.execute("SELECT state, count(*) FROM jobs WHERE user = ? GROUP BY state", (user,)))
    return _dropping(counts, last_job_id, "user = ?", user)


def _dropping(
    counts: Mapping[str, int], last_job_id: int, which: str, value: int | str
) -> list[tuple[str, list[tuple[Any, ...]]]]:
    add = "INSERT INTO meta VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = CAST(value + excluded.value AS TEXT)"
    return [
        ("INSERT OR REPLACE INTO meta VALUES ('last_job_id', ?)", [(str(last_job_id),)]),
        (add, [(_DROPPED + state, str(count)) for state, count in counts.items()]),
        (f"DELETE FROM transitions WHERE job_id IN (SELECT job_id FROM jobs WHERE {which})", [(value,)]),
        (f"DELETE FROM jobs WHERE {which}", [(value,)]),
    ]


class JobReader(Reader):
    """Reads jobs and their steps, too."""

    def alive(self) -> dict[int, JobRecord]:
        """The jobs that have not ended, by number."""
        rows = self._db.execute(_SELECT + "WHERE ended IS NULL ORDER BY job_id").fetchall()
        steps: dict[int, list[tuple[Any, ...]]] = {}
        for row in self._db.execute(
            f"{_STEPS} WHERE job_id IN (SELECT job_id FROM jobs WHERE ended IS NULL) ORDER BY id"
        ):
            steps.setdefault(row[1], []).append(row)
        return {row[0]: self._record(row, steps.get(row[0], ())) for row in rows}

    def job(self, job_id: int) -> JobRecord | None:
        """A job, alive or ended, or None."""
        row = self._db.execute(_SELECT + "WHERE job_id = ?", (job_id,)).fetchone()
        return row and self._record(row, self._steps_of(job_id))

    def ended(self) -> dict[JobState, int]:
        """How many jobs have ended, by how, those counted that were dropped. Raises :class:`JournalRefused`."""
        counts = dict(self._db.execute("SELECT state, count(*) FROM jobs WHERE ended IS NOT NULL GROUP BY state"))
        for name, value in self._db.execute("SELECT name, value FROM meta WHERE name LIKE ?", (f"{_DROPPED}%",)):
            state = name.removeprefix(_DROPPED)
            counts[state] = counts.get(state, 0) + int(value)
        if unknown := counts.keys() - {state.value for state in JobState}:
            raise JournalRefused(f"journal {self.path}: it is damaged: a job has ended as {min(map(repr, unknown))}")
        return {JobState(state): count for state, count in counts.items()}

    def first_end_us(self) -> int | None:
        """When the first of the ended jobs ended; None where there is none."""
        found = self._db.execute("SELECT now_us FROM transitions WHERE id = (SELECT min(ended) FROM jobs)").fetchone()
        return found and int(found[0])

    def _steps_of(self, job_id: int) -> list[tuple[Any, ...]]:
        return self._db.execute(_STEPS + " WHERE job_id = ? ORDER BY id", (job_id,)).fetchall()

    def _record(self, row: tuple[Any, ...], steps: Iterable[tuple[Any, ...]]) -> JobRecord:
        job_id, user, submission, submitted, state, rest, expected = row
        if not agrees(submitted, job_id, user, submission) or not agrees(expected, job_id, state, rest):
            raise JournalRefused(f"journal {self.path}: what it has of job {job_id} is damaged")
        return JobRecord(
            user=user,
            submission=msgspec.json.decode(submission, type=Submission),
            state=JobState(state),
            history=tuple(self._history(job_id, steps)),
            **msgspec.structs.asdict(msgspec.json.decode(rest, type=Kept)),
        )

    def _history(self, job_id: int, rows: Iterable[tuple[Any, ...]]) -> Iterator[Transition]:
        for *row, expected in rows:
            if not agrees(expected, *row):
                raise JournalRefused(f"journal {self.path}: a step of job {job_id} is damaged")
            seq, _, now_us, _, state, reason, cause, note = row
            yield Transition(seq, now_us, JobState(state), msgspec.json.decode(reason, type=Reason | None), cause, note)


def look_up(path: Path, job_id: int) -> JobRecord | None:
    """A job, read past the writer: from any thread. Raises :class:`JournalRefused`."""
    with readable(path), closing(connect(path, write=False)) as db:
        return JobReader(db, path).job(job_id)


def history(path: Path, limit: int, user: str | None, before: int | None) -> list[JobRecord]:
    """Ended jobs, the last to end first; ``before``: only those that ended before that job. From any thread."""
    with readable(path), closing(connect(path, write=False)) as db:
        reader = JobReader(db, path)
        rows = db.execute(_SELECT + _ENDED, {"user": user, "before": before, "limit": limit})
        return [reader._record(row, reader._steps_of(row[0])) for row in rows]
