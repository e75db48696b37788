"""Whether programs compute or communicate: what agents measured of a user's, remembered for his next job of it.

A program is a script with its arguments; on one node alone it is another one, since nobody is there to talk to. What
was measured is kept with each job in the journal; after a restart a user's last jobs are read again when he submits
the next. What is declared at submission always counts more.
"""

import hashlib
from collections.abc import Mapping
from typing import Final, Protocol

from cosched.model.effort import Effort
from cosched.wire.api import Submission
from space_scheduler.service.records import JobRecord
from space_scheduler.service.schema import JournalRefused

#: So many programs are remembered, those seen last; and so many of a user's last jobs are looked at after a restart.
MOST_PROGRAMS: Final = 10_000
MOST_JOBS: Final = 200
Program = tuple[str, bytes]


class Past(Protocol):
    """What is needed of the host of the core."""

    async def history(self, *, limit: int = 100, user: str | None = None, before: int | None = None) -> list[JobRecord]:
        """Ended jobs, the last to end first."""


class Orientations:
    """What is known of all users' programs."""

    def __init__(self, past: Past) -> None:
        self._past = past
        self._known: dict[Program, str] = {}
        self._read: set[str] = set()  # users whose past has been looked at

    def seen(self, user: str, submission: Submission, efforts: Mapping[str, Effort]) -> None:
        """Remember what was measured of a job that has ended, if that is enough to tell."""
        if kind := _total(efforts).orientation:
            self._remember(_program(user, submission), kind)

    async def kind(self, user: str, submission: Submission) -> str:
        """What the program was when this user ran it last: "cpu", "comm", or "" where that is not known."""
        if user not in self._read:
            self._read.add(user)
            try:
                past = await self._past.history(limit=MOST_JOBS, user=user)
            except JournalRefused:  # no reason to refuse a new job; who asks for the history is told
                past = []
            known = set(self._known)  # newer than all of these
            for record in reversed(past):
                if _program(user, record.submission) not in known:
                    self.seen(user, record.submission, record.facts.efforts or {})
        return self._known.get(_program(user, submission), "")

    def _remember(self, program: Program, kind: str) -> None:
        self._known.pop(program, None)
        self._known[program] = kind
        if len(self._known) > MOST_PROGRAMS:
            del self._known[next(iter(self._known))]


def measured(record: JobRecord) -> Effort:
    """What agents saw of a job, on all of its nodes."""
    return _total(record.facts.efforts or {})


def _total(efforts: Mapping[str, Effort]) -> Effort:
    total = Effort()
    for effort in efforts.values():
        total = total.plus(effort)
    return total


def _program(user: str, submission: Submission) -> Program:
    text = "\0".join([str(submission.tasks > 1), submission.script, *submission.arguments])
    return user, hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
