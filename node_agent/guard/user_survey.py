"""What users are on this node. Agents ask their guard: their own unit hides homes (``ProtectHome=``)."""

import contextlib
import os
import signal
from typing import Any, Final

from cosched.linux import users
from cosched.linux.accounts import Found, accounts, unseen
from cosched.linux.process import US_PER_S
from node_agent.guard.children import Children
from node_agent.guard.loop import Loop
from node_agent.guard.requests import Accounts, Refusal
from node_agent.guard.server import Answer
from node_agent.guard.settings import Security

_PATIENCE_US: Final = 3 * US_PER_S
#: So long the child waits for one user's account or home, and for those of all.
_EACH_S: Final = 0.5
_ALL_S: Final = 2.0
#: Children that wait for the user database or a home; each waits for another user than those before.
_MOST_LATE: Final = 8


class UserSurvey:
    """Looks users and their homes up in a child: name services and file systems may not answer.

    One child that has not answered at a time. One that waits for a file system cannot always be ended: its users are
    not looked up again before it is gone, others are.
    """

    def __init__(self, security: Security, children: Children, loop: Loop) -> None:
        self._security = security
        self._children = children
        self._loop = loop
        self._running = False
        #: By child: users whose look-up timed out, with what it has found so far.
        self._late: dict[int, dict[str, Found]] = {}

    def answer(self, request: Accounts, answer: Answer) -> None:
        """Answer {users}, or the refusal."""
        known = {name: each for found in self._late.values() for name, each in found.items() if name in request.users}
        asked = {name: submitter for name, submitter in request.users.items() if name not in known}
        if not asked:
            answer({"users": known})
            return
        if self._running or len(self._late) >= _MOST_LATE:
            answer(Refusal("busy", "an earlier question still waits for the user database or a home"))
            return
        open_ = True

        def heard(found: dict[str, Any]) -> None:
            """The child has answered, or died, or was given up."""
            nonlocal open_
            if open_:
                open_, self._running = False, False
                answer(Refusal(found["error"], found["message"]) if "error" in found else told(found))

        def told(found: dict[str, Any]) -> dict[str, Any]:
            if late := found.pop("late"):
                self._late[pid] = {name: found["users"][name] for name in late}
            found["users"] |= known
            return found

        def gone(found: dict[str, Any]) -> None:
            heard(found)
            self._late.pop(pid, None)

        def give_up() -> None:
            if open_:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                self._late[pid] = dict.fromkeys(asked, unseen())
                heard({"error": "failed", "message": "the user database, or a home, does not answer"})

        def looked_up() -> dict[str, Any]:
            users, late = accounts(asked, self._resolve, _EACH_S, _ALL_S)
            return {"users": users, "late": late}

        pid = self._children.errand(looked_up, gone, heard)
        self._running = True
        self._loop.later(_PATIENCE_US, give_up)

    def _resolve(self, name: str, submitter: int | None) -> users.User:
        security = self._security
        return users.resolve(
            name, users=security.users, min_uid=security.min_uid, allow_root=security.allow_root, submitter=submitter
        )
