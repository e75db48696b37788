"""The experiment on memory: what an owner's working set suffers beside parallel work that wants more than there is.

On a node of :data:`NODE_BYTES`, interleaved: the owner alone; two parallel tasks in a group that is his equal; the same
two as jobs under the contract, which lets one in and has the other wait. The owner maps a file of :data:`OWNER_BYTES`
and touches all of it again and again: what he has to read from disk a second time was taken from him. A task holds
:data:`TASK_BYTES` of anonymous memory, and reads a file of that size over and over, so that it presses on its limit.
"""

import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from cosched.apps.experiments.desk_under_load import Desk
from cosched.apps.experiments.in_force import ContractLooks, desks
from cosched.apps.experiments.site import DESK, PARALLEL, PLAIN, Site, owners_word
from cosched.errors import BadInput, Failed

IDLE: Final = "owner alone"
UNPROTECTED: Final = "unprotected"
CONTRACT: Final = "contract"
_MIB: Final = 1 << 20
NODE_BYTES: Final = 512 * _MIB
OWNER_BYTES: Final = 200 * _MIB
TASK_BYTES: Final = 200 * _MIB
#: What a job asks for; the contract leaves parallel work half of the node, 256 MiB.
JOB_BYTES: Final = 250 * _MIB
_TASKS: Final = 2
#: An unprotected owner who loses less of his working set shows that there was no harm to be protected from.
HARM_SHARE: Final = 0.01
_IN_MEMORY: Final = frozenset({"tmpfs", "ramfs"})
_PATIENCE_S: Final = 60.0
#: By then a task has its memory and reads.
_PRESSING_S: Final = 3.0
Say = Callable[[str], None]


class MemoryRun(msgspec.Struct, frozen=True):
    """One run. ``touched``, ``major_faults`` and ``refaults`` (None: nobody counts them) are the owner's, in pages.

    ``slowest_s``: the longest that 4 MiB of his took. ``pressed``: the refaults of parallel work (None as above).
    ``in_force``: for which share of the time the contract was in force (None: not known).
    """

    condition: str
    swap: bool
    major_faults: int
    refaults: int | None
    touched: int
    slowest_s: float
    pressed: int | None
    in_force: float | None = None


class MemoryExperiment:
    """Runs at a desk; ``folder`` is on a disk and seen by the node. ``swap``: whether there is some to be used."""

    def __init__(
        self, desk: Desk, folder: Path, say: Say, *, rounds: int, seconds: float, swap: bool, seed: int
    ) -> None:
        self._desk = desk
        self._folder = folder
        self._say = say
        self._rounds = rounds
        self._seconds = seconds
        self._swap = swap
        self._random = random.Random(seed)

    def run(self) -> Iterator[MemoryRun]:
        """All conditions, in an order of its own in each round, as they are measured."""
        working_set, other = self._folder / "working-set", self._folder / "other"
        written(working_set, OWNER_BYTES)
        written(other, TASK_BYTES)
        for number in range(self._rounds):
            for condition in self._random.sample([IDLE, UNPROTECTED, CONTRACT], 3):
                forget(working_set)  # he is charged for what he reads
                forget(other)
                run = self._one(condition, working_set, other)
                self._say(
                    f"round {number + 1}: {condition}: {run.major_faults} major faults, {run.touched} pages touched, "
                    f"{run.refaults} refaults, {run.pressed} of parallel work"
                )
                yield run

    def _one(self, condition: str, working_set: Path, other: Path) -> MemoryRun:
        press = [sys.executable, "-P", "-m", "cosched.programs.memory", "press"]
        press += ["--mib", str(TASK_BYTES // _MIB), "--file", str(other)]
        if condition == IDLE:
            self._desk.until(lambda node: not node.jobs, "no job to be there")
            return self._felt(condition, working_set, None)
        if condition == UNPROTECTED:
            with self._desk.unprotected([press] * _TASKS):
                time.sleep(_PRESSING_S)
                return self._felt(condition, working_set, PLAIN)
        with (
            self._desk.jobs([press] * (_TASKS - 1), "none", JOB_BYTES) as jobs,
            self._desk.waiting(press, "none", JOB_BYTES),
        ):
            time.sleep(_PRESSING_S)
            felt = self._felt(condition, working_set, PARALLEL)
            if not all(map(self._desk.running, jobs)):
                raise Failed("a job has ended while it was measured beside the owner")
            return felt

    def _felt(self, condition: str, working_set: Path, side: str | None) -> MemoryRun:
        site = self._desk.site
        before = _refaults(site, DESK), _refaults(site, side)
        walk = ["walk", "--file", str(working_set), "--seconds", f"{self._seconds:g}"]
        program = [sys.executable, "-P", "-m", "cosched.programs.memory", *walk]
        with ContractLooks(desks(site.lab) if site.lab else []) as looks:
            told = owners_word(site, program, 2 * self._seconds + _PATIENCE_S)
        after = _refaults(site, DESK), _refaults(site, side)
        refaults, pressed = (
            None if first is None or last is None else last - first for first, last in zip(before, after, strict=True)
        )
        return MemoryRun(
            condition,
            self._swap,
            told["major_faults"],
            refaults,
            told["touched"],
            told["slowest_s"],
            pressed,
            looks.share,
        )


def _refaults(site: Site, side: str | None) -> int | None:
    try:
        return None if side is None else site.refaults(side)
    except OSError:
        return None


def written(path: Path, size: int) -> None:
    """Make a file of so many bytes, all on disk."""
    piece = os.urandom(_MIB)
    with path.open("wb") as file:
        for _ in range(size // _MIB):
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def forget(path: Path) -> None:
    """Have the kernel drop what it has of a file in memory: whoever reads it next is charged for it."""
    with path.open("rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@contextmanager
def place(swap: int) -> Iterator[Path]:
    """A directory on a disk with the experiment's files, gone at the end; with a swap file of ``swap`` bytes in use.

    Raises :class:`Failed` where there is no disk or swap cannot be had, with the reason.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="cosched-memory-", dir="/var/tmp")))
        folder.chmod(0o755)
        kind = file_system(folder)
        if kind in _IN_MEMORY:
            raise Failed(
                f"not testable here: {folder.parent} is in memory ({kind}), and no file would be read from disk"
            )
        if swap:
            stack.enter_context(_swapping(folder / "swap", swap))
        yield folder


@contextmanager
def _swapping(file: Path, size: int) -> Iterator[None]:
    written(file, size)
    file.chmod(0o600)
    for command in ("mkswap", "swapon"):
        try:
            done = subprocess.run([command, file], capture_output=True, text=True, check=False)
        except FileNotFoundError:
            raise Failed(f"no swap here: the command {command} is missing (Debian: util-linux)") from None
        if done.returncode:
            raise Failed(f"no swap here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["swapoff", file], check=True)


def file_system(path: Path) -> str:
    """The kind of file system that a path is on, as the kernel calls it; empty where it can't be told."""
    found, longest = "", -1
    where = str(path.resolve())
    with suppress(OSError):
        for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines():
            _, mount, kind, *_ = line.split(" ")
            if os.path.commonpath([mount, where]) == mount and len(mount) >= longest:
                found, longest = kind, len(mount)
    return found


def swap_bytes(text: str, size: int) -> int:
    """Check the size of the swap file: 0, or enough for what does not fit and not more than 4 GiB."""
    if size and not NODE_BYTES <= size <= 4 << 30:
        raise BadInput("--swap", text, f"0, or {NODE_BYTES // _MIB} MiB to 4 GiB")
    return size
