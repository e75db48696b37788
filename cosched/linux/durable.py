"""Files that are there whole or not at all, also when the power goes."""

import os
from pathlib import Path


def write_durably(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Put a file in place, readable by its owner alone unless ``mode`` says otherwise, whatever the umask is.

    Raises OSError; then what was there is there still.
    """
    temporary = path.with_name(f".{path.name}.new")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        os.fchmod(descriptor, mode)
        file.write(data)
        file.flush()
        os.fsync(descriptor)
    os.replace(temporary, path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file's content, or a directory's names, on the disk. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_all(directory: Path) -> None:
    """Have the files of a directory, and their names, on the disk. Raises OSError."""
    for each in directory.iterdir():
        sync(each)
    sync(directory)
