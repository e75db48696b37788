"""The journal: what was accepted, what was decided, what became of every job (design, section 4). SQLite, WAL.

A transaction is on the disk when :meth:`Journal.write` returns (``synchronous=FULL``). Events and decisions form a
chain of checksums from the first or from a snapshot on, so that a damaged or missing row is found, not believed.
"""

import uuid
import zlib
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Final

import msgspec

from space_scheduler.machine.rules import MachineRules
from space_scheduler.service.journal import forgetting, jobs
from space_scheduler.service.journal.clock import Anchor
from space_scheduler.service.journal.reading import (
    Chosen,
    Entry,
    Run,
    Saved,
    sealed,
)
from space_scheduler.service.journal.records import JobRecord
from space_scheduler.service.journal.schema import (
    JournalRefused,
    JournalUnwritable,
    Lock,
    Mark,
    check_never_was,
    check_not_older,
    checksum,
    connect,
    create,
    last_job_id,
    readable,
    writable,
)

_json: Final = msgspec.json.Encoder()
_SNAPSHOT: Final = "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?)"
SnapshotRow = tuple[int, int, int, bytes, int]


class Journal(jobs.JobReader):
    """An open journal, for the one thread that opened it."""

    def __init__(self, path: Path, keep_jobs_us: int | None = None) -> None:
        """Open a journal, or make one. Raises :class:`JournalRefused` and :class:`JournalUnwritable`.

        ``keep_jobs_us``: for how long jobs stay after their end, for ever where it is None.
        """
        self._keep_jobs_us = keep_jobs_us
        if not path.parent.is_dir():
            raise JournalRefused(f"journal {path}: no directory {path.parent}")
        with ExitStack() as opened, readable(path):
            self._lock = opened.enter_context(closing(Lock(path)))
            if not path.exists():
                check_never_was(path)  # refused, the mark of what was here stays
                self._lock.clear_mark()
                create(path)
            super().__init__(opened.enter_context(closing(connect(path, write=True))), path)
            self._begin_with()
            check_not_older(path, Mark(self.cluster_id, self.seq), self._lock.mark)
            self._opened = opened.pop_all()

    def _begin_with(self) -> None:
        self.cluster_id: str = dict(self._db.execute("SELECT name, value FROM meta")).get("cluster_id", "")
        self.runs = self.read_runs()
        newest = self._db.execute("SELECT seq, chain, now_us FROM snapshots ORDER BY seq DESC LIMIT 1").fetchone()
        last = self._db.execute("SELECT seq, checksum, now_us FROM events ORDER BY seq DESC LIMIT 1").fetchone()
        found: tuple[int, int, int] = max(newest or (0, 0, 0), last or (0, 0, 0))
        self.seq, self.chain, self.last_us = found
        self.snapshot_us: int = newest[2] if newest else 0  # when the last one was of, as the journal was opened
        self._look()
        self.next_job_id: int = last_job_id(self._db) + 1
        self._steps: int = self._db.execute("SELECT coalesce(max(id), 0) FROM transitions").fetchone()[0]

    def begin_run(
        self,
        anchor: Anchor,
        software: str,
        policy: str,
        order: str | None,
        rules: MachineRules,
        *,
        least_epoch: int = 1,
        eligibility: Sequence[str] = (),
    ) -> Run:
        """Write this start down: its epoch is higher than every other's. Raises :class:`JournalUnwritable`."""
        run = Run(
            epoch=max(max((each.epoch for each in self.runs), default=0) + 1, least_epoch),
            instance=uuid.uuid4().hex,
            software=software,
            anchor=anchor,
            policy=policy,
            order=order,
            rules=rules,
            first_seq=self.seq + 1,
            eligibility=tuple(eligibility),
        )
        cluster_id = self.cluster_id or uuid.uuid4().hex
        self._transaction(
            [
                ("INSERT OR IGNORE INTO meta VALUES ('cluster_id', ?)", [(cluster_id,)]),
                ("INSERT INTO runs VALUES (?, ?)", [(run.epoch, sealed(run, cluster_id))]),
            ]
        )
        self.cluster_id = cluster_id
        self.runs = (*self.runs, run)
        return run

    def write(self, entries: Sequence[Entry], changed: Iterable[JobRecord] = (), chosen: Sequence[Chosen] = ()) -> None:
        """One transaction: events with what followed, jobs as they are now, policies that were chosen. All or nothing.

        Raises :class:`JournalUnwritable`; then nothing is written.
        """
        runs = (*self.runs, *(self.runs[-1].under(each) for each in chosen))
        chain = self.chain
        events, decisions, instructions = [], [], []
        for entry in entries:
            event = _text(entry.event)
            decision = _text(entry.decision) if entry.decision is not None else None
            texts = [text.decode() for text in entry.instructions]
            chain = checksum(entry.seq, entry.now_us, event, entry.note, decision, *texts, start=chain)
            events.append((entry.seq, entry.now_us, event, entry.note, chain))
            if decision is not None:
                decisions.append((entry.seq, decision))
            instructions += [(entry.seq, n, text) for n, text in enumerate(texts)]
        steps = list(enumerate((step for entry in entries for step in entry.transitions), self._steps + 1))
        ended_by = {job_id: number for number, (job_id, *_) in steps}
        changed = list(changed)
        new = [jobs.new_row(record) for record in changed if record.id >= self.next_job_id]
        self._transaction(
            [
                ("INSERT INTO events VALUES (?, ?, ?, ?, ?)", events),
                ("INSERT INTO decisions VALUES (?, ?)", decisions),
                ("INSERT INTO instructions VALUES (?, ?, ?)", instructions),
                (jobs.STEP, [(number, *jobs.transition_row(*step)) for number, step in steps]),
                (jobs.INSERT, new),
                (jobs.UPDATE, [jobs.job_row(record, ended_by.get(record.id)) for record in changed]),
                ("UPDATE runs SET run = ? WHERE epoch = ?", [_with_chosen(runs, self.cluster_id)] if chosen else []),
            ]
        )
        self.runs = runs
        self.chain, self._steps = chain, self._steps + len(steps)
        if entries:
            self.seq, self.last_us = entries[-1].seq, entries[-1].now_us
            self._lock.write_mark(Mark(self.cluster_id, self.seq))
        self.next_job_id = max([self.next_job_id, *(row[0] + 1 for row in new)])

    def write_snapshot(self, row: SnapshotRow, *, keep_events: int | None, keep_us: int | None, now_us: int) -> None:
        """Write what :func:`packed` has made, also some events later.

        Dropped is what lies more than ``keep_events`` before it, or longer than ``keep_us`` before ``now_us``, up to a
        snapshot only, so that a replay can always begin at one. So are jobs that ended so long ago that they are not to
        be kept.
        """
        too_many = self._last_snapshot("seq", row[0], keep_events)
        commands = [(_SNAPSHOT, [row]), *_dropping(max(too_many, self._last_snapshot("now_us", now_us, keep_us)))]
        if self._keep_jobs_us is not None:
            commands += jobs.dropping(self._db, min(now_us - self._keep_jobs_us, row[1]), self.next_job_id - 1)
        self._transaction(commands)
        self._look()

    # a user who is forgotten

    def users(self) -> set[str]:
        """The names of the users that the journal knows. Raises :class:`JournalRefused`."""
        return forgetting.users(self._db, self.snapshots(0))

    def forget(self, user: str, at_end: Saved, when: str) -> forgetting.Removed:
        """Remove a user, all of whose jobs have ended, in one transaction; :meth:`overwrite` is due then.

        ``at_end``: the state after the last event. Of the user nothing is kept but ``when`` that was. Raises
        :class:`JournalRefused` and :class:`JournalUnwritable`; then nothing is written.
        """
        name = forgetting.Name(user)
        last = forgetting.last_event(self._db, name)
        snapshots = [*self.snapshots(last)] or [at_end]
        first = snapshots[0].seq if last else 0
        steps = forgetting.steps_cleaned(self._db, name)
        count, gone = self._db.execute, jobs.dropping_of(self._db, user, self.next_job_id - 1)
        removed = forgetting.Removed(
            count("SELECT count(*) FROM jobs WHERE user = ?", (user,)).fetchone()[0],
            len(steps),
            count("SELECT count(*) FROM events WHERE seq <= ?", (first,)).fetchone()[0],
            first,
        )
        record = [(f"forgotten {when}", f"{removed.jobs} jobs"), (forgetting.OVERWRITE_DUE, when)]
        self._transaction(
            [
                (_SNAPSHOT, [packed(name.cleaned(each)) for each in snapshots]),
                *_dropping(first),
                ("UPDATE transitions SET cause = ?, note = ?, checksum = ? WHERE id = ?", steps),
                *gone,
                ("INSERT OR REPLACE INTO meta VALUES (?, ?)", record),
            ]
        )
        self._look()
        return removed

    @property
    def overwrite_due(self) -> bool:
        """Whether bytes of what :meth:`forget` has removed may still be in the file."""
        return bool(self._db.execute("SELECT 1 FROM meta WHERE name = ?", (forgetting.OVERWRITE_DUE,)).fetchone())

    def overwrite(self) -> None:
        """Write the file anew: no byte stays of what was removed. Raises :class:`JournalUnwritable`."""
        with writable(self.path, "it cannot be written anew"):
            self._db.execute("VACUUM")
            if self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                raise JournalUnwritable(f"journal {self.path}: another process reads it: end that one, and repeat this")
        self._transaction([("DELETE FROM meta WHERE name = ?", [(forgetting.OVERWRITE_DUE,)])])

    def naming(self, user: str) -> forgetting.Left:
        """Where a name is still. Raises :class:`JournalRefused`."""
        return forgetting.left(self._db, forgetting.Name(user), self.snapshot())

    def _look(self) -> None:
        """See what is to be dropped, and when.

        ``droppable_us``: of when the oldest snapshot is up to which events are there that could be dropped;
        ``jobs_due_us``: from when on ended jobs are to be, a quarter of their time late so that many go at once. None:
        there are none.
        """
        self.droppable_us: int | None = self._db.execute(
            "SELECT min(now_us) FROM snapshots WHERE seq >= (SELECT min(seq) FROM events)"
        ).fetchone()[0]
        self.jobs_due_us: int | None = None
        if self._keep_jobs_us is not None and (oldest_us := self.first_end_us()) is not None:
            self.jobs_due_us = oldest_us + self._keep_jobs_us + self._keep_jobs_us // 4

    def _last_snapshot(self, column: str, newest: int, keep: int | None) -> int:
        """The last of the snapshots that are so much older, by that column; 0 where there is none."""
        if keep is None:
            return 0
        query = f"SELECT coalesce(max(seq), 0) FROM snapshots WHERE {column} <= ?"
        return int(self._db.execute(query, (newest - keep,)).fetchone()[0])

    def probe(self) -> None:
        """Try to write. Raises :class:`JournalUnwritable`."""
        self._transaction([("INSERT OR REPLACE INTO meta VALUES ('probe', ?)", [(uuid.uuid4().hex,)])])

    def _transaction(self, commands: Iterable[tuple[str, list[tuple[Any, ...]]]]) -> None:
        """Carry them out, all or nothing. Raises :class:`JournalUnwritable`."""
        with writable(self.path, "it cannot be written"), self._db:  # which commits, or rolls back
            self._db.execute("BEGIN IMMEDIATE")
            for sql, rows in commands:
                if rows:
                    self._db.executemany(sql, rows)

    def close(self) -> None:
        """Close the file and let go of it."""
        self._opened.close()


def _dropping(first: int) -> list[tuple[str, list[tuple[Any, ...]]]]:
    """Statements that drop what lies before the snapshot at that event; 0: nothing."""
    if not first:
        return []
    return [
        ("DELETE FROM snapshots WHERE seq < ?", [(first,)]),
        ("DELETE FROM events WHERE seq <= ?", [(first,)]),
        ("DELETE FROM decisions WHERE seq <= ?", [(first,)]),
        ("DELETE FROM instructions WHERE seq <= ?", [(first,)]),
    ]


def packed(saved: Saved) -> SnapshotRow:
    """A snapshot as the journal has it; from any thread. Takes long where many jobs wait."""
    blob = zlib.compress(_json.encode(saved.state), 1)
    return saved.seq, saved.now_us, saved.chain, blob, checksum(saved.seq, saved.now_us, saved.chain, blob)


def _with_chosen(runs: Sequence[Run], cluster_id: str) -> tuple[str, int]:
    """The row of the last start, with the policies that have been chosen since, and its epoch."""
    first, *others = (run for run in runs if run.epoch == runs[-1].epoch)
    chosen = tuple(Chosen(each.first_seq, each.policy, each.order, each.rules) for each in others)
    return sealed(msgspec.structs.replace(first, chosen=chosen), cluster_id), first.epoch


def _text(value: object) -> str:
    return _json.encode(value).decode()
