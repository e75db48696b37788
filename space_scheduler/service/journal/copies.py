"""Copies of a database, made whole or not at all."""

import os
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

from cosched.linux.durable import sync


def write_copy(source: sqlite3.Connection, made: Path) -> None:
    """A new file with what the source has, for its owner alone, and on the disk; where that fails, there is no file.

    Raises OSError and ``sqlite3.Error``.
    """
    made.unlink(missing_ok=True)
    try:
        os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(made)) as into:
            source.backup(into)
        sync(made)
    except BaseException:
        with suppress(OSError):
            made.unlink(missing_ok=True)
        raise
