"""The guard's desk in the test's own process, without its loop: what is said there, and what it did about it."""

import contextlib
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

from node_agent.guard.base.records import Records
from node_agent.guard.desk.doors import Peer
from node_agent.guard.desk.hours import MINUTES
from node_agent.guard.desk.owners_word import OwnersWord
from node_agent.guard.desk.pause import Pause
from node_agent.guard.desk.switch import Desk, Reach

#: What a guard says of its limits.
LIMITS: Final[dict[str, Any]] = {
    "armed": True, "contract": {"cpu_ratio": 1.0}, "contract_cpus": None,
    "limits": {"cpus": None, "idle": False},
}  # fmt: skip

#: All that decides about a desk.
DECIDES: Final[list[dict[str, Any]]] = [
    {"do": "end"}, {"do": "end", "job": 1}, {"do": "ban", "user": "bob"}, {"do": "allow", "user": "bob"},
    {"do": "hours", "windows": None}, {"do": "share", "cpu_ratio": None}, {"do": "pause"}, {"do": "resume"},
    {"do": "wake", "on": True},
]  # fmt: skip


def outside_now() -> list[list[Any]]:
    """Hours that this moment is not in, nor the next minutes."""
    now = time.localtime()
    begin = (now.tm_hour * 60 + now.tm_min + 120) % MINUTES
    return [[begin, (begin + 60) % MINUTES or MINUTES, [*range(7)]]]


class DeskAlone:
    """``held`` is what it last had jobs do; ``complaints`` what its loop was told of mistakes; ``changes``
    how often the guard was to tell the agent.
    """

    def __init__(self, directory: Path, users: tuple[str, ...] = ()) -> None:
        """What it keeps is in that directory, its sockets are too."""
        self.held: bool | None = None
        self.holds: list[tuple[bool, int]] = []  # all that it had them do, and since when
        self.jobs: list[dict[str, Any]] = []  # that are shown
        self.is_job = False  # whether who asks is a job's process
        self.shares: list[float | None] = []  # of the CPU, that it left to jobs
        self.complaints: list[str] = []
        self.changes = 0
        loop: Any = SimpleNamespace(
            watch=lambda *_, **__: None, unwatch=lambda *_: None, complain=lambda what, _: self.complaints.append(what)
        )
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
        records = Records(self._directory)
        pause = Pause(records, opted_out=False)
        reach = Reach(
            hold=self._hold,
            share=self.shares.append,
            probe=lambda _: True,
            jobs=lambda: self.jobs,
            end=lambda _: [],
            ended=list,
            is_job=lambda _: self.is_job,
            limits=lambda: LIMITS,
            changed=self._changed,
        )
        self.desk = Desk(loop, str(directory), records, pause, OwnersWord(records), users, os.geteuid(), reach)

    def _hold(self, held: bool, since_us: int) -> None:
        self.held = held
        self.holds.append((held, since_us))

    def _changed(self) -> None:
        self.changes += 1

    def said(self, uid: int, do: str, **fields: object) -> dict[str, Any]:
        """The answer to a request of this process, as it would be to that user."""
        return self.heard(uid, json.dumps({"do": do, **fields}).encode())

    def heard(self, uid: int, packet: bytes) -> dict[str, Any]:
        """The answer to a packet."""
        pidfd = os.pidfd_open(os.getpid())
        try:
            answer: dict[str, Any] = json.loads(self.desk._heard(packet, Peer(os.getpid(), uid, pidfd)))
            return answer
        finally:
            os.close(pidfd)

    def close(self) -> None:
        self.desk.close()
        os.close(self._directory)


@contextlib.contextmanager
def desk_alone(directory: Path, users: tuple[str, ...] = ()) -> Iterator[DeskAlone]:
    """One that is closed afterwards."""
    made = DeskAlone(directory, users)
    try:
        yield made
    finally:
        made.close()
