"""Which job a process of this node belongs to.

By its cgroup, which it cannot leave: ``…/cosched/job-ID.ATTEMPT``. Where there are no cgroups (mode ``none``), by its
ancestors: the guard knows the processes that it started, and its supervisors adopt what their children leave behind, so
the way up from any process of a job leads to one of them. Such a process can give itself away to nobody, since only
those supervisors and their descendants count.
"""

import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from node_agent.guard.client import GuardGone, GuardRefused
from node_agent.service.guard import Guard

_JOB = re.compile(r"job-(\d+)\.(\d+)")
_FRESH_S = 1.0


class Whose:
    """Looks processes up."""

    def __init__(self, guard: Guard, cosched: str, mount: Path, proc: Path = Path("/proc")) -> None:
        self._guard = guard
        self._cosched = "/" + cosched.strip("/")
        self._mount = mount
        self._proc = proc
        self._roots: dict[int, tuple[int, int]] = {}
        self._asked_s = -_FRESH_S

    async def attempt_of(self, pid: int) -> tuple[int, int] | None:
        """Job and attempt of a process, or None for one that is in none."""
        by_cgroup = self._by_cgroup(pid)
        if by_cgroup is not None:
            return by_cgroup
        return ancestor(pid, await self.roots(), self._proc)

    async def roots(self) -> dict[int, tuple[int, int]]:
        """Processes whose descendants are a job's, where the guard has to tell; empty where cgroups do."""
        if time.monotonic() - self._asked_s >= _FRESH_S:
            try:
                groups = (await self._guard.ask({"do": "list"})).get("groups", ())
            except (GuardGone, GuardRefused):
                groups = ()
            self._roots = dict(_roots(groups))
            self._asked_s = time.monotonic()
        return self._roots

    def tasks(self) -> set[int]:
        """The processes of all jobs, by their cgroups."""
        found: set[int] = set()
        for hierarchy in ("", "cpuacct", "cpu,cpuacct", "cpu", "freezer", "pids"):
            top = self._mount / hierarchy / self._cosched.lstrip("/")
            for listing in top.glob("job-*/**/cgroup.procs"):
                try:
                    found.update(int(line) for line in listing.read_text().split())
                except (OSError, ValueError):
                    continue  # removed since
            if found:
                break
        return found

    def _by_cgroup(self, pid: int) -> tuple[int, int] | None:
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


def ancestor(pid: int, roots: dict[int, tuple[int, int]], proc: Path = Path("/proc")) -> tuple[int, int] | None:
    """The job of the first of a process and its ancestors that is one of ``roots``."""
    if not roots:
        return None
    for _ in range(1000):
        if pid in roots:
            return roots[pid]
        parent = parent_of(pid, proc)
        if parent <= 1:
            return None
        pid = parent
    return None


def parent_of(pid: int, proc: Path = Path("/proc")) -> int:
    """A process's parent; 0 for none, or when it has ended."""
    try:
        return int((proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _roots(groups: Iterable[dict[str, Any]]) -> Iterable[tuple[int, tuple[int, int]]]:
    for group in groups:
        job = (int(group["job"]), int(group["attempt"]))
        for command in group.get("commands", ()):
            for key in ("supervisor", "pid"):
                if command.get(key):
                    yield int(command[key]), job
