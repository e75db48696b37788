"""How a machine is used, by side: tasks of jobs, the owner's processes, the rest (``cosched.model.node.Usage``).

From the accounting of cgroups, where jobs and the desk have one each, and for the machine as a whole from psutil: a few
small files a look. Without such cgroups from ``/proc``, every process by its user and by whether a job is its ancestor;
that costs more, so it is done less often, and not by psutil, which takes four times as long for it (its cost is in
docs/design/dependencies.md).
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import psutil

from cosched.linux.cgroups import read_fields, read_number
from cosched.linux.process import CPU_TICKS_PER_S, all_pids
from cosched.linux.users import NOBODY
from cosched.model.node import Usage

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")
_SCAN_EVERY_S = 5.0
_SHORTEST_S = 0.05  # a period below this says nothing
_NO_RATES = (-1.0, -1.0, -1.0)


class _Sides(NamedTuple):
    """CPU seconds since a beginning that is another for cgroups (``by_groups``) and for processes, and bytes."""

    parallel: float
    local: float
    total: float
    parallel_bytes: int
    local_bytes: int
    total_bytes: int
    within: bool  # whether total is that of a cgroup around both, not the whole machine's
    by_groups: bool


class Load:
    """The use of this machine, or of the part of it whose cgroup holds the parallel side's and the desk's."""

    def __init__(
        self,
        mount: Path,
        cosched: str,
        desk: str,
        memory_bytes: int,
        *,
        own: Callable[[], set[int]],
        tasks: Callable[[], set[int]],
        min_uid: int = 1000,
        use_cgroups: bool = True,
    ) -> None:
        """``own``: the agent's and its guard's processes; ``tasks``: those of jobs (asked if there are no cgroups)."""
        self._groups = _Accounts(mount) if use_cgroups else None
        self._cosched, self._desk = cosched.strip("/"), desk.strip("/")
        self._memory_bytes = memory_bytes
        self._own, self._tasks, self._min_uid = own, tasks, min_uid
        self._before: _Sides | None = None
        self._before_s = 0.0
        self._seen: dict[int, tuple[float, float]] = {}  # pid -> start, CPU seconds (where there are no cgroups)
        self._spent = [0.0, 0.0]
        self._last = Usage()
        self.by_groups = False  # whether the last look had both cgroups to ask

    def look(self, shortest_s: float = _SHORTEST_S) -> Usage:
        """The use since the last look; the same again within ``shortest_s``.

        There are no CPU figures (-1) at the first look, and where cgroups have come or gone since the one before.
        """
        now_s = time.monotonic()
        before, period_s = self._before, now_s - self._before_s
        if period_s < shortest_s:
            return self._last
        by_groups = self._by_groups()
        self.by_groups = by_groups is not None
        if by_groups is None and before is not None and period_s < _SCAN_EVERY_S:
            return self._last
        sides = by_groups or self._by_processes()
        self._before, self._before_s = sides, now_s
        used = sides.parallel_bytes + sides.local_bytes
        available = psutil.virtual_memory().available
        self._last = Usage(
            *(_rates(before, sides, period_s) if before and before.by_groups == sides.by_groups else _NO_RATES),
            sides.parallel_bytes,
            sides.local_bytes,
            max(0, sides.total_bytes - used),
            max(0, min(available, self._memory_bytes - (sides.total_bytes if sides.within else used))),
            os.getloadavg()[0],
        )
        return self._last

    def _by_groups(self) -> _Sides | None:
        if self._groups is None:
            return None
        parallel, local = self._groups.of(self._cosched), self._groups.of(self._desk)
        if parallel is None or local is None:
            return None
        parent = self._cosched.rpartition("/")[0]
        within = self._groups.of(parent) if parent and parent == self._desk.rpartition("/")[0] else None
        cpu_s, used_bytes = within or (_machine_cpu_s(), _machine_bytes())
        return _Sides(
            parallel[0], local[0], cpu_s, parallel[1], local[1], used_bytes, within is not None, by_groups=True
        )

    def _by_processes(self) -> _Sides:
        """Every process by its side. CPU of those that came and went between two looks is the system's."""
        tasks, own = self._tasks(), self._own()
        sizes = [0, 0]
        seen: dict[int, tuple[float, float]] = {}
        for pid in all_pids():
            try:
                uid = os.stat(f"/proc/{pid}").st_uid
                with open(f"/proc/{pid}/stat", "rb") as file:
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue  # ended since
            if pid in tasks:
                side = 0
            elif self._min_uid <= uid != NOBODY and pid not in own:
                side = 1
            else:
                continue
            start_s, cpu_s = float(fields[19]), (int(fields[11]) + int(fields[12])) / CPU_TICKS_PER_S
            known = self._seen.get(pid)
            if self._before is not None:
                self._spent[side] += max(0.0, cpu_s - known[1]) if known and known[0] == start_s else cpu_s
            seen[pid] = (start_s, cpu_s)
            sizes[side] += int(fields[21]) * _PAGE_BYTES
        self._seen = seen
        cpu_s, used_bytes = _machine_cpu_s(), _machine_bytes()
        return _Sides(
            self._spent[0], self._spent[1], cpu_s, sizes[0], sizes[1], used_bytes, within=False, by_groups=False
        )


def _machine_cpu_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system + times.irq + times.softirq)


def _machine_bytes() -> int:
    memory = psutil.virtual_memory()
    return max(0, memory.total - memory.available)


def _rates(before: _Sides, now: _Sides, period_s: float) -> tuple[float, float, float]:
    parallel, local, total = (
        max(0.0, after - earlier) / period_s for after, earlier in zip(now[:3], before[:3], strict=True)
    )
    return parallel, local, max(0.0, total - parallel - local)


class _Accounts:
    """What a cgroup's processes have used, in either version."""

    def __init__(self, mount: Path) -> None:
        self._unified = (mount / "cgroup.controllers").exists()
        cpu = next((mount / name for name in ("cpuacct", "cpu,cpuacct") if (mount / name).is_dir()), mount / "cpuacct")
        self._cpu, self._memory = (mount, mount) if self._unified else (cpu, mount / "memory")

    def of(self, group: str) -> tuple[float, int] | None:
        """CPU seconds and bytes (without page cache that can go), or None where there is no such group."""
        cpu, memory = self._cpu / group, self._memory / group
        caches = read_fields(str(memory / "memory.stat"))
        if self._unified:
            cpu_us: float = read_fields(str(cpu / "cpu.stat")).get("usage_usec", -1)
            used, cache = read_number(str(memory / "memory.current")), caches.get("inactive_file", -1)
        else:
            cpu_us = read_number(str(cpu / "cpuacct.usage"), -1000) / 1000
            used, cache = read_number(str(memory / "memory.usage_in_bytes")), caches.get("total_inactive_file", -1)
        return None if min(cpu_us, used, cache) < 0 else (cpu_us / 1e6, max(0, used - cache))
