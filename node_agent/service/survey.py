"""What users are on this node, for ``cosched doctor``: whether the nodes agree on who is who."""

import asyncio
import time
from typing import Final

from cosched.wire.messages import NO_UID, Account, Survey, Surveyed
from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardGone, GuardRefused
from node_agent.guard.base.requests import MAX_SUBMITTERS
from node_agent.service.guard import Guard

#: The scheduler waits for 5 s, the guard gives a question up after 3 s.
_PATIENCE_S: Final = 4.5


class UserSurveys:
    """Answers surveys by the guard's word, one after the other: it looks up users for one question at a time."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._turn = asyncio.Lock()

    async def answer(self, request: Survey) -> Surveyed:
        """Users by name as this node's user database has them, unknown ones left out. Raises nothing."""
        now_us = time.time_ns() // 1000
        left = [name for name in request.users if requests.is_user(name)]  # no other is known anywhere
        found: dict[str, Account] = {}
        problem = ""
        try:
            async with asyncio.timeout(_PATIENCE_S), self._turn:
                while left:
                    part = left[:MAX_SUBMITTERS]
                    asked = requests.Accounts({name: request.uids.get(name) for name in part})
                    answer = await self._guard.ask(asked, patience_s=_PATIENCE_S)
                    found |= {name: _account(*account) for name, account in answer["users"].items()}
                    left = left[len(part) :]
        except TimeoutError:
            problem = "the guard does not answer"
        except (GuardGone, GuardRefused) as error:
            problem = str(error)
        found |= {name: _account(-1, -1, "", f"cannot be looked up: {problem}") for name in left}
        return Surveyed(request.request, now_us, found)


def _account(uid: int, gid: int, home: str, problem: str) -> Account:
    """``uid`` and ``gid`` are -1 of a user who could not be looked up."""
    return Account(uid if uid >= 0 else NO_UID, gid if gid >= 0 else NO_UID, home, problem)
