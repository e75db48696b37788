"""A guard's jobs without processes, in made time: when they end, when they stand still, and which time counts."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from cosched.linux import process, users
from cosched.linux.cgroup_none import CgroupsNone
from cosched.linux.cgroups import GroupUsage
from cosched.linux.process import US_PER_S
from node_agent.guard.base.records import Records
from node_agent.guard.base.requests import Kill, Prepare, Refusal, Resize, Spawn
from node_agent.guard.base.settings import Settings
from node_agent.guard.launcher import freezer
from node_agent.guard.launcher.desk_jobs import DeskJobs
from node_agent.guard.launcher.groups import Command, Group, Shared
from node_agent.guard.launcher.jobs import Jobs

KEY, NAME = (1, 1), "job-1.1"
HOUR_US: Final = 3600 * US_PER_S
LIMIT_US: Final = 600 * US_PER_S


class Kernel(CgroupsNone):
    """Control groups whose processes only die of SIGKILL; keeps what they were sent, and which stand still."""

    kernel_groups = True

    def __init__(self) -> None:
        super().__init__("a test")
        self.populated: set[str] = set()
        self.frozen: set[str] = set()
        self.unstoppable = False
        self.sent: list[tuple[str, int]] = []

    def procs(self, name: str) -> list[int]:
        return [1] if name in self.populated else []

    def empty(self, name: str) -> bool:
        return name not in self.populated

    def usage(self, name: str) -> GroupUsage:
        return GroupUsage(0, 0)

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


class Alone:
    """A guard's jobs; time passes when a test says so."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_us = self.paused_us = 1000 * US_PER_S
        self.paused = ""
        for module in (process, freezer):
            monkeypatch.setattr(module, "boottime_us", lambda: self.now_us)
        self.kernel = Kernel()
        self.events: list[dict[str, Any]] = []
        for name in ("records", "jobs"):
            (directory / name).mkdir()
        self._fds = [os.open(directory / name, os.O_RDONLY | os.O_DIRECTORY) for name in ("records", "jobs")]
        self.start()

    def start(self) -> None:
        """The first guard, or one that takes over what a killed one has left."""
        loop: Any = SimpleNamespace(complain=lambda *_: None, later=lambda *_: None)
        self.groups: dict[tuple[int, int], Group] = {}
        shared = Shared(self.groups, self.kernel, Records(self._fds[0]), loop, self.events.append)
        self.jobs = Jobs(
            Settings(2, 1 << 30), shared, self._fds[1], agent_uid=0, private_tmp=False, holds=lambda: False,
            idle=lambda: False, memory_bytes=lambda: 1 << 30, paused=lambda: self.paused, banned=lambda _: "",
        )  # fmt: skip
        self.jobs.adopt()
        self.desk = DeskJobs(shared, self.jobs.endings, self.jobs.cpu_sets)

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)

    def run(self, job: int = 1, *, grace_us: int = US_PER_S, begun: bool = True) -> Group:
        """A job that is made ready; its script runs, unless it has not begun, for ten minutes at most."""
        group = Group(Prepare(job, 1, "ada", "/", 1, None, LIMIT_US, grace_us))
        group.user, group.since_us = users.of_uid(os.getuid()), self.now_us
        self.groups[group.key] = group
        if begun:
            self.kernel.populated.add(group.name)
            group.commands[0] = script = Command(0)
            group.told_empty = False
            self.jobs._begun(group, script, 4711, moved=False)
        self.jobs.endings.save(group)
        return group

    def pause(self, *, ends: bool = False, since_us: int | None = None) -> None:
        self.jobs.freeze(not ends, self.now_us if since_us is None else since_us)

    def share(self, n: int, cpus: int | None) -> None:
        self.jobs.resize(Resize(*KEY, n, 1, cpus, False))

    def kill(self, grace_us: int) -> None:
        self.jobs.kill(Kill(*KEY, grace_us))

    def passes(self, us: int) -> None:
        self.now_us += us
        self.jobs.freezer.tick(self.now_us)
        self.jobs.endings.tick(self.now_us)

    def killed_after_us(self, name: str = NAME) -> int:
        """How long it takes from now on until it is killed."""
        begun_us = self.now_us
        while (name, signal.SIGKILL) not in self.kernel.sent:
            assert self.now_us - begun_us < 2 * HOUR_US
            self.passes(100_000)
        return self.now_us - begun_us


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Alone]:
    made = Alone(tmp_path, monkeypatch)
    yield made
    made.close()


# --- ends -------------------------------------------------------------------------------------------------------------


def test_job_hears_sigterm_at_its_limit_and_is_killed_after_its_grace(alone: Alone) -> None:
    group = alone.run(grace_us=20 * US_PER_S)
    alone.passes(LIMIT_US - 1)
    assert (alone.kernel.sent, group.state) == ([], "running")
    alone.passes(1)
    assert alone.kernel.sent == [(NAME, signal.SIGTERM), (NAME, signal.SIGCONT)]
    assert (group.state, group.ending) == ("ending", "limit")
    assert alone.killed_after_us() == 20 * US_PER_S


@pytest.mark.parametrize(("graces_s", "killed_s"), [((3,), 3), ((3600, 0), 0), ((3600, 2), 2), ((2, 3600), 2)], ids=str)
def test_another_order_shortens_the_grace_and_never_lengthens_it(
    alone: Alone, graces_s: tuple[int, ...], killed_s: int
) -> None:
    alone.run(grace_us=HOUR_US)
    for grace_s in graces_s:
        alone.kill(grace_s * US_PER_S)
    assert abs(alone.killed_after_us() - killed_s * US_PER_S) <= 200_000
    assert alone.groups[KEY].ending == "killed"


@pytest.mark.parametrize(("grace_us", "killed_us"), [(HOUR_US, 5 * US_PER_S), (2 * US_PER_S, 2 * US_PER_S)])
@pytest.mark.parametrize("begun_by", ["", "cluster"])
@pytest.mark.parametrize("paused", [False, True])
def test_owner_waits_five_seconds_at_most_for_an_end_in_a_pause_too(
    alone: Alone, grace_us: int, killed_us: int, begun_by: str, paused: bool
) -> None:
    """Whatever grace the cluster gives jobs, and whatever was first to end it."""
    group = alone.run(grace_us=grace_us)
    alone.run(2)
    if begun_by:
        alone.kill(HOUR_US)
    if paused:
        alone.pause()
    assert alone.desk.end(None) == ([2] if begun_by else [1, 2])
    assert group.ending == ("killed" if begun_by else "owner")
    assert alone.desk.end(1) == []
    assert alone.desk.ended() == ([[2, 1]] if begun_by else [[1, 1], [2, 1]])
    assert abs(alone.killed_after_us() - killed_us) <= 200_000


def test_owner_ends_a_job_that_has_not_begun_and_none_that_is_not_here(alone: Alone) -> None:
    alone.run(begun=False)
    with pytest.raises(Refusal, match="job 7 is not here"):
        alone.desk.end(7)
    assert alone.desk.end(1) == [1]
    with pytest.raises(Refusal) as refused:
        alone.jobs.spawn(Spawn(*KEY, 0, ("true",), {}, "/"), (), lambda _: None)
    assert refused.value.code == "stale"


def test_owner_is_told_when_a_job_ends_at_most_where_another_node_keeps_its_limit(alone: Alone) -> None:
    group = alone.run(begun=False)
    (shown,) = alone.desk.listing()
    assert (group.deadline_us, shown["until_us"]) == (None, alone.now_us + LIMIT_US)


# --- pauses, and shares without a CPU ---------------------------------------------------------------------------------


def _no_cpu(alone: Alone) -> None:
    alone.share(7, 0)


def _has_cpu(alone: Alone) -> None:
    alone.share(8, 1)


def _pause(alone: Alone) -> None:
    alone.pause()
    alone.paused_us = alone.now_us


def _resume(alone: Alone) -> None:
    alone.pause(ends=True, since_us=alone.paused_us)


@pytest.mark.parametrize(
    "steps",
    [
        (_pause, _resume),
        (_no_cpu, _has_cpu),
        (_pause, _no_cpu, _resume, _has_cpu),
        (_no_cpu, _pause, _has_cpu, _resume),
        (_no_cpu, _pause, _resume, _has_cpu),
        (_pause, _no_cpu, _has_cpu, _resume),
    ],
    ids=lambda steps: " ".join(step.__name__ for step in steps),
)
@pytest.mark.parametrize("successor", [False, True])
def test_job_stands_still_while_paused_or_without_a_cpu_and_that_time_counts_once_in_no_limit(
    alone: Alone, steps: tuple[Callable[[Alone], None], ...], successor: bool
) -> None:
    deadline_us = alone.run().deadline_us
    assert deadline_us is not None
    for at, step in enumerate(steps):
        step(alone)
        assert alone.kernel.frozen == (set() if at == len(steps) - 1 else {NAME})
        if successor and _pause not in steps:  # else the desk has its successor pause too
            alone.start()
            assert alone.kernel.frozen == (set() if at == len(steps) - 1 else {NAME})
        if at < len(steps) - 1:
            alone.passes(LIMIT_US)
            assert alone.groups[KEY].state == "running"
    assert alone.groups[KEY].deadline_us == deadline_us + LIMIT_US * (len(steps) - 1)
    alone.passes(LIMIT_US)
    assert alone.groups[KEY].ending == "limit"


def test_nothing_new_starts_in_a_pause_or_without_a_cpu(alone: Alone) -> None:
    def refusal(ask: Callable[[], object]) -> str:
        with pytest.raises(Refusal) as refused:
            ask()
        return refused.value.code

    alone.run()
    another = Spawn(*KEY, 1, ("true",), {}, "/")
    alone.paused = "paused"
    assert refusal(lambda: alone.jobs.spawn(another, (), lambda _: None)) == "paused"
    assert refusal(lambda: alone.jobs.prepare(Prepare(2, 1, "ada", "/", 1, None, None, 0), (), lambda _: None)) == (
        "paused"
    )
    alone.paused = ""
    alone.share(7, 0)
    assert refusal(lambda: alone.jobs.spawn(another, (), lambda _: None)) == "busy"


@pytest.mark.parametrize("dies", ["", "afterwards", "before the deed"])
def test_job_without_a_cpu_is_let_go_to_hear_of_its_end_and_paused_as_any_other(alone: Alone, dies: str) -> None:
    group = alone.run()
    alone.share(7, 0)
    alone.kill(HOUR_US)
    if dies == "before the deed":
        group.stopped_us = alone.now_us
        alone.jobs.endings.save(group)
        alone.kernel.frozen.add(NAME)
    if dies:
        alone.start()
    assert alone.kernel.frozen == set()
    alone.pause()
    assert alone.kernel.frozen == {NAME}
    alone.pause(ends=True, since_us=alone.now_us)
    assert alone.kernel.frozen == set()


def test_job_whose_guard_died_between_the_record_of_its_share_and_the_deed_stands_still(alone: Alone) -> None:
    alone.run()
    alone.share(7, 0)
    alone.kernel.frozen.clear()
    alone.start()
    assert alone.kernel.frozen == {NAME}
    alone.share(8, None)
    assert alone.kernel.frozen == set()


def test_job_that_cannot_be_stopped_can_be_ended_in_a_pause(alone: Alone) -> None:
    alone.run()
    alone.kernel.unstoppable = True
    alone.pause()
    alone.kill(0)
    assert alone.killed_after_us() <= 200_000


# --- what a successor goes on with ------------------------------------------------------------------------------------


def test_limit_and_grace_hold_over_a_guards_death(alone: Alone) -> None:
    deadline_us = alone.run(grace_us=20 * US_PER_S).deadline_us
    alone.start()
    assert alone.groups[KEY].deadline_us == deadline_us
    alone.passes(LIMIT_US)
    alone.start()
    assert alone.groups[KEY].ending == "limit"
    assert alone.killed_after_us() == 20 * US_PER_S
    alone.passes(US_PER_S)
    assert alone.desk.listing() == []
    assert alone.events[-1]["event"] == "empty"
