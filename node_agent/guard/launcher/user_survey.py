"""What users are on this node. Agents ask their guard: their own unit hides homes (``ProtectHome=``)."""

from collections.abc import Sequence
from typing import Any, Final

from cosched.linux.accounts import Found, accounts, unseen
from cosched.linux.process import US_PER_S
from node_agent.guard.base.children import Errand, Result
from node_agent.guard.base.loop import Loop
from node_agent.guard.base.requests import Accounts, Refusal
from node_agent.guard.base.server import Answer
from node_agent.guard.base.settings import Security

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

    def __init__(self, security: Security, loop: Loop) -> None:
        self._security = security
        self._loop = loop
        self._running = False
        #: By child: users whose look-up timed out, with what it has found so far.
        self._late: dict[int, dict[str, Found]] = {}

    def answer(self, request: Accounts, _: Sequence[int], answer: Answer) -> None:
        """Answer {users}, or the refusal."""
        known = {name: each for found in self._late.values() for name, each in found.items() if name in request.users}
        asked = {name: submitter for name, submitter in request.users.items() if name not in known}
        if not asked:
            answer({"users": known})
            return
        if self._running or len(self._late) >= _MOST_LATE:
            answer(Refusal("busy", "an earlier question still waits for the user database or a home"))
            return

        def looked_up() -> dict[str, Any]:
            users, late = accounts(asked, self._security.account, _EACH_S, _ALL_S)
            return {"users": users, "late": late}

        def done(found: Result) -> None:
            self._running = False
            if isinstance(found, Refusal):
                answer(found)
            else:
                if late := found.pop("late"):
                    self._late[errand.pid] = {name: found["users"][name] for name in late}
                answer({"users": found["users"] | known})

        def give_up() -> None:
            if not errand.settled:
                self._late[errand.pid] = dict.fromkeys(asked, unseen())
                errand.give_up("failed", "the user database, or a home, does not answer")

        errand = Errand(looked_up, done, lambda: self._late.pop(errand.pid, None))
        self._loop.fork(errand)
        self._running = True
        self._loop.later(_PATIENCE_US, give_up)
