"""A real guard on directories and cgroups of its own, and everything it started gone when the test ends."""

import atexit
import contextlib
import errno
import functools
import json
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cosched.config.node import node_config
from cosched.config.templates import node_toml
from cosched.linux import cgroup_find
from cosched.linux.cgroups import NoCgroups
from cosched.linux.process import boottime_us
from kit.groups import ended
from kit.waiting import BOUND_S, wait_for
from node_agent.guard.base.client import GuardClient, GuardGone, GuardRefused, Message

ROOT = Path(__file__).resolve().parents[2]
MIB = 1 << 20
US_PER_S = 1_000_000
SYSTEM_PYTHON = "/usr/bin/python3"

_DAEMON = """
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", os.getpid(), flush=True)
        os.closerange(0, 3)
        time.sleep(1000)
    os._exit(0)
os.wait()
"""
#: Shell that leaves a daemon behind: two forks, a session of its own, no descriptor kept. It says its pid.
DAEMON = f"{SYSTEM_PYTHON} -I -c '{_DAEMON}'"


def ordinary_user() -> pwd.struct_passwd:
    """An account of this machine that jobs may run as. The calling test is skipped where there is none."""
    for entry in pwd.getpwall():
        if entry.pw_uid >= 1000 and os.path.basename(entry.pw_shell) in {"bash", "sh", "dash", "zsh"}:
            return entry
    pytest.skip("needs an ordinary account on this machine (useradd)")


def places(group: str) -> list[Path]:
    """Where a group is, in any hierarchy of this machine. (A glob over all would stumble over what others remove.)"""
    top = Path("/sys/fs/cgroup")
    return [path for tree in (top, *top.iterdir()) if (path := tree / group).is_dir()]


def desk_of(guard: "RealGuard") -> str:
    """The group of the owner at a guard's desk (:func:`at_a_desk`)."""
    return f"{guard.group}-desk"


@contextlib.contextmanager
def at_a_desk(guard: "RealGuard") -> Iterator["RealGuard"]:
    """A guard that is not started yet, started at a desk whose owner has a group; the group is removed after it.

    With leaves in it, which a guard that was killed leaves.
    """
    guard.config["cgroup"] |= {"desk": desk_of(guard)}
    top = next(top for top in (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")) if (top / "cgroup.procs").exists())
    (top / desk_of(guard)).mkdir()
    try:
        yield guard.start()
    finally:
        guard.stop()
        for leaf in (top / desk_of(guard)).glob("cosched-*/"):
            leaf.rmdir()
        (top / desk_of(guard)).rmdir()


def lever_of(group: str) -> tuple[int, bool]:
    """A group's weight in percent of that of all jobs, and its idle flag, by the kernel's files."""
    for place in places(group):
        for name, normal in (("cpu.shares", 1024), ("cpu.weight", 100)):
            if (place / name).exists():
                idle = (place / "cpu.idle").read_text() == "1\n"
                return (100 if idle else int((place / name).read_text()) * 100 // normal), idle
    raise AssertionError(f"{group} has no weights")


@functools.cache
def readable_guard() -> Path:
    """The guard's modules where any user may read them, compiled once; gone when this process ends."""
    place = Path(tempfile.mkdtemp(prefix="cosched-lib-"))
    atexit.register(_remove_from, os.getpid(), place)
    for room in ("node_agent", "cosched/linux"):
        shutil.copytree(ROOT / room, place / room, ignore=lambda *_: {"__pycache__"})
    for file in ("__init__", "admission"):
        shutil.copy(ROOT / f"cosched/{file}.py", place / "cosched")
    subprocess.run([SYSTEM_PYTHON, "-m", "compileall", "-qq", place], check=True)
    place.chmod(0o755)
    return place


def _remove_from(pid: int, place: Path) -> None:
    """Remove a directory, unless this is a child that the process has forked."""
    if os.getpid() == pid:
        shutil.rmtree(place, ignore_errors=True)


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie doesn't)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


class ClientByHand(GuardClient):
    """Sends requests that a test has written as they travel, good ones and bad ones: so the wire's form is held."""

    ask: Callable[..., Message]  # a request as a dictionary, with any keys
    send: Callable[..., int]

    def _encode(self, request: Any, number: int) -> bytes:
        return json.dumps({**request, "re": number}).encode()


class RealGuard:
    """``kind`` is ``cgroups`` (as root, jobs as an ordinary user) or ``none`` (the ordinary user's own guard)."""

    def __init__(self, kind: str, **config: Mapping[str, object]) -> None:
        self.kind = kind
        self.account = ordinary_user()
        self.user = self.account.pw_name
        self.directory = Path(tempfile.mkdtemp(prefix="cosched-"))
        self.directory.chmod(0o755)
        self.group = f"cosched-test-{uuid.uuid4().hex[:12]}"
        self.work = self.directory / "work"  # where jobs may write
        self.work.mkdir()
        self.process: subprocess.Popen[bytes] | None = None
        self.within: list[str] = []  # a command that runs it somewhere, in a view of its own of the machine, say
        self._clients: list[ClientByHand] = []
        self._as_new: object = None  # its condition when it had started; None where it was started again
        self.top: dict[str, object] = {}  # further settings that are in no section
        self.config: dict[str, dict[str, object]] = {
            "paths": {"run": f"{self.directory}/run", "state": f"{self.directory}/state", "keep": [str(self.work)]},
            "cgroup": {"mode": "none" if kind == "none" else "auto", "cosched": self.group},
            "security": {"users": "self" if kind == "none" else "switch"},
            # A dedicated machine: in the idle class, a job of a test may get no CPU for as long as others work here.
            "contract": {"cpu_ratio": 1.0, "memory_ratio": 1.0, "mpl": 1},
            "monitoring": {"wakeups": False},  # a process more at the desk, where tests count
        }
        for name, section in config.items():
            self.config[name].update(section)
        os.chown(self.work, self.account.pw_uid, self.account.pw_gid)
        if kind == "none":
            os.chown(self.directory, self.account.pw_uid, self.account.pw_gid)

    # --- the process --------------------------------------------------------------------------------------------------

    def start(self) -> "RealGuard":
        path = self.directory / "node.toml"
        raw: dict[str, object] = {
            "name": "node1",
            "cluster": "test",
            "procs": 2,
            "memory_bytes": 1024 * MIB,
            "scheduler": {"url": "wss://127.0.0.1:1/v1/agent"},  # of the agent; the guard does not look at it
            "launch": {"address": "127.0.0.1"},
        }
        path.write_text(node_toml(node_config(raw | self.top | self.config, str(path))))
        if self.kind == "none":
            account = self.account
            command = [
                *("setpriv", f"--reuid={account.pw_uid}", f"--regid={account.pw_gid}", "--clear-groups"),
                *("env", f"PYTHONPATH={readable_guard()}", "PYTHONDONTWRITEBYTECODE=1", SYSTEM_PYTHON),
            ]
        else:
            command = [sys.executable, "-I"]
        with (self.directory / "errors").open("ab") as errors:
            self.process = subprocess.Popen(
                [*self.within, *command, "-m", "node_agent.guard", "--config", str(path)],
                stdin=subprocess.DEVNULL,
                stderr=errors,
                cwd=self.directory,
            )
        self.client()
        self._as_new = self._condition() if self._as_new is None else _STARTED_AGAIN
        return self

    def errors(self) -> str:
        """What guards have written to their error output."""
        return (self.directory / "errors").read_text()

    def client(self) -> ClientByHand:
        """A new connection, in place of any old one."""
        self.hang_up()

        def connected() -> ClientByHand | None:
            assert self.process is not None
            assert self.process.poll() is None, self.errors()
            try:
                client = ClientByHand(f"{self.directory}/run/guard.sock")
            except GuardGone:
                return None
            try:
                client.ask({"do": "arm"})
                return client
            except GuardGone:
                client.close()
                return None

        self._clients.append(wait_for(connected, "the guard"))
        return self._clients[-1]

    def hang_up(self) -> None:
        while self._clients:
            self._clients.pop().close()

    def kill(self) -> None:
        """SIGKILL to the guard."""
        assert self.process is not None
        self.hang_up()
        self.process.kill()
        self.process.wait(BOUND_S)

    def stop(self) -> int:
        """SIGTERM, and its exit status."""
        assert self.process is not None
        self._terminate(self.process)
        return self.process.wait(BOUND_S)

    def _terminate(self, process: "subprocess.Popen[bytes]") -> None:
        """SIGTERM to the guard, if it runs: ``unshare --fork`` passes none on, and has it as its only child."""
        if "--fork" in self.within and process.poll() is None:
            os.kill(int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()), signal.SIGTERM)
        else:
            process.terminate()

    def is_as_new(self) -> bool:
        """End every job and empty the directory of work; whether another test finds the guard as it was made."""
        if self.process is None or self.process.poll() is not None or self._as_new is _STARTED_AGAIN:
            return False
        self._end_jobs()
        for path in self.work.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return self._condition() == self._as_new

    def _condition(self) -> object:
        """All that a test may leave: what the guard says, its files, its complaints."""
        files = [
            sorted(map(str, self.directory.glob("*"))),
            sorted(map(str, (self.directory / "run").rglob("*"))),
            sorted(map(str, (self.directory / "state").rglob("*"))),
        ]
        work = self.work.stat()
        owner = (work.st_uid, work.st_gid, work.st_mode)
        said = self.status()
        del said["re"]
        return said, files, owner, self.errors(), self.within, self.top, json.dumps(self.config, default=str)

    def close(self) -> None:
        """End every job, then the guard, then remove what is left; also after a test that failed half-way."""
        try:
            if self.process is not None and self.process.poll() is not None:
                self.start()
            if self.process is not None:
                self._end_jobs()
        finally:
            self.hang_up()
            if self.process is not None and self.process.poll() is None:
                self._terminate(self.process)
                try:
                    self.process.wait(BOUND_S)
                except subprocess.TimeoutExpired:
                    self.process.kill()
                    self.process.wait()
            self._sweep()
            shutil.rmtree(self.directory)

    def _end_jobs(self) -> None:
        for group in self.client().ask({"do": "list"})["groups"]:
            attempt = {"job": group["job"], "attempt": group["attempt"]}
            self.ask({"do": "kill", **attempt, "grace_us": 0})
            # by its state: an event that it is empty may be of before, when its script ended by itself
            wait_for(partial(self._has_ended, attempt), "the end of a job")
            self.ask({"do": "forget", **attempt})

    def _has_ended(self, attempt: Mapping[str, object]) -> bool:
        groups = self.ask({"do": "list"})["groups"]
        return all(each["state"] == "ended" for each in groups if attempt.items() <= each.items())

    def _sweep(self) -> None:
        for mount in Path("/proc/self/mountinfo").read_text().splitlines():
            if mount.split()[4].startswith(f"{self.directory}/"):
                subprocess.run(["umount", "-l", mount.split()[4]], check=False)
        if self.kind == "none":
            return
        try:
            cgroups = cgroup_find.find("auto", "/sys/fs/cgroup", self.group)
        except NoCgroups:
            return
        for name in cgroups.names():
            wait_for(partial(ended, cgroups, name), f"the end of {name}")
            cgroups.remove(name)
        cgroups.close()
        for path in places(self.group):  # what the guard had there itself may be on its way out
            wait_for(partial(_removed, path), f"{path} to be empty")

    # --- requests -----------------------------------------------------------------------------------------------------

    def ask(self, request: Mapping[str, object], fds: Sequence[int] = ()) -> Message:
        return self._clients[-1].ask(request, fds, timeout_s=BOUND_S)

    def ask_lasting(self, request: Mapping[str, object], lasting_us: int) -> Message:
        """Ask for what holds so long from now on; again where that was over on arrival, as after a stall."""

        def answer() -> Message | None:
            until_us = boottime_us() + lasting_us
            try:
                return self.ask({**request, "until_us": until_us})
            except GuardRefused as refusal:
                if refusal.code != "stale" or boottime_us() < until_us:
                    raise
                return None

        return wait_for(answer, "a request that arrives before its time is over")

    def refused(self, request: Mapping[str, object], fds: Sequence[int] = ()) -> tuple[str, str]:
        """The code and the story of a refusal."""
        with pytest.raises(GuardRefused) as caught:
            self.ask(request, fds)
        return caught.value.code, str(caught.value)

    def prepare(self, job: int = 1, attempt: int = 1, **fields: object) -> Message:
        return self.ask(self.preparation(job, attempt, **fields))

    def preparation(self, job: int = 1, attempt: int = 1, **fields: object) -> dict[str, object]:
        usual = {"user": self.user, "directory": str(self.work), "tasks": 1, "memory_bytes": 256 * MIB}
        return {
            "do": "prepare",
            "job": job,
            "attempt": attempt,
            **usual,
            "limit_us": None,
            "grace_us": US_PER_S,
            "umask": 0o022,
            "cpus": None,
            "asleep": False,
            "uid": None if "user" in fields else self.account.pw_uid,
            **fields,
        }

    def spawn(self, argv: Sequence[str], job: int = 1, attempt: int = 1, n: int = 0, **fields: object) -> int:
        """Start a command with nothing to read, its output in ``work/output``; returns its pid."""
        return int(self.ask(self.spawning(argv, job, attempt, n, **fields), self.null())["pid"])

    def spawning(
        self, argv: Sequence[str], job: int = 1, attempt: int = 1, n: int = 0, **fields: object
    ) -> dict[str, object]:
        output = str(self.work / "output")
        usual = {"env": {}, "cwd": str(self.work), "script": False, "output": output, "error": output}
        usual["stream"] = None
        return {"do": "spawn", "job": job, "attempt": attempt, "n": n, "argv": list(argv), **usual, **fields}

    def null(self) -> list[int]:
        """Three descriptors of nothing (the one and only is left open until the process ends)."""
        global _null  # noqa: PLW0603
        if _null < 0:
            _null = os.open(os.devnull, os.O_RDWR)
        return [_null] * 3

    def shell(self, text: str, **fields: Any) -> int:
        """Start a line of shell."""
        return self.spawn(["sh", "-c", text], **fields)

    def output(self) -> str:
        """What commands have written."""
        path = self.work / "output"
        return path.read_text() if path.exists() else ""

    def told(self, *words: str) -> list[int]:
        """Wait until the output has a line ``word NUMBER`` for each word; returns the numbers."""

        def found() -> list[int] | None:
            lines = dict(line.split() for line in self.output().splitlines() if len(line.split()) == 2)
            return [int(lines[word]) for word in words] if lines.keys() >= set(words) else None

        return wait_for(found, f"{words} in the output")

    def event(self, name: str, **fields: object) -> Message:
        """Wait for an event with these fields; others that come before it are dropped."""
        return self._heard({"event": name, **fields})

    def begin(self, request: Mapping[str, object], fds: Sequence[int] = ()) -> int:
        """Send a request without waiting; its number for :meth:`answer`."""
        return self._clients[-1].send(request, fds)

    def answer(self, number: int) -> Message:
        """Wait for the answer to a request; what comes before it is dropped."""
        return self._heard({"re": number})

    def _heard(self, wanted: Mapping[str, object]) -> Message:
        client = self._clients[-1]
        end = time.monotonic() + BOUND_S
        poll = select.poll()
        poll.register(client, select.POLLIN)
        seen = []
        while True:
            while (message := client.receive()) is not None:
                seen.append(message)
                if all(message.get(key) == value for key, value in wanted.items()):
                    return message
            left_s = end - time.monotonic()
            assert left_s > 0, f"waited for {wanted}; saw {seen}\n{self.errors()}"
            poll.poll(left_s * 1000)

    def listed(self, job: int = 1) -> Message:
        """What ``list`` says of a job."""
        return next(group for group in self.ask({"do": "list"})["groups"] if group["job"] == job)

    def status(self) -> Message:
        return self.ask({"do": "status"})

    def supervisors(self) -> list[int]:
        """The pids of living supervisors."""
        records = self.directory / "state/records"
        return [json.loads(path.read_text())["supervisor"] for path in records.glob("*.run")]

    def kill_process(self, pid: int) -> None:
        os.kill(pid, signal.SIGKILL)


_null = -1
_STARTED_AGAIN = object()
