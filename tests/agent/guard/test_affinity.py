"""The ceiling where there are no control groups: whole processors, by affinity."""

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit.waiting import wait_for

from cosched.linux.cgroup_none import CgroupsNone


class Starting:
    """A command that is started: its supervisor, a child of this process, has been forked and waits to go on."""

    def __init__(self, groups: CgroupsNone, command: list[str]) -> None:
        go, self._go = os.pipe()
        told, tell = os.pipe()
        self.supervisor = os.fork()
        if self.supervisor == 0:
            try:
                os.read(go, 1)
                child = os.fork()
                if child == 0:
                    groups.enter("job")
                    os.execvp(command[0], command)
                os.write(tell, str(child).encode())
                os.waitpid(child, 0)
            finally:
                os._exit(1)
        os.close(go)
        os.close(tell)
        self._told = told
        groups.watch_over("job", "mark", self.supervisor, None)

    def runs(self, name: str) -> int:
        """Let it go on; its process, which has come to be of that name."""
        os.write(self._go, b"x")
        pid = int(os.read(self._told, 16))
        wait_for(lambda: Path(f"/proc/{pid}/comm").read_text() == f"{name}\n", "the command to run")
        return pid


@contextlib.contextmanager
def starting(groups: CgroupsNone, *command: str) -> Iterator[Starting]:
    made = Starting(groups, list(command))
    try:
        yield made
    finally:
        for pid in groups.procs("job"):
            os.kill(pid, signal.SIGKILL)
        os.kill(made.supervisor, signal.SIGKILL)
        os.waitpid(made.supervisor, 0)
        os.close(made._go)
        os.close(made._told)


@pytest.fixture
def groups() -> CgroupsNone:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs: of one nothing can be taken away by affinity")
    made = CgroupsNone("no rights")
    made.create("job", None, 10)
    return made


@pytest.mark.parametrize("before", [None, 1.0], ids=["tightened", "relaxed"])
def test_a_command_follows_a_ceiling_that_changed_while_it_started(groups: CgroupsNone, before: float | None) -> None:
    """Its supervisor was forked under the one before, and has that one's processors in its memory."""
    groups.set_limits(before, False, 0)
    with starting(groups, "sleep", "600") as command:
        groups.set_limits(1.0 if before is None else None, False, 0)
        count = 1 if before is None else len(os.sched_getaffinity(0))
        pid = command.runs("sleep")
        assert len(os.sched_getaffinity(pid)) != count
        groups.began("job", pid)
        assert len(os.sched_getaffinity(pid)) == count


def test_a_command_keeps_the_processors_that_it_chose_where_the_ceiling_has_not_changed(groups: CgroupsNone) -> None:
    first = str(min(os.sched_getaffinity(0)))
    with starting(groups, "taskset", "-c", first, "sleep", "600") as command:
        pid = command.runs("sleep")
        groups.began("job", pid)
        assert os.sched_getaffinity(pid) == {int(first)}
