"""Answers of simulations, kept in a directory from one run of a replication to the next.

An answer is found by content: the function and its arguments, all code of the simulator and of what measures, and the
versions of Python and numpy. So a run that was interrupted goes on where it was, another scale simulates what is new in
it, and after a change of the code nothing that was kept is used. Files of the directory are unpickled: one that others
may write to is refused.
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
    """The answers in a directory, which is made where it is missing."""

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
        try:
            return (pickle.loads(self._file(call).read_bytes()),)
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
        content = pickle.dumps((code(), function, call.arguments))
        name = hashlib.sha256(content).hexdigest()
        return self._directory / name[:2] / name[2:]


@functools.cache
def code() -> str:
    """A digest of all that decides an answer but the call."""
    found = hashlib.sha256(f"{platform.python_version()} {np.__version__}".encode())
    for package in _PACKAGES:
        for file in sorted(Path(str(package.__file__)).parent.rglob("*.py")):
            found.update(file.read_bytes())
    return found.hexdigest()
