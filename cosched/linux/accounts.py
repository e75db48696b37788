"""What users are on this machine. Name services may not answer, and homes lie on file systems that may not: ask in a
process that can be given up.
"""

import os
import pwd
from collections.abc import Callable, Mapping

from cosched.linux import users


def accounts(
    submitters: Mapping[str, int | None], resolve: Callable[[str, int | None], object]
) -> dict[str, tuple[int, int, str, str]]:
    """(uid, gid, home, problem) by name, without the names that are unknown here.

    ``submitters``: each user's uid as the scheduler's host has it (:func:`cosched.linux.users.uid_conflict`).
    ``resolve`` raises :class:`~cosched.linux.users.UserRefused` for a user and that uid whose jobs are refused here.
    """
    found = {}
    for name, submitter in submitters.items():
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):
            continue
        found[name] = (entry.pw_uid, entry.pw_gid, entry.pw_dir, _problem(name, entry, resolve, submitter))
    return found


def _problem(
    name: str, entry: pwd.struct_passwd, resolve: Callable[[str, int | None], object], submitter: int | None
) -> str:
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
