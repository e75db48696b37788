"""What users are on this machine. Name services may not answer, and homes lie on file systems that may not: ask in a
process that can be given up.
"""

import os
import pwd
import time
from collections.abc import Callable, Mapping
from functools import partial
from threading import Thread

from cosched.linux import users

Resolve = Callable[[str, int | None], object]
#: (uid, gid, home, problem) of a user.
Found = tuple[int, int, str, str]


def accounts(
    submitters: Mapping[str, int | None], resolve: Resolve, patience_s: float
) -> tuple[dict[str, Found], list[str]]:
    """What was found by name, without the names that are unknown here, and the names that are still looked up.

    ``submitters``: each user's uid as the scheduler's host has it (:func:`cosched.linux.users.uid_conflict`).
    ``resolve`` raises :class:`~cosched.linux.users.UserRefused` for a user and that uid whose jobs are refused here.
    All are looked up at once, each in a thread, for ``patience_s`` together: one that waits keeps no other waiting.
    """
    found: dict[str, Found] = {}
    threads = {
        name: Thread(target=partial(_look_up, found, name, submitter, resolve), daemon=True)
        for name, submitter in submitters.items()
    }
    for thread in threads.values():
        thread.start()
    until_s = time.monotonic() + patience_s
    for thread in threads.values():
        thread.join(max(0.0, until_s - time.monotonic()))
    late = [name for name, thread in threads.items() if thread.is_alive()]
    return {name: found.get(name, unseen()) for name in submitters if name in found or name in late}, late


def unseen() -> Found:
    """Of a user of whom the user database has not told anything yet."""
    return -1, -1, "", "cannot be looked up: the user database does not answer"


def _look_up(found: dict[str, Found], name: str, submitter: int | None, resolve: Resolve) -> None:
    try:
        entry = pwd.getpwnam(name)
    except (KeyError, ValueError):
        return
    known = entry.pw_uid, entry.pw_gid, entry.pw_dir
    found[name] = *known, f"home {entry.pw_dir} does not answer"
    found[name] = *known, _problem(name, entry, resolve, submitter)


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
