"""What users are on this node, for ``cosched doctor``: whether the nodes agree on who is who."""

import time
from typing import Final

from cosched.wire.messages import Account, Survey, Surveyed
from node_agent.guard import fields, requests
from node_agent.guard.client import GuardGone, GuardRefused
from node_agent.service.guard import Guard

#: The guard gives up a question of its own after 3 s.
_PATIENCE_S: Final = 5.0


async def surveyed(request: Survey, guard: Guard) -> Surveyed:
    """The answer: users by name as this node's user database has them, those it does not know left out."""
    now_us = time.time_ns() // 1000
    users = [name for name in request.users if fields.is_user(name)]  # no other is known anywhere
    asked = requests.Accounts({name: request.uids.get(name) for name in users})
    try:
        answer = await guard.ask(asked, patience_s=_PATIENCE_S)
        found = {name: Account(*account) for name, account in answer["users"].items()}
    except (GuardGone, GuardRefused) as error:
        found = {name: Account(-1, -1, "", f"cannot be looked up: {error}") for name in users}
    return Surveyed(request.request, now_us, found)
