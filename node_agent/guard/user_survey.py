"""What users are on this node. Agents ask their guard: their own unit hides homes (``ProtectHome=``)."""

import contextlib
import os
import signal
from typing import Any, Final

from cosched.linux import users
from cosched.linux.accounts import accounts
from cosched.linux.process import US_PER_S
from node_agent.guard.children import Children
from node_agent.guard.loop import Loop
from node_agent.guard.requests import Accounts, Refusal
from node_agent.guard.server import Answer
from node_agent.guard.settings import Security

_PATIENCE_US: Final = 3 * US_PER_S


class UserSurvey:
    """Looks users and their homes up in a child: name services and file systems may not answer."""

    def __init__(self, security: Security, children: Children, loop: Loop) -> None:
        self._security = security
        self._children = children
        self._loop = loop
        self._running = False

    def answer(self, request: Accounts, answer: Answer) -> None:
        """Answer {users}, or the refusal. One child at a time: one that waits for a file system cannot be ended."""
        if self._running:
            answer(Refusal("busy", "an earlier question still waits for the user database or a home"))
            return
        open_ = True

        def once(found: dict[str, Any] | Refusal) -> None:
            nonlocal open_
            if open_:
                open_ = False
                answer(found)

        def done(found: dict[str, Any]) -> None:
            self._running = False
            once(Refusal(found["error"], found["message"]) if "error" in found else found)

        def give_up() -> None:
            if open_:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                once(Refusal("failed", "the user database, or a home, does not answer"))

        pid = self._children.errand(lambda: {"users": accounts(request.users, self._resolve)}, done)
        self._running = True
        self._loop.later(_PATIENCE_US, give_up)

    def _resolve(self, name: str, submitter: int | None) -> users.User:
        security = self._security
        return users.resolve(
            name, users=security.users, min_uid=security.min_uid, allow_root=security.allow_root, submitter=submitter
        )
