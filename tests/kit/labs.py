"""Labs as tests make them: in a runtime directory of their own, by a user of choice, and what a lab leaves behind."""

import itertools
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cosched.apps.lab.joined import joined
from cosched.apps.lab.lab import Lab
from cosched.wire.api import NodeDoc
from kit.groups import groups
from kit.needs import need_namespaces_of, need_root
from kit.waiting import BOUND_S

ROOT = Path(__file__).resolve().parents[2]
_numbers = itertools.count(1)
_TIMEOUT_S = BOUND_S


@dataclass
class Bench:
    """Where a test's labs are made: ``runtime`` is the directory; ``prefix`` becomes the user."""

    runtime: Path
    name: str
    prefix: tuple[str, ...] = ()
    python: str = sys.executable
    env: dict[str, str] = field(default_factory=dict)

    @property
    def directory(self) -> Path:
        """The directory of the lab that has the bench's name."""
        return self.runtime / "labs" / self.name

    def nodes(self) -> list[NodeDoc]:
        """The nodes as its scheduler has them, without a command that asks."""
        return joined(self.directory / "api" / "scheduler.sock")

    def environment(self) -> dict[str, str]:
        own = {"COSCHED_RUNTIME_DIR": str(self.runtime), "PYTHONDONTWRITEBYTECODE": "1"}
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("COSCHED_", "XDG_"))}
        return inherited | own | self.env

    def argv(self, *arguments: object) -> list[str]:
        return [*self.prefix, self.python, "-P", "-m", "cosched.apps.cli.main", "lab", *map(str, arguments)]

    def call(
        self, *arguments: object, wrap: Sequence[str] = (), cwd: Path | str = "/", **how: Any
    ) -> subprocess.CompletedProcess[str]:
        """``cosched lab …``, to its end."""
        return subprocess.run(
            [*wrap, *self.argv(*arguments)], env=self.environment(), cwd=cwd, capture_output=True, text=True,
            timeout=_TIMEOUT_S, check=False, **how,
        )  # fmt: skip

    def begun(self, *arguments: object, **how: Any) -> subprocess.Popen[str]:
        """``cosched lab …``, begun."""
        return subprocess.Popen(self.argv(*arguments), env=self.environment(), cwd="/", text=True, **how)

    def done(self, *arguments: object, **how: Any) -> str:
        """The output of ``cosched lab …``, which must succeed."""
        ended = self.call(*arguments, **how)
        assert ended.returncode == 0, f"{arguments}: {ended.returncode}\n{ended.stdout}\n{ended.stderr}"
        return ended.stdout

    def up(self, *arguments: object, **how: Any) -> str:
        return self.done("up", "--name", self.name, *arguments, **how)

    def run(self, node: str, *argv: object, **how: Any) -> subprocess.CompletedProcess[str]:
        return self.call("run", "--quiet", "--name", self.name, node, "--", *argv, **how)

    @contextmanager
    def running(self, node: str, *argv: object) -> Iterator[Any]:
        """A command at a desk while the block lasts, its output in ``stdout``."""
        command = self.begun("run", "--quiet", "--name", self.name, node, "--", *argv, stdout=subprocess.PIPE)
        with command:
            try:
                yield command
            finally:
                command.kill()

    def output(self, node: str, *argv: object) -> str:
        """What a program at a desk prints, which must succeed; started from here, without a command for it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("COSCHED_RUNTIME_DIR", str(self.runtime))
            lab = Lab(self.name)
        ended = lab.run(
            node, [str(each) for each in argv], env=self.environment(), directory="/", timeout_s=_TIMEOUT_S
        )  # fmt: skip
        assert ended.returncode == 0, f"{argv}: {ended}"
        return ended.stdout.decode()

    def down(self) -> str:
        return self.done("down", "--name", self.name)

    def left(self) -> list[str]:
        """What is there of this test's labs: processes, mounts, control groups, files."""
        return [*self._processes(), *self._mounts(), *self._groups(), *map(str, self.runtime.glob("**/*"))]

    def _processes(self) -> Iterator[str]:
        mark = f"COSCHED_RUNTIME_DIR={self.runtime}".encode()
        for directory in Path("/proc").glob("[0-9]*"):
            try:
                marked = mark in (directory / "environ").read_bytes().split(b"\0")
                if marked and int(directory.name) != os.getpid():
                    yield f"process {directory.name} {(directory / 'cmdline').read_bytes()!r}"
            except OSError:
                continue

    def _mounts(self) -> Iterator[str]:
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            if str(self.runtime) in line:  # others have mounts of their own, also of namespaces
                yield f"mount {line}"

    def _groups(self) -> Iterator[str]:
        for depth in ("*", "."):
            yield from map(str, groups(f"{depth}/cosched-lab/{self.name}*"))


@contextmanager
def bench(prefix: Sequence[str] = (), python: str = sys.executable, owner: int | None = None) -> Iterator[Bench]:
    """A bench for the length of a test; whatever a failed test left on it is removed."""
    directory = Path(tempfile.mkdtemp(prefix="lab-", dir="/tmp"))  # a short path: sockets are in it
    runtime = directory / "run"
    runtime.mkdir(mode=0o755)
    if owner is not None:
        os.chown(runtime, owner, owner)
    directory.chmod(0o755)
    made = Bench(runtime, f"t{os.getpid()}-{next(_numbers)}", tuple(prefix), python)
    try:
        yield made
    finally:
        if any(runtime.glob("labs/*")):
            made.call("down", "--all")
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def bench_of(tier: int) -> Iterator[Bench]:
    """A bench for labs of that tier: root's, an ordinary user's with namespaces, an ordinary user's without."""
    if tier == 1:
        need_root()
        with bench() as made:
            yield made
        return
    prefix, python, uid = ordinary_user()
    with bench(prefix, python, uid) as made:
        if tier == 2:
            need_namespaces_of(tuple(made.prefix), made.python)
        yield made


def ordinary_user() -> tuple[tuple[str, ...], str, int]:
    """How to become a user without rights: a command's prefix, an interpreter that he may read, his number.

    Skips where there is none. In a checkout that he may not read, so may he nothing.
    """
    if os.geteuid():
        return (), sys.executable, os.geteuid()
    if found := _of_nobody():
        return found
    pytest.skip("needs an interpreter and a checkout that others than root may read (such as /usr/bin/python3)")


@cache
def _of_nobody() -> tuple[tuple[str, ...], str, int] | None:
    nobody = pwd.getpwnam("nobody")
    prefix = ("setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups")
    packages = [path for path in sys.path if path.endswith("-packages")]
    search = os.pathsep.join([str(ROOT), *packages])
    system = f"/usr/bin/python{sys.version_info.major}.{sys.version_info.minor}"
    for python in (sys.executable, system):
        full = (*prefix, "env", f"PYTHONPATH={search}", "HOME=/nonexistent")
        try:
            tried = subprocess.run(
                [*full, python, "-P", "-c", "import cosched.apps.lab.lab"],
                capture_output=True,
                check=False,
                cwd="/",
                timeout=BOUND_S,
            )
        except OSError:
            continue
        if tried.returncode == 0:
            return full, python, nobody.pw_uid
    return None
