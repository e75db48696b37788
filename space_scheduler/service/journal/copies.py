"""Files that are made whole or not at all, and copies of databases as such files."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from cosched.linux.durable import sync


@contextmanager
def taking_place(path: Path) -> Iterator[Path]:
    """A new file, empty and for its owner alone, that takes the place at a path when it has been filled.

    It is on the disk then. Where it cannot be filled, it is removed, and what was there is there still. Raises OSError.
    """
    made = path.with_name(path.name + ".new")
    made.unlink(missing_ok=True)
    try:
        os.close(os.open(made, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        yield made
        sync(made)
        os.replace(made, path)
    except BaseException:
        with suppress(OSError):
            made.unlink(missing_ok=True)
        raise
    sync(path.parent)


def write_copy(source: sqlite3.Connection, path: Path) -> None:
    """Put a file with what the source has in place, by :func:`taking_place`. Raises OSError and ``sqlite3.Error``."""
    with taking_place(path) as made, closing(sqlite3.connect(made)) as into:
        source.backup(into)
