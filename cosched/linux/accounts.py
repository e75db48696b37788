"""What users are on this machine. Name services may not answer, and homes lie on file systems that may not: ask in
processes that can be given up.
"""

import json
import os
import pwd
import select
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

from cosched.linux import users

Resolve = Callable[[str, int | None], object]
#: (uid, gid, home, problem) of a user.
Found = tuple[int, int, str, str]
_PIECE_BYTES: Final = 64 << 10


def accounts(
    submitters: Mapping[str, int | None], resolve: Resolve, each_s: float, patience_s: float
) -> tuple[dict[str, Found], list[str]]:
    """What was found by name, without the names that are unknown here, and the names that are still looked up.

    ``submitters``: each user's uid as the scheduler's host has it (:func:`cosched.linux.users.uid_conflict`).
    ``resolve`` raises :class:`~cosched.linux.users.UserRefused` for a user and that uid whose jobs are refused here.
    A process looks them up one after the other. Where one takes longer than ``each_s`` it is killed, and gone when the
    file system or the name service lets it go; another one does the rest, for ``patience_s`` together. Raises OSError.
    """
    left, late, found = [*submitters], list[str](), dict[str, Found | None]()
    until_s = time.monotonic() + patience_s
    while left and (wait_s := until_s - time.monotonic()) > 0:
        read, pid = _looking_up({name: submitters[name] for name in left}, resolve)
        for name, known, done in _heard(read, min(each_s, wait_s), until_s):
            found[name] = known
            if done:
                left.remove(name)
        os.close(read)
        if left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            late.append(left.pop(0))
            found.setdefault(late[-1], unseen())
    found |= dict.fromkeys(left, unseen())
    return {name: known for name, known in found.items() if known is not None}, late


def unseen() -> Found:
    """What is known of a user whose look-up has not been answered."""
    return -1, -1, "", "cannot be looked up: the user database, or another user's home, does not answer"


def _heard(read: int, each_s: float, until_s: float) -> Iterator[tuple[str, Found | None, bool]]:
    """What is told by lines that come ``each_s`` after one another at most: name, what is known, whether it is all."""
    poll, text = select.poll(), b""
    poll.register(read, select.POLLIN)
    while poll.poll(1000 * min(each_s, max(0.0, until_s - time.monotonic()))):
        data = os.read(read, _PIECE_BYTES)
        if not data:
            return
        *lines, text = (text + data).split(b"\n")
        yield from map(json.loads, lines)


def _looking_up(submitters: Mapping[str, int | None], resolve: Resolve) -> tuple[int, int]:
    """A pipe on which a process tells of each user in turn, and that process. Raises OSError."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            for name, submitter in submitters.items():
                _look_up(write, name, submitter, resolve)
        finally:
            os._exit(0)
    os.close(write)
    return read, pid


def _look_up(write: int, name: str, submitter: int | None, resolve: Resolve) -> None:
    def tell(known: Found | None, *, done: bool) -> None:
        os.write(write, json.dumps([name, known, done]).encode() + b"\n")

    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):
        tell(None, done=True)
        return
    known = entry.pw_uid, entry.pw_gid, entry.pw_dir
    tell((*known, f"home {entry.pw_dir} does not answer"), done=False)
    tell((*known, _problem(name, entry, resolve, submitter)), done=True)


def _problem(name: str, entry: pwd.struct_passwd, resolve: Resolve, submitter: int | None) -> str:
    """Why jobs of that user would not run here as they should; empty where they would."""
    try:
        resolve(name, submitter)
    except users.UserRefused as error:
        return str(error)
    try:
        home = os.stat(entry.pw_dir)
    except OSError as error:
        return f"home {entry.pw_dir}: {error.strerror}"
    if home.st_uid != entry.pw_uid:
        return f"home {entry.pw_dir} belongs to uid {home.st_uid}, not to {name} (uid {entry.pw_uid})"
    return ""
