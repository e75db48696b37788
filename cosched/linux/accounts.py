"""What users are on this machine. Name services may not answer, and homes lie on file systems that may not: ask in a
process that can be given up.
"""

import os
import pwd
from collections.abc import Mapping
from typing import Protocol

from cosched.linux import users


class Security(Protocol):
    """Of ``node.toml``: ``[security]``."""

    @property
    def users(self) -> str:
        """Who jobs run as: switch, self or by-name."""

    @property
    def min_uid(self) -> int:
        """The least uid of a user whose jobs are taken."""

    @property
    def allow_root(self) -> bool:
        """Whether root's jobs are taken."""


def accounts(submitters: Mapping[str, int | None], security: Security) -> dict[str, tuple[int, int, str, str]]:
    """(uid, gid, home, problem) by name, without the names that are unknown here.

    ``submitters``: each user's uid as the scheduler's host has it (:func:`cosched.linux.users.uid_conflict`).
    """
    found = {}
    for name, submitter in submitters.items():
        try:
            entry = pwd.getpwnam(name)
        except (KeyError, ValueError):
            continue
        found[name] = (entry.pw_uid, entry.pw_gid, entry.pw_dir, _problem(name, entry, security, submitter))
    return found


def _problem(name: str, entry: pwd.struct_passwd, security: Security, submitter: int | None) -> str:
    """Why jobs of that user would not run here as they should; empty where they would."""
    allowed = {"users": security.users, "min_uid": security.min_uid, "allow_root": security.allow_root}
    try:
        users.resolve(name, **allowed, submitter=submitter)  # type: ignore[arg-type]
    except users.UserRefused as error:
        return str(error)
    try:
        home = os.stat(entry.pw_dir)
    except OSError as error:
        return f"home {entry.pw_dir}: {error.strerror}"
    if home.st_uid != entry.pw_uid:
        return f"home {entry.pw_dir} belongs to uid {home.st_uid}, not to {name} (uid {entry.pw_uid})"
    return ""
