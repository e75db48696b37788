"""A copy of a journal put back in its place, by who goes back to older software.

What is put back knows nothing of what came after it: nodes then obey the scheduler by ``--take-over`` alone.
"""

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

from space_scheduler.service.journal.schema import (
    JournalRefused,
    JournalUnwritable,
    Lock,
    connect,
    readable,
    sync,
)


def restore(path: Path, backup: Path) -> Path:
    """Put a backup in the place of the journal, which no scheduler may be using; where that one lies now.

    Raises :class:`JournalRefused` where the backup is none or a scheduler runs, :class:`JournalUnwritable`.
    """
    lock = Lock(path)
    try:
        made = path.with_name(path.name + ".new")
        with readable(backup), closing(connect(backup, write=False)) as source:
            if source.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise JournalRefused(f"journal {backup}: it is damaged")
            made.unlink(missing_ok=True)
            os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
            with closing(sqlite3.connect(made)) as into:
                source.backup(into)
        about = path.parent.stat()
        os.chown(made, about.st_uid, about.st_gid)  # the service's, also where root restores
        sync(made)
        aside = path.with_name(f"{path.name}.replaced.{datetime.now(UTC):%Y%m%dT%H%M%SZ}")
        for end in ("", "-wal", "-shm"):  # the main file first: without it a start refuses what is left
            part = path.with_name(path.name + end)
            if part.exists():
                part.rename(aside.with_name(aside.name + end))
        made.rename(path)
        sync(path.parent)
    except OSError as error:
        raise JournalUnwritable(f"journal {path}: the backup cannot be put in its place: {error}") from None
    finally:
        lock.release()
    return aside
