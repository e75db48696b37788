"""Copies of a journal: made while a scheduler works with it, and put back in its place.

What is put back knows nothing of what came after it: nodes then obey the scheduler by ``--take-over`` alone. Only the
numbers of jobs go on where the journal before was: nodes still have output of jobs that had these numbers.

Root opens the copy, which may lie where no other account reads, and is the owner of the journal's directory for
all that is done there: a link that the owner has put there leads root no further than its owner can go.
"""

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from cosched.errors import BadInput, Failed
from cosched.linux.durable import sync, write_durably
from space_scheduler.service.journal.copies import taking_place, write_copy
from space_scheduler.service.journal.schema import (
    JournalRefused,
    Lock,
    connect,
    last_job_id,
    readable,
    writable,
)

#: So many numbers are left out where it is not known which ones were given after the copy.
_UNKNOWN_JOBS: Final = 10_000


def back_up(state: Path, target: Path) -> None:
    """Copy the journal of a state directory, as it is at this moment, and the documents beside it to a new directory.

    Raises :class:`BadInput` where the target exists, :class:`JournalRefused`, and :class:`Failed` where it cannot be
    written; then there is no target.
    """
    if os.path.lexists(target):
        raise BadInput("--backup", f"{target}, which exists", "a new directory")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise Failed(f"{target}: no directory can be made in {target.parent}")
    made = Path(tempfile.mkdtemp(dir=target.parent, prefix=f".{target.name}."))  # for this account alone
    try:
        with ExitStack() as reading:
            with acting_as_owner(state):  # a reader makes files beside a journal that no service has open
                source = reading.enter_context(_opened(state / "journal.db"))
                documents = {each.name: each.read_bytes() for each in sorted(state.glob("*.json"))}
            write_copy(source, made / "journal.db")
        for name, data in documents.items():
            write_durably(made / name, data)
        made.rename(target)
        sync(target.parent)
    except (OSError, sqlite3.Error) as error:
        raise Failed(f"{target}: the state in {state} cannot be copied there: {error}") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)  # moved, where all went well


def restore(path: Path, backup: Path) -> Path:
    """Put a backup in the place of the journal, which no scheduler may be using; where that one lies now.

    Raises :class:`JournalRefused` where the backup is none or a scheduler runs, :class:`JournalUnwritable`.
    """
    aside = path.with_name(f"{path.name}.replaced.{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
    with _opened(backup) as source, acting_as_owner(path.parent), closing(Lock(path)) as lock:
        with writable(path, "the backup cannot be put in its place"), taking_place(path) as made:
            with closing(sqlite3.connect(made, isolation_level=None)) as into:
                source.backup(into)
                _count_on(into, after=path)
            sync(made)  # before the journal leaves its place
            _set_aside(path, aside)
        lock.clear_mark()  # cut short before, a start refuses the copy, and this can be done again
    return aside


@contextmanager
def _opened(backup: Path) -> Iterator[sqlite3.Connection]:
    """The backup, read over. One transaction keeps its files open. Raises :class:`JournalRefused`."""
    with closing(connect(backup, write=False)) as source:
        with readable(backup):
            source.execute("BEGIN")
            if source.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise JournalRefused(f"journal {backup}: it is damaged")
        yield source


@contextmanager
def acting_as_owner(directory: Path) -> Iterator[None]:
    """Have root act as the owner of a directory meanwhile; others stay who they are. Raises :class:`JournalRefused`."""
    try:
        about = directory.stat()
    except OSError as error:
        raise JournalRefused(f"no directory {directory} for a journal: {error.strerror}") from None
    if os.geteuid() or not about.st_uid:
        yield
        return
    groups, group = os.getgroups(), os.getegid()
    try:
        os.setgroups([about.st_gid])
        os.setegid(about.st_gid)
        os.seteuid(about.st_uid)
    except OSError as error:  # a container's root may not be everybody
        raise JournalRefused(
            f"a journal of user {about.st_uid} cannot be put back by this one: {error.strerror}"
        ) from None
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)


def _count_on(into: sqlite3.Connection, *, after: Path) -> None:
    """Have jobs be numbered as if that journal were still there; without one that can be read, far above the copy's."""
    last = None
    # a reader makes a file of latest events, and leaves it, unless it is told that nobody writes
    how = "mode=ro" if after.with_name(after.name + "-wal").exists() else "immutable=1"
    with suppress(sqlite3.Error), closing(sqlite3.connect(f"{after.absolute().as_uri()}?{how}", uri=True)) as before:
        last = last_job_id(before)
    known = last_job_id(into)
    known = known + _UNKNOWN_JOBS if last is None else max(last, known)
    into.execute("INSERT OR REPLACE INTO meta VALUES ('last_job_id', ?)", (str(known),))


def _set_aside(path: Path, aside: Path) -> None:
    """Give the journal another name. Wherever that is cut short, a start finds it or refuses what is left.

    Its latest events may be in a file of their own, which must not be taken for the backup's. Then the journal goes
    first, and an empty file keeps the place of its events: without a journal beside it a start refuses that one too.
    """
    events, index = (path.with_name(path.name + end) for end in ("-wal", "-shm"))
    if not events.exists():
        if path.exists():
            os.link(path, aside)
    else:
        os.link(events, aside.with_name(aside.name + "-wal"))
        if path.exists():
            os.rename(path, aside)
        sync(path.parent)
        with taking_place(events):
            pass  # an empty one
    index.unlink(missing_ok=True)
    sync(path.parent)
