"""The processes of a lab, as this machine numbers them, and what holds them still."""

import contextlib
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


def running_module(module: str, directory: Path | str) -> list[int]:
    """Those that run a module for what is below that directory (a lab's, or one of its nodes'), in no order.

    A guard's children have its command line, and a name of their own: they are not among them.
    """
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            ours = module in words and any(f"{word}/".startswith(f"{directory}/") for word in words)
            if ours and not (folder / "comm").read_text().startswith("cosched-"):
                found.append(int(folder.name))
    return found


@contextmanager
def standing_still(pids: Sequence[int]) -> Iterator[None]:
    """These processes are stopped while the block lasts; those that have ended meanwhile are left out."""
    held = [os.pidfd_open(pid) for pid in pids]
    try:
        _signal(held, signal.SIGSTOP)
        yield
    finally:
        _signal(held[::-1], signal.SIGCONT)
        for pidfd in held:
            os.close(pidfd)


def _signal(pidfds: Sequence[int], number: signal.Signals) -> None:
    for pidfd in pidfds:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, number)


def cpu_s(pid: int) -> float:
    """What a process has had of a CPU until now."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
