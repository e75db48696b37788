"""Which job a process of this node belongs to.

By its cgroup, which it cannot leave: ``…/cosched/job-ID.ATTEMPT``. Where there are no cgroups the guard is asked, which
knows its own by descent and by a mark; so it is where /proc hides others' processes from the agent (``hidepid``).
"""

import os
import re
from pathlib import Path

from cosched.linux.cgroups import read_pids_below
from node_agent.guard.base import requests
from node_agent.guard.base.client import GuardRefused
from node_agent.service.guard import Guard

_JOB = re.compile(r"job-(\d+)\.(\d+)")
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
        by_cgroup = self.by_cgroup(pid)
        if by_cgroup is not None:
            return by_cgroup
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

    def tasks(self) -> set[int]:
        """The processes of all jobs: those in their cgroups, or where there are none all below the guard."""
        tops = [self._mount / tree / self._cosched.lstrip("/") for tree in _TREES]
        top = next((each for each in tops if each.is_dir()), None)
        if top is None:
            guard = self._guard.pid
            return below({guard}, self._proc) - {guard} if guard else set()
        return {pid for group in top.glob("job-*") for pid in read_pids_below(str(group))}

    def by_cgroup(self, pid: int) -> tuple[int, int] | None:
        """Job and attempt of a process by its cgroup alone; None where it is in none of a job."""
        try:
            lines = (self._proc / str(pid) / "cgroup").read_text().splitlines()
        except OSError:
            return None
        for line in lines:
            path = line.split(":", 2)[-1]
            if path.startswith(f"{self._cosched}/"):
                found = _JOB.fullmatch(path[len(self._cosched) + 1 :].partition("/")[0])
                if found:
                    return int(found[1]), int(found[2])
        return None


def below(roots: set[int], proc: Path = Path("/proc")) -> set[int]:
    """Processes and all their descendants."""
    children: dict[int, list[int]] = {}
    for name in os.listdir(proc):
        if name.isdigit():
            children.setdefault(_parent(int(name), proc), []).append(int(name))
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children.get(pid, ())
    return found


def _parent(pid: int, proc: Path) -> int:
    """A process's parent; 0 for none, or when it has ended."""
    try:
        return int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0
