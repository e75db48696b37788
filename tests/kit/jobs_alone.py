"""The jobs of a guard in the test's own process, in made time: without a kernel, processes, a loop."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cosched.linux import process, users
from cosched.linux.cgroup_none import CgroupsNone
from cosched.linux.cgroups import GroupUsage
from cosched.linux.process import US_PER_S
from node_agent.guard.base.children import Child, Errand
from node_agent.guard.base.records import Records
from node_agent.guard.base.requests import Forget, Kill, Prepare, Refusal, Resize, Slots, Spawn, Weigh
from node_agent.guard.base.settings import Settings
from node_agent.guard.launcher import freezer, levers
from node_agent.guard.launcher.desk_jobs import DeskJobs
from node_agent.guard.launcher.groups import Group, Shared
from node_agent.guard.launcher.jobs import Jobs

KEY, NAME = (1, 1), "job-1.1"
HOUR_US = 3600 * US_PER_S
LIMIT_US = 600 * US_PER_S


class Kernel(CgroupsNone):
    """Two CPUs, and control groups whose processes only die of SIGKILL. Keeps what was set and sent."""

    kernel_groups = True

    def __init__(self) -> None:
        super().__init__("a test")
        self._cpus = [0, 1]
        self.populated: set[str] = set()
        self.memory_bytes = 0  # that each has in use
        self.frozen: set[str] = set()
        self.held: set[str] = set()
        self.weights: dict[str, tuple[int, bool]] = {}
        self.limits: tuple[float | None, bool, int] = (None, False, 0)
        self.unstoppable = False
        self.sent: list[tuple[str, int]] = []

    def set_limits(self, cpus: float | None, idle: bool, memory_bytes: int) -> list[str]:
        self.limits = cpus, idle, memory_bytes
        return []

    def procs(self, name: str) -> list[int]:
        return [1] if name in self.populated else []

    def empty(self, name: str) -> bool:
        return name not in self.populated

    def usage(self, name: str) -> GroupUsage:
        return GroupUsage(0, self.memory_bytes)

    def signal(self, name: str, number: int, group: int | None = None) -> int:
        self.sent.append((name, number))
        return 1

    def kill(self, name: str) -> None:
        self.signal(name, signal.SIGKILL)
        self.populated.discard(name)

    def freeze(self, name: str, *, frozen: bool, anew: bool = False) -> bool:
        if self.unstoppable:
            raise OSError(16, "busy")
        (self.frozen.add if frozen else self.frozen.discard)(name)
        return True

    def confine(self, name: str, cpus: Any) -> bool:
        return True

    def weigh(self, name: str, percent: int, idle: bool) -> None:
        self.weights[name] = percent, idle

    def hold(self, name: str, *, held: bool) -> None:
        (self.held.add if held else self.held.discard)(name)


class JobsAlone:
    """A guard's jobs; time passes when a test says so. ``answers`` are those that came late."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_us = self.paused_us = 1000 * US_PER_S
        self.paused = ""  # why nothing may start
        self.ceiling = False  # whether there is one, so that who waits for a turn is held
        for module in (process, freezer, levers):
            monkeypatch.setattr(module, "boottime_us", lambda: self.now_us)
        self.kernel = Kernel()
        self.events: list[dict[str, Any]] = []
        self.answers: list[object] = []
        for name in ("records", "jobs"):
            (directory / name).mkdir()
        self._fds = [os.open(directory / name, os.O_RDONLY | os.O_DIRECTORY) for name in ("records", "jobs")]
        self.start()

    def start(self) -> None:
        """The first guard, or one that takes over what a killed one has left."""
        self._errands: list[Errand] = []
        self._supervisors: list[Child] = []
        self._supervisor: dict[tuple[int, int], Child] = {}
        loop: Any = SimpleNamespace(complain=lambda *_: None, later=lambda *_: None, fork=self._fork)
        self.groups: dict[tuple[int, int], Group] = {}
        self._records = Records(self._fds[0])
        shared = Shared(self.groups, self.kernel, self._records, loop, self.events.append)
        self.jobs = Jobs(
            Settings(2, 1 << 30), shared, self._fds[1], agent_uid=0, private_tmp=False, holds=lambda: self.ceiling,
            idle=lambda: False, memory_bytes=lambda: 1 << 30, paused=lambda: self.paused, banned=lambda _: "",
        )  # fmt: skip
        self.jobs.adopt()
        self.desk = DeskJobs(shared, self.jobs.endings, self.jobs.cpu_sets)

    def _fork(self, child: Child) -> None:
        (self._errands if isinstance(child, Errand) else self._supervisors).append(child)  # type: ignore[arg-type]

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)

    # --- requests -----------------------------------------------------------------------------------------------------

    def prepare(self, job: int = 1, **fields: Any) -> Group:
        """Have a job made ready, for ten minutes at most."""
        usual: dict[str, Any] = {"directory": "/", "tasks": 1, "memory_bytes": None, "limit_us": LIMIT_US}
        self.jobs.prepare(
            Prepare(job=job, attempt=1, user="ada", **(usual | {"grace_us": US_PER_S} | fields)),
            (),
            self.answers.append,
        )
        self._do_errands()
        return self.groups[job, 1]

    def run(self, job: int = 1, **fields: Any) -> Group:
        """A job whose script runs."""
        group = self.prepare(job, **fields)
        self.spawn(job)
        return group

    def spawn(self, job: int = 1, n: int = 0) -> None:
        """Have a command started, and begin."""
        self.jobs.spawn(Spawn(job, 1, n, ("true",), {}, "/"), (), self.answers.append)
        self._supervisor[job, n] = self._supervisors.pop()
        self._records.write({"supervisor": None}, "run", job, 1, n)
        self.kernel.populated.add(self.groups[job, 1].name)
        self._supervisor[job, n].heard({"pid": 4711})

    def share(self, n: int, cpus: int | None, job: int = 1, tasks: int = 1, *, asleep: bool = False) -> list[int]:
        cpus_given: list[int] = self.jobs.resize(Resize(job, 1, n, tasks, cpus, asleep))["cpus"]
        return cpus_given

    def cpus(self, *jobs: int) -> list[list[int]]:
        """What jobs were given."""
        return [list(self.jobs.cpu_sets.cpus(self.groups[job, 1])) for job in jobs]

    def kill(self, grace_us: int = 0, job: int = 1) -> None:
        self.jobs.kill(Kill(job, 1, grace_us))

    def forget(self, job: int = 1) -> None:
        self.jobs.forget(Forget(job, 1), (), self.answers.append)
        self._do_errands()

    def weigh(self, percent: int, lasting_us: int, job: int = 1) -> int:
        until_us: int = self.jobs.weigh(Weigh(job, 1, percent, self.now_us + lasting_us))["until_us"]
        return until_us - self.now_us

    def turns(self, slot_us: int, lasting_us: int) -> None:
        """Jobs 1 and 2 take turns, the first one's begins now."""
        self.jobs.slots(Slots(self.now_us, slot_us, (((1, 1),), ((2, 1),)), self.now_us + lasting_us))

    def refusal(self, what: str, *given: Any, **named: Any) -> tuple[str, str]:
        """The code and the words with which one of these is refused."""
        with pytest.raises(Refusal) as refused:
            getattr(self, what)(*given, **named)
        return refused.value.code, str(refused.value)

    def pause(self) -> None:
        self.paused_us = self.now_us
        self.jobs.freeze(True, self.paused_us)

    def resume(self) -> None:
        self.jobs.freeze(False, self.paused_us)

    # --- what happens -------------------------------------------------------------------------------------------------

    def ends(self, job: int = 1, n: int = 0) -> None:
        """A command ends by itself, as the last of its job."""
        self.kernel.populated.discard(self.groups[job, 1].name)
        self._supervisor[job, n].heard({"exited": {"status": 0, "signal": None, "cause": "own"}})
        self.passes(1)

    def passes(self, us: int) -> None:
        self.now_us += us
        for duty in (self.jobs.levers, self.jobs.endings, self.jobs.cpu_sets, self.jobs.freezer):
            duty.tick(self.now_us)

    def killed(self, job: int = 1) -> None:
        """Killed, until nothing is left."""
        self.kill(job=job)
        for child in [child for (of, _), child in self._supervisor.items() if of == job]:
            child.heard({"exited": {"status": None, "signal": 9, "cause": "killed"}})
        for _ in range(3):
            self.passes(US_PER_S // 10)
        assert self.groups[job, 1].state == "ended"

    def killed_after_us(self, name: str = NAME) -> int:
        """How long it takes from now on until it is killed."""
        begun_us = self.now_us
        while (name, signal.SIGKILL) not in self.kernel.sent:
            assert self.now_us - begun_us < 2 * HOUR_US
            self.passes(100_000)
        return self.now_us - begun_us

    def _do_errands(self) -> None:
        while self._errands:
            self._errands.pop(0).settle({"user": list(users.of_uid(os.getuid()))})
