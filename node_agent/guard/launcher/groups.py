"""An attempt at a job on this node as the guard knows it; what happens to it is in ``jobs``.

:class:`Shared` is what the parts of the launcher have in common.
"""

import os
import signal
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from cosched.linux import process, users
from cosched.linux.cgroups import Cgroups, group_name
from node_agent.guard.base.loop import Loop
from node_agent.guard.base.records import Record, Records
from node_agent.guard.base.requests import Prepare, Refusal

#: Processes and threads a job may have: so many, and so many more for each task.
_PROCESSES: Final = 512
_PROCESSES_PER_TASK: Final = 128
#: Ended commands shown and kept; a script may call mpirun a thousand times.
ENDED_KEPT: Final = 12
UNKNOWN: Final[Record] = {"status": None, "signal": None, "cause": "unknown"}
#: What a record has of a group beside the request, its user and its mark; one of an earlier version has not all.
_KEPT: Final = (
    "deadline_us", "ending", "kill_at_us", "eased", "processors", "stopped_us", "since_us", "asleep", "resize_order",
)  # fmt: skip

#: (job, attempt)
Key = tuple[int, int]


class Command:
    """The n-th command of an attempt. ``exit``: its record once it has ended; ``pidfd``: its supervisor, who lives.

    While it is ``starting``, ``child`` (pid, start time) is the process that is to become it; ``withdrawn``: it never
    will. ``answers`` are taken by those who have asked for it.
    """

    def __init__(self, n: int, *answers: Callable[[dict[str, Any] | Refusal], None]) -> None:
        self.n = n
        self.pid = 0
        self.state = "starting"
        self.exit: Record | None = None
        self.pidfd: int | None = None
        self.child: tuple[int, int] | None = None
        self.withdrawn = False
        self.answers = [*answers]

    def answer(self, found: dict[str, Any] | Refusal) -> None:
        """Answer whoever has asked for it, once."""
        answers, self.answers = self.answers, []
        for each in answers:
            each(found)

    def kill_unexecuted(self) -> bool:
        """Kill a command that has not begun: whether it never will. False: what its supervisor says next tells."""
        if self.child is None:  # nothing goes on before the supervisor has said who its child is
            if self.pidfd is not None:
                process.send_by_fd(self.pidfd, signal.SIGKILL)
            return False
        if self.executed() or (pidfd := process.open_if_same(*self.child)) is None:
            return False
        process.send_by_fd(pidfd, signal.SIGKILL)
        os.close(pidfd)
        return not self.executed()  # after the kill: what has not been executed by now never is

    def executed(self) -> bool:
        """Whether its process has executed a program, or is gone."""
        assert self.child is not None
        now = process.stat_of(self.child[0])
        return now is None or now.start_ticks != self.child[1] or now.executed

    def let_go(self) -> None:
        """Its supervisor has ended."""
        if self.pidfd is not None:
            os.close(self.pidfd)
            self.pidfd = None

    def status_fields(self) -> dict[str, Any]:
        """For ``list``."""
        found: dict[str, Any] = {"n": self.n, "state": self.state, "pid": self.pid}
        if self.exit is not None:
            found.update({key: self.exit.get(key) for key in ("status", "signal", "cause")})
        return found


class Group:
    """An attempt at a job: what was asked for, its commands, and how far its end has come."""

    def __init__(self, request: Prepare, mark: str = "", *, unrecorded: bool = False) -> None:
        self.request = request
        self.name = group_name(request.job, request.attempt)
        self.mark = mark or os.urandom(8).hex()
        self.user: users.User | None = None  # known when it is prepared
        self.commands: dict[int, Command] = {}
        self.deadline_us: int | None = None
        self.ending: str | None = None  # the cause: limit, killed, owner
        self.kill_at_us: int | None = None
        self.poll_at_us: int | None = None
        self.save_at_us: int | None = None  # when its record, which could not be written, is tried again
        self.poll_every_us = 0
        self.killed_us: int | None = None  # when its processes were killed first
        self.looked_us = 0  # when its remaining processes were last looked at (``stalls``)
        self.errand: int | None = None  # a child of the guard that did not make it ready in time, and has not ended
        self.told_empty = True
        self.watch_fd: int | None = None
        self.removing = False
        self.unrecorded = unrecorded  # found without a record: what runs, runs on, and nothing more is started
        self.processors: tuple[int, ...] = ()  # of the node's, that it may use alone; none: any (``cpu_sets``)
        self.by_affinity = False  # no controller keeps it to its processors
        self.ranks = 0  # how many it had here at the latest look (``easing``)
        self.since_us: int | None = None  # when it was made ready; None: not known
        self.stopped_us: int | None = None  # since when it has no CPU and its processes are stopped
        self.asleep = False  # its processes come after all others
        self.resize_order = 0  # the number of the newest order that has changed its share
        self.eased = False  # its one stretch beside the owner has begun (``easing``)
        self.problems: list[str] = []

    @property
    def key(self) -> Key:
        """(job, attempt)."""
        return self.request.key

    @property
    def memory_bytes(self) -> int | None:
        """The job's limit on this node."""
        per_task = self.request.memory_bytes
        return None if per_task is None else per_task * self.request.tasks

    @property
    def processes(self) -> int:
        """How many processes and threads it may have."""
        return _PROCESSES + _PROCESSES_PER_TASK * self.request.tasks

    @property
    def alive(self) -> list[Command]:
        """Commands whose end is not known."""
        return [command for command in self.commands.values() if command.state != "ended"]

    @property
    def state(self) -> str:
        """preparing, prepared, running, empty (nothing runs, more may come), ending, ended (nothing more may come)."""
        if self.user is None and not self.ending and not self.unrecorded:
            return "preparing"
        if self.alive or self.errand is not None or not self.told_empty:
            return "ending" if self.ending else "running"
        if self.ending:
            return "ended"
        return "empty" if self.commands or self.unrecorded else "prepared"

    @property
    def present(self) -> bool:
        """Whether processes of it may be here, or its first is still to be started."""
        return self.state not in {"empty", "ended"}

    def record(self) -> Record:
        """For ``state/records``: all that a successor of this guard must know."""
        return {
            "boot_id": process.boot_id(),
            "request": vars(self.request),
            "user": self.user,
            "mark": self.mark,
            **{name: getattr(self, name) for name in _KEPT},
        }

    @classmethod
    def of_record(cls, record: Record) -> "Group":
        """What a predecessor of this guard knew. Raises KeyError, TypeError or ValueError for a damaged record."""
        group = cls(Prepare(**record["request"]), str(record["mark"]))
        group.user = users.User(*record["user"])
        for name in _KEPT:
            setattr(group, name, record.get(name, getattr(group, name)))
        group.processors = tuple(group.processors)
        return group


class Shared(NamedTuple):
    """The attempts at jobs, and what all parts of the launcher act with. ``emit`` takes events of the protocol."""

    groups: dict[Key, Group]
    cgroups: Cgroups
    records: Records
    loop: Loop
    emit: Callable[[dict[str, Any]], None]


def group_of(pid: int, groups: Iterable[Group], cgroups: Cgroups) -> Group | None:
    """The one of these that a process is in; None: no job's."""
    return next((group for group in groups if pid in cgroups.procs(group.name)), None)
