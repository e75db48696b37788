"""Which job a process of this node belongs to.

By its cgroup, which it cannot leave: ``…/cosched/job-ID.ATTEMPT``. Where there are no cgroups the guard is asked, which
knows its own by descent and by a mark; so it is where /proc hides others' processes from the agent (``hidepid``).
"""

import os
import socket
from collections.abc import Hashable
from pathlib import Path

import psutil

from cosched.linux.cgroups import job_of, read_pids_below
from cosched.linux.peers import peer_credentials
from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardRefused
from node_agent.service.guard import Guard

_TREES = ("", "freezer", "cpuacct", "cpu", "pids", "memory")


class JobLookup:
    """Looks processes up."""

    def __init__(self, guard: Guard, cosched: str, mount: Path, proc: Path = Path("/proc")) -> None:
        self._guard = guard
        self._cosched = "/" + cosched.strip("/")
        self._mount = mount
        self._proc = proc
        self._asked, self._grouped = -1, False

    async def attempt_of(self, pid: int) -> tuple[int, int] | None:
        """Job and attempt of a process, or None for one that is in none. Raises :class:`GuardGone`."""
        if (found := self.by_cgroup(pid)) is not None:
            return found
        try:
            if await self._has_groups() and os.access(self._proc / "1" / "cgroup", os.R_OK):
                return None
            answer = await self._guard.ask(requests.Whose(pid))
        except GuardRefused:
            return None
        return int(answer["job"]), int(answer["attempt"])

    async def _has_groups(self) -> bool:
        """Whether the guard's jobs are in cgroups: then it has nothing to add. Asked once of each guard."""
        guard = self._guard.pid
        if self._asked != guard:
            can = (await self._guard.ask(requests.Status())).get("can") or {}
            self._asked, self._grouped = guard, can.get("cgroups", "none") != "none"
        return self._grouped

    def job_or_user(self, connection: socket.socket) -> Hashable:
        """The job that the process at the other end of a connection belongs to by its cgroup, else its user."""
        pid, uid, _ = peer_credentials(connection)
        return self.by_cgroup(pid) or uid

    def tasks(self) -> set[int]:
        """The processes of all jobs: those in their cgroups, or where there are none all below the guard."""
        tops = [self._mount / tree / self._cosched.lstrip("/") for tree in _TREES]
        top = next((each for each in tops if each.is_dir()), None)
        if top is None:
            try:
                return {each.pid for each in psutil.Process(self._guard.pid).children(recursive=True)}
            except (psutil.Error, OSError):  # no guard; or /proc hides it
                return set()
        return {pid for group in top.glob("job-*") for pid in read_pids_below(str(group))}

    def by_cgroup(self, pid: int) -> tuple[int, int] | None:
        """Job and attempt of a process by its cgroup alone; None where it is in none of a job."""
        try:
            lines = (self._proc / str(pid) / "cgroup").read_text().splitlines()
        except OSError:
            return None
        side = f"{self._cosched}/"
        below = (path.removeprefix(side) for line in lines if (path := line.split(":", 2)[-1]).startswith(side))
        return next(filter(None, (job_of(way.partition("/")[0]) for way in below)), None)
