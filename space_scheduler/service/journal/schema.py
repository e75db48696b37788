"""The journal's file: made whole or not at all, held by one scheduler, and checked before a word of it is believed."""

import fcntl
import os
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Final, NamedTuple

import msgspec

from cosched.errors import Failed, NeedsRepair
from space_scheduler.service.journal.copies import taking_place, write_copy

APPLICATION_ID: Final = 0x434F5343  # "COSC"
#: Format 1 had a table ``launches`` besides, which only tests wrote: it goes when the journal is opened to be written.
#: Up to format 2 a decision had starts alone: those are read as they are (``machine.decision``), and stay.
#: Up to format 3 no owner banned users or ended jobs (``Node.bans``, ``JobSentAway`` and their reasons), but for
#: journals of the last days of that format, which are the same as of format 4 but for the number.
#: Up to format 4 no decision set jobs aside (``Decision.aside`` and ``back``, ``SavedState.aside``).
#: Up to format 5 a job that was set aside was listed as queued, and one that was held as ``held``: both wait, and are
#: read so (``SavedState.waiting``, ``JobState``). Decisions had no ``gates``.
#: Older software then refuses the journal by its number, instead of missing the table or what was decided.
VERSION: Final = 6
_BUSY_S: Final = 5.0
#: SQLite's errors that may pass by themselves: another process, memory, the disk.
_PASSING: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_INTERRUPT,
    }
)  # fmt: skip
#: What stands for the time in the name of a copy until the journal is converted.
_CONVERTING: Final = "converting"
#: A lock file: the process that has the journal, then the mark; each of a fixed length.
_HOLDER_BYTES, _MARK_BYTES = 32, 64

_TABLES: Final = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE runs (epoch INTEGER PRIMARY KEY, run TEXT NOT NULL);
CREATE TABLE events (seq INTEGER PRIMARY KEY, now_us INTEGER NOT NULL, event TEXT NOT NULL, note TEXT NOT NULL,
    checksum INTEGER NOT NULL);
CREATE TABLE decisions (seq INTEGER PRIMARY KEY, decision TEXT NOT NULL);
CREATE TABLE instructions (seq INTEGER, n INTEGER, instruction TEXT NOT NULL, PRIMARY KEY (seq, n)) WITHOUT ROWID;
CREATE TABLE transitions (id INTEGER PRIMARY KEY, seq INTEGER NOT NULL, job_id INTEGER NOT NULL,
    now_us INTEGER NOT NULL, was TEXT NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL, cause TEXT NOT NULL,
    note TEXT NOT NULL, checksum INTEGER NOT NULL);
CREATE INDEX transitions_of_job ON transitions (job_id, id);
CREATE TABLE jobs (job_id INTEGER PRIMARY KEY, user TEXT NOT NULL, submission TEXT NOT NULL,
    submitted_checksum INTEGER NOT NULL, state TEXT NOT NULL, ended INTEGER, record TEXT NOT NULL,
    checksum INTEGER NOT NULL);
CREATE INDEX jobs_alive ON jobs (job_id) WHERE ended IS NULL;
CREATE UNIQUE INDEX jobs_ended ON jobs (ended) WHERE ended IS NOT NULL;
CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, now_us INTEGER NOT NULL, chain INTEGER NOT NULL, state BLOB NOT NULL,
    checksum INTEGER NOT NULL);
"""


class JournalRefused(NeedsRepair):
    """The journal cannot be used as it is: foreign, newer or damaged."""


class JournalUnavailable(JournalRefused):
    """The journal cannot be used at this moment: another scheduler works with it, or it cannot be read."""

    status: ClassVar[int] = Failed.status


class JournalUnwritable(Failed):
    """The journal cannot be written now (a full disk, a read-only file system, an I/O error)."""


def lock_path(journal: Path) -> Path:
    """The file whose lock says that a scheduler works with the journal."""
    return journal.with_name(journal.name + ".lock")


class Mark(NamedTuple):
    """How far a journal had been written at its place: its cluster's id and its last event."""

    cluster_id: str
    seq: int


def holder(fd: int) -> str:
    """The id of the process that has the lock, from the open lock file."""
    return os.pread(fd, _HOLDER_BYTES, 0).decode("ascii", "replace").strip() or "unknown"


def marked(fd: int) -> Mark | None:
    """The mark in an open lock file; None where there is none, as with a journal of older software."""
    words = os.pread(fd, _MARK_BYTES, _HOLDER_BYTES).decode("ascii", "replace").split()
    return Mark(words[1], int(words[0])) if len(words) == 2 and words[0].isdecimal() else None


class Lock:
    """At most one scheduler on a journal: a lock on a file beside it, with the process's id for people.

    On a file of its own, because closing a second descriptor of the database would drop SQLite's own locks. It keeps
    a :class:`Mark` as well, written after each transaction and not synced: it may be behind the journal, never ahead.
    """

    def __init__(self, journal: Path) -> None:
        """Take the lock, or raise :class:`JournalUnavailable` with the id of who has it."""
        path = lock_path(journal)
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise JournalUnavailable(f"journal {journal}: {path} cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            process = holder(self._fd)
            os.close(self._fd)
            raise JournalUnavailable(
                f"journal {journal}: another scheduler (process {process}) works with it"
            ) from None
        self.mark = marked(self._fd)
        with suppress(OSError):  # a full disk: the lock holds all the same
            os.pwrite(self._fd, f"{os.getpid():<{_HOLDER_BYTES - 1}}\n".encode(), 0)

    def clear_mark(self) -> None:
        """Another journal begins at this place."""
        self.mark = None
        self.write_mark(Mark("", 0))

    def write_mark(self, mark: Mark) -> None:
        """Say how far the journal is written; on a full disk the mark before stays."""
        with suppress(OSError):
            os.pwrite(self._fd, f"{mark.seq:020} {mark.cluster_id:<{_MARK_BYTES - 22}}\n".encode(), _HOLDER_BYTES)

    def close(self) -> None:
        """Let go of the journal. The file stays: removing it would let two processes hold two files of that name."""
        os.close(self._fd)


def check_not_older(path: Path, found: Mark, mark: Mark | None) -> None:
    """Raise :class:`JournalRefused` for a journal that ends before what was written at its place.

    Another cluster's is none such; one without a cluster, which no service has begun, is.
    """
    if mark is not None and found.cluster_id in ("", mark.cluster_id) and mark.seq > found.seq:
        raise JournalRefused(
            f"journal {path}: it ends with event {found.seq}, and event {mark.seq} has been written here: "
            "an older copy is in its place. Put the newest one back with 'cosched scheduler --restore FILE', and start "
            "once with --take-over"
        )


def checksum(*parts: str | bytes | int | None, start: int = 0) -> int:
    """CRC-32 of the parts, each with its length: a page of SQLite's has no checksum of its own."""
    value = start
    for part in parts:
        data = part if isinstance(part, bytes) else str(part).encode("utf-8", "surrogatepass")
        value = zlib.crc32(data, zlib.crc32(b"%d:" % len(data), value))
    return value


def agrees(expected: int, *parts: str | bytes | int | None, start: int = 0) -> bool:
    """Whether a row of texts and numbers is what was written.

    Its checksum says so, and no text of it has become a blob: by one byte of the row's header, and with the same sum.
    """
    return not any(isinstance(part, bytes) for part in parts) and checksum(*parts, start=start) == expected


def check_never_was(path: Path) -> None:
    """Raise :class:`JournalRefused` where what is not there has been: its latest events are left beside it."""
    orphan = path.with_name(path.name + "-wal")
    if orphan.exists():
        raise JournalRefused(f"journal {path}: it is gone, and {orphan.name} is still there")


def create(path: Path) -> None:
    """Make an empty journal. It has its name only when it is whole.

    Raises :class:`JournalUnwritable`, and :class:`JournalRefused` where one has been.
    """
    check_never_was(path)
    with writable(path, "it cannot be made"), taking_place(path) as made:
        for rest in ("-wal", "-shm"):
            made.with_name(made.name + rest).unlink(missing_ok=True)
        with closing(sqlite3.connect(made, isolation_level=None)) as connection:
            connection.executescript(
                f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; BEGIN; {_TABLES}"
                f"PRAGMA application_id={APPLICATION_ID}; PRAGMA user_version={VERSION}; COMMIT;"
            )


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection to a journal that is there, checked to be one. Raises :class:`JournalRefused`.

    One to write with is for one thread, has asked SQLite to look over the whole file first, and brings a journal of an
    older format to this one's, with a copy beside it. Raises :class:`JournalUnwritable` too where it cannot be.
    """
    if not path.exists() or not path.stat().st_size:
        raise JournalRefused(f"journal {path}: {'it is empty' if path.exists() else 'no such file'}")
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode={'rw' if write else 'ro'}", uri=True, isolation_level=None, timeout=_BUSY_S
    )
    with ExitStack() as failed, readable(path):
        failed.callback(connection.close)
        application, version = (
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("application_id", "user_version")
        )
        if application != APPLICATION_ID:
            raise JournalRefused(f"journal {path}: this SQLite file is not a journal of cosched")
        if not 1 <= version <= VERSION:
            raise JournalRefused(
                f"journal {path}: its format is {version}, this software knows up to {VERSION}: use the newer software"
            )
        if write:
            for setting in ("journal_mode=WAL", "synchronous=FULL", "secure_delete=ON"):
                connection.execute(f"PRAGMA {setting}")
            found = [row[0] for row in connection.execute("PRAGMA integrity_check(3)")]
            if found != ["ok"]:
                raise JournalRefused(f"journal {path}: it is damaged: {'; '.join(found)}")
            if version < VERSION:
                _keep(connection, path, version)
                _upgrade(connection, path)
            _name_copies(path)
        failed.pop_all()
    return connection


def format_of(path: Path) -> int:
    """The number of a journal's format. Raises :class:`JournalRefused`."""
    with readable(path), closing(connect(path, write=False)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def last_job_id(connection: sqlite3.Connection) -> int:
    """The highest number that was given to a job, also by a journal in whose place this one was put (``meta``)."""
    query = (
        "SELECT max(coalesce((SELECT max(job_id) FROM jobs), 0),"
        " coalesce((SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'last_job_id'), 0))"
    )
    return int(connection.execute(query).fetchone()[0])


def end_of(connection: sqlite3.Connection) -> Mark:
    """How far a journal goes."""
    cluster_id, events, snapshots = connection.execute(
        "SELECT (SELECT value FROM meta WHERE name = 'cluster_id'),"
        " (SELECT max(seq) FROM events), (SELECT max(seq) FROM snapshots)"
    ).fetchone()
    return Mark(cluster_id or "", max(events or 0, snapshots or 0))


def _keep(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Make a copy of the journal as it is, whole or not at all. Raises :class:`JournalUnwritable`.

    Until the journal is converted it has one name, so that a conversion that fails again and again leaves one copy.
    """
    target = path.with_name(f"{path.name}.format{version}.{_CONVERTING}")
    with writable(path, "no copy can be made before its format changes"):
        write_copy(connection, target)


def _name_copies(path: Path) -> None:
    """The journal is converted: its copy has a name for good, which a later conversion leaves alone."""
    for copy in path.parent.glob(f"{path.name}.format*.{_CONVERTING}"):
        with suppress(OSError):  # the next start tries again
            copy.rename(copy.with_name(copy.name.replace(_CONVERTING, f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}")))


def _upgrade(connection: sqlite3.Connection, path: Path) -> None:
    """One transaction: a crash leaves the older format, whole."""
    try:
        for statement in (
            "BEGIN IMMEDIATE",
            "DROP TABLE IF EXISTS launches",
            f"PRAGMA user_version={VERSION}",
            "COMMIT",
        ):
            connection.execute(statement)
    except sqlite3.OperationalError as error:
        raise JournalUnwritable(f"journal {path}: it cannot be brought to format {VERSION}: {error}") from None


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """What SQLite cannot read is refused as the journal's fault. Raises :class:`JournalRefused`."""
    try:
        yield
    except (sqlite3.Error, msgspec.MsgspecError, UnicodeError) as error:  # an error's words may have damaged text
        raise refused(path, error) from None


@contextmanager
def writable(path: Path, failure: str) -> Iterator[None]:
    """Raise errors of SQLite and of the disk as :class:`JournalUnwritable`: the ``failure``, and the error's text."""
    try:
        yield
    except (OSError, sqlite3.Error) as error:
        raise JournalUnwritable(f"journal {path}: {failure}: {error}") from None


def refused(path: Path, error: Exception) -> JournalRefused:
    """What was found when it could not be read. Rows are read when their checksums agree: what then is not understood
    was written by software that knows more.
    """
    if isinstance(error, msgspec.ValidationError):
        return JournalRefused(f"journal {path}: it is of a newer format than this software knows: {error}")
    if isinstance(error, sqlite3.OperationalError):
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)  # Python's own error: a damaged text
        refusal = JournalUnavailable if code & 0xFF in _PASSING else JournalRefused
        return refusal(f"journal {path}: it cannot be read: {error}")
    return JournalRefused(f"journal {path}: it is damaged, or no journal: {error}")
