"""Who is an operator: users by name, and the members of groups as the system has them (``@GROUP``)."""

import grp
import os
import pwd
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import Final

from space_scheduler.service.access.lookups import Lookups

GROUP: Final = "@"


class Operators:
    """``user in operators``, as far as it was learnt (:meth:`learn`)."""

    def __init__(self, listed: Collection[str], now_s: Callable[[], float] = time.monotonic) -> None:
        """``listed`` as ``operators`` in ``cluster.yaml`` has it."""
        self._users = frozenset(each for each in listed if not each.startswith(GROUP))
        self._groups = [each.removeprefix(GROUP) for each in listed if each.startswith(GROUP)]
        self._members: Lookups[str, bool] = Lookups(lambda user: _is_member(user, self._groups), now_s)

    async def learn(self, user: str) -> None:
        """Have an answer for that user that is not too old."""
        if self._groups and user not in self._users:
            await self._members.learn(user)

    def __contains__(self, user: str) -> bool:
        return user in self._users or bool(self._members.get(user))


def _is_member(user: str, groups: list[str]) -> bool:
    """Whether the user is in one of these groups, by the host's name services; nobody is who is not known there."""
    try:
        theirs = set(os.getgrouplist(user, pwd.getpwnam(user).pw_gid))
    except (KeyError, OSError):
        return False
    for name in groups:
        with suppress(KeyError, OSError):  # no such group now: it gives no rights
            if grp.getgrnam(name).gr_gid in theirs:
                return True
    return False
