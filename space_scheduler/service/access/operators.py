"""Who is an operator: users by name, and the members of groups as the system has them (``@GROUP``).

Groups are asked of the host's name services (NSS), which may be a directory of the whole site: an answer counts for
:data:`LASTS_S`, so a change is seen within that time and no flood of requests reaches the directory.
"""

import grp
import os
import pwd
import time
from collections.abc import Callable, Iterable
from typing import Final

GROUP: Final = "@"
#: Within which a change of who is in a group is seen.
LASTS_S: Final = 30.0
_MOST: Final = 10_000


class Operators:
    """``user in operators``."""

    def __init__(self, listed: Iterable[str], now_s: Callable[[], float] = time.monotonic) -> None:
        """``listed`` as ``operators`` in ``cluster.yaml`` has it."""
        listed = list(listed)
        self._users = frozenset(each for each in listed if not each.startswith(GROUP))
        self._groups = [each.removeprefix(GROUP) for each in listed if each.startswith(GROUP)]
        self._now_s = now_s
        self._known: dict[str, tuple[float, bool]] = {}

    def __contains__(self, user: object) -> bool:
        if not isinstance(user, str):
            return False
        if user in self._users or not self._groups:
            return user in self._users
        asked_s, known = self._known.get(user, (-LASTS_S, False))
        now_s = self._now_s()
        if now_s - asked_s < LASTS_S:
            return known
        if len(self._known) >= _MOST:
            self._known.clear()
        found = _is_member(user, self._groups)
        self._known[user] = now_s, found
        return found


def _is_member(user: str, groups: list[str]) -> bool:
    """Whether the user is in one of these groups, by the host's name services; nobody is who is not known there."""
    try:
        entry = pwd.getpwnam(user)
        theirs = set(os.getgrouplist(user, entry.pw_gid))
    except (KeyError, OSError):
        return False
    for name in groups:
        try:
            if grp.getgrnam(name).gr_gid in theirs:
                return True
        except (KeyError, OSError):  # no such group now: it gives nobody a right
            continue
    return False
