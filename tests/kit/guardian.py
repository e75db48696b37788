"""Ends what a run of the tests made and has left, however the run ended: also by SIGKILL, or interrupted half-way.

A run marks its environment, which its workers and all that tests start inherit. The guardian is a process beside it
that waits for the end of the run's own process. Then it ends what has the mark, with its descendants, and, where no
other run is under way, takes away the mounts below its directories in ``/tmp`` and the control groups that were not
there before.

    python -P guardian.py MARK
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_MARK: Final = "COSCHED_TESTS_RUN"
_FILE: Final = Path(__file__).name.encode()
#: Workers have so long to end by themselves when the run has ended.
_GRACE_S: Final = 10.0
_CGROUPS: Final = Path("/sys/fs/cgroup")
#: Another program may mount something below /tmp meanwhile.
_OURS: Final = re.compile(r"/tmp/(pytest-of-|cosched-|chaos-|stalling-|alerts-|lab-|hosts\.)")
#: The name that a test gives a lab: a word and the number of the test's process.
_OF_PROCESS: Final = re.compile(r"[a-z]+-?([0-9]+)(?:-[0-9]+)?")


def watch() -> None:
    """Mark this process and its children to come, and start a guardian for them."""
    os.environ[_MARK] = mark = f"{os.getpid()}-{time.monotonic_ns()}"
    inherited = {key: value for key, value in os.environ.items() if key != _MARK}
    command = [sys.executable, "-P", __file__, mark]
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(command, env=inherited, start_new_session=True, **quiet)  # type: ignore[call-overload]


def marked(mark: str | None = None) -> Iterator[int]:
    """The processes of a run; None: of any run."""
    wanted = f"{_MARK}={mark or ''}".encode()
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            found = (each for each in (directory / "environ").read_bytes().split(b"\0") if each.startswith(wanted))
            if any(each == wanted or mark is None for each in found):
                yield int(directory.name)


def with_descendants(processes: set[int]) -> set[int]:
    """These processes and all that descend from them."""
    children: dict[int, set[int]] = {}
    for directory in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _FILE in (directory / "cmdline").read_bytes():
                continue  # another guardian, which has work to do
            parent = int((directory / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, set()).add(int(directory.name))
    found, new = set(processes), set(processes)
    while new:
        new = set().union(*(children.get(each, set()) for each in new)) - found
        found |= new
    return found


def mounts() -> list[str]:
    """What is mounted below the directories that tests, benchmarks and campaigns make in /tmp, the innermost last."""
    places = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [place for place in places if _OURS.match(place)]


def groups() -> list[Path]:
    """The control groups that tests make, and those of labs that are named after a process that has ended.

    The innermost first.
    """
    labs = (lab for depth in ("", "*/") for lab in _CGROUPS.glob(f"{depth}cosched-lab/*") if _is_left(lab.name))
    tops = [*labs, *(top for depth in ("", "*/") for top in _CGROUPS.glob(f"{depth}cosched-test-*"))]
    return [Path(directory) for top in tops for directory, _, _ in os.walk(top, topdown=False)]


def _is_left(lab: str) -> bool:
    found = _OF_PROCESS.fullmatch(lab)
    if found is None:
        return False
    try:
        os.readlink(f"/proc/{found[1]}/exe")
    except OSError:  # there is none, or it has ended and nothing has waited for it
        return True
    return False


def _is_worker(process: int) -> bool:
    """Whether a process is pytest-xdist's, as execnet starts them."""
    with contextlib.suppress(OSError):
        return b"sys.stdin.readline" in Path(f"/proc/{process}/cmdline").read_bytes()
    return False


def kill(processes: set[int]) -> None:
    """End processes at once, frozen ones too: version 1's freezer holds even a killed process."""
    for each in processes - {os.getpid()}:
        with contextlib.suppress(OSError):
            os.kill(each, signal.SIGKILL)
            lines = Path(f"/proc/{each}/cgroup").read_text().splitlines()
            for group in (line.partition(":freezer:")[2] for line in lines if ":freezer:" in line):
                (_CGROUPS / "freezer" / group.lstrip("/") / "freezer.state").write_text("THAWED")


def take_away(mounts_before: set[str], groups_before: set[Path]) -> None:
    """Unmount, and remove with their processes, what is new."""
    new = [group for group in groups() if group not in groups_before]
    for group in new:
        with contextlib.suppress(OSError, ValueError):
            kill({int(each) for each in (group / "cgroup.procs").read_text().split()})
    for place in reversed([each for each in mounts() if each not in mounts_before]):
        subprocess.run(["umount", place], check=False)
    end_s = time.monotonic() + _GRACE_S  # killed processes leave their groups a moment later
    while (new := [group for group in new if group.exists()]) and time.monotonic() < end_s:
        for group in new:
            with contextlib.suppress(OSError):
                group.rmdir()
        time.sleep(0.1)


def guard(mark: str) -> None:
    """Wait for the run's end, and end what it has left."""
    before = set(mounts()), set(groups())
    with contextlib.suppress(ProcessLookupError):
        run = os.pidfd_open(int(mark.partition("-")[0]))
        select.select([run], [], [])
    end_s = time.monotonic() + _GRACE_S
    while any(map(_is_worker, marked(mark))) and time.monotonic() < end_s:
        time.sleep(0.2)
    for _ in range(50):  # what is being started while others are ended is found the next time
        if not (left := with_descendants(set(marked(mark)))):
            break
        kill(left)
        time.sleep(0.1)
    if not any(marked()):
        take_away(*before)


if __name__ == "__main__":
    guard(sys.argv[1])
