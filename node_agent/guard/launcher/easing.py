"""What is left of a job whose ranks have ended, ``mpirun`` above all, ends beside the owner, not in the idle class.

There it would get some thousandths of the processor of an owner who computes, and hold its nodes for as long as a
minute. It has half a second of CPU on each node, once, and all such jobs together a tenth of a CPU: what a tenth is in
five seconds. Then it is among the jobs again, as it is when a rank appears.

A rank is seen by its place in the tree of processes: at its end, so that it never had a child in the job; neither left
behind by its parent, nor a remote shell, which waits for what is on another node. It is no more than a guess, and a job
may make it wrong. What that can bring it is the half second.
"""

from collections.abc import Callable
from typing import Final

from cosched.linux import process
from cosched.linux.cgroups import ENDINGS_CPUS
from cosched.linux.process import US_PER_S
from node_agent.guard.launcher.endings import Endings
from node_agent.guard.launcher.groups import Group, Key, Shared

BUDGET_US: Final = int(5 * US_PER_S * ENDINGS_CPUS)
_LOOK_US: Final = 400_000
_LOOK_EASED_US: Final = 50_000
#: A job with more processes is not looked at.
_MOST: Final = 128
#: As the kernel has it: the arguments are in the process's own memory, and reading that may wait for a file system.
_REMOTE_SHELL: Final = "cosched-rsh"

Process = tuple[int, int]  # pid, and when it started


class _Watched:
    """What has been seen of a job: who had a child, whether there were ranks; since it is eased, from which usage."""

    def __init__(self) -> None:
        self.had_child: set[Process] = set()
        self.had_ranks = False
        self.from_us: int | None = None
        self.left_us = BUDGET_US

    def look(self, pids: list[int], mains: set[int]) -> tuple[int, int]:
        """How many ranks are there now, and how many other processes; ``mains`` are the commands that the guard has
        started.
        """
        found = {pid: stat for pid in pids if (stat := process.stat_of(pid)) is not None and stat.state not in "ZX"}
        there = {(pid, stat.start_ticks) for pid, stat in found.items()}
        self.had_child &= there
        parents = {stat.parent for stat in found.values()}
        self.had_child |= {each for each in there if each[0] in parents}
        leaves = {pid: found[pid] for pid, _ in there - self.had_child}
        ranks = sum(
            stat.command != _REMOTE_SHELL and (pid in mains or stat.parent in found) for pid, stat in leaves.items()
        )
        return ranks, len(there) - ranks


class Easing:
    """Watches the jobs, and writes the record of each whose stretch has begun."""

    def __init__(self, shared: Shared, wanted: Callable[[], bool], endings: Endings) -> None:
        """``wanted``: whether jobs are in the idle class."""
        self._shared = shared
        self._wanted = wanted
        self._endings = endings
        self._watched: dict[Key, _Watched] = {}
        self._next_us = 0

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted next; None: not before a job has processes."""
        there = self._shared.cgroups.kernel_groups and any(
            not group.told_empty for group in self._shared.groups.values()
        )
        return self._next_us if there else None

    def tick(self, now_us: int) -> None:
        """Look at all jobs, if it is time to."""
        if now_us < self._next_us or not self._shared.cgroups.kernel_groups:
            return
        wait_us = _LOOK_US
        for key, group in list(self._shared.groups.items()):
            if group.user is None or group.told_empty or group.removing:
                continue
            if group.eased and key not in self._watched:  # by a predecessor of this guard
                continue
            watched = self._watched.setdefault(key, _Watched())
            if watched.left_us > 0 and self._wanted():
                self._look(group, watched)
            if watched.from_us is not None:
                wait_us = _LOOK_EASED_US
        for key in self._watched.keys() - self._shared.groups.keys():
            del self._watched[key]
        self._next_us = now_us + wait_us

    def end_all(self) -> None:
        """Everybody is among the jobs again."""
        for group in self._shared.groups.values():
            self._restrain(group)

    def _look(self, group: Group, watched: _Watched) -> None:
        pids = self._shared.cgroups.procs(group.name)
        if len(pids) > _MOST:
            return
        ranks, others = watched.look(pids, {command.pid for command in group.alive})
        if watched.from_us is not None:
            used_us = self._used_us(group)
            if ranks or used_us - watched.from_us >= watched.left_us:
                watched.left_us -= used_us - watched.from_us
                watched.from_us = None
                self._restrain(group)
        elif watched.had_ranks and not ranks and others:
            self._ease(group, watched)
        group.ranks = ranks
        watched.had_ranks |= ranks > 0

    def _ease(self, group: Group, watched: _Watched) -> None:
        watched.from_us = self._used_us(group)
        if not group.eased:
            group.eased = True
            self._endings.save(group)
        try:
            self._shared.cgroups.ease(group.name)
        except OSError:
            watched.left_us = 0  # this machine cannot
            self._restrain(group)
        self._endings.look_in(group, 0)

    def _restrain(self, group: Group) -> None:
        try:
            self._shared.cgroups.restrain(group.name)
        except OSError:
            self._next_us = 0

    def _used_us(self, group: Group) -> int:
        used_us = self._shared.cgroups.usage(group.name).cpu_us
        return (
            used_us if used_us >= 0 else process.boottime_us() * int(100 * ENDINGS_CPUS) // 100
        )  # as if all were used
