"""Answers of simulations, kept in a directory from one run of a replication to the next.

An answer is found by content: the function and its arguments (of a file, what is in it), all files of cosched and of
the scheduler, and the versions of Python and numpy. So a run that was interrupted goes on where it was, another scale
simulates what is new in it, and after a change of the code nothing that was kept is used. Files of the directory are
unpickled: one that others may write to is refused.
"""

import functools
import hashlib
import os
import pickle
import platform
from pathlib import Path
from typing import Any, Final

import numpy as np

import cosched
import space_scheduler
from cosched.apps.replicate.pool import Call
from cosched.errors import BadInput

_PACKAGES: Final = (cosched, space_scheduler)
#: What a file that is no answer can make the reader raise.
_DAMAGED: Final = (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError, ValueError, TypeError)


class KeptAnswers:
    """The answers in a directory, which is made where it is missing.

    Functions whose answers are kept are of a module: what a function within another knows besides its arguments would
    not count. For one, :class:`ValueError` is raised.
    """

    def __init__(self, directory: Path) -> None:
        """Raises :class:`BadInput` where others may write to it."""
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = directory.stat()
        if found.st_uid != os.geteuid() or found.st_mode & 0o022:
            mode = f"owner {found.st_uid}, mode {found.st_mode & 0o777:o}"
            raise BadInput("--kept", f"{directory}: {mode}", "a directory of your own to which no other user may write")
        self._directory = directory

    def get(self, call: Call) -> tuple[Any] | None:
        """The answer to a call; None: none is kept, or not whole."""
        file = self._file(call)
        try:
            return (pickle.loads(file.read_bytes()),)
        except (FileNotFoundError, *_DAMAGED):
            return None

    def put(self, call: Call, answer: Any) -> None:
        """Keep an answer; a file is there whole or not at all."""
        file = self._file(call)
        file.parent.mkdir(exist_ok=True)
        partial = file.with_name(f"{file.name}.{os.getpid()}")
        partial.write_bytes(pickle.dumps(answer))
        partial.replace(file)

    def _file(self, call: Call) -> Path:
        function = f"{call.function.__module__}.{call.function.__qualname__}"
        if "<" in function:  # it may have values of its own, which its arguments do not show
            raise ValueError(f"{function} is a function within another: its answers cannot be kept by its arguments")
        arguments = [_bytes(each) if isinstance(each, Path) else each for each in call.arguments]
        name = hashlib.sha256(pickle.dumps((code(), function, arguments))).hexdigest()
        return self._directory / name[:2] / name[2:]


@functools.cache
def code() -> str:
    """A digest of all that decides an answer but the call."""
    found = hashlib.sha256(f"{platform.python_version()} {np.__version__}".encode())
    for package in _PACKAGES:
        files = (each for each in Path(str(package.__file__)).parent.rglob("*") if each.is_file())
        for file in sorted(each for each in files if each.suffix != ".pyc"):
            found.update(file.read_bytes())
    return found.hexdigest()


def _bytes(file: Path) -> bytes:
    return hashlib.sha256(file.read_bytes()).digest()
