"""Processes that wait in the kernel and hear no signal: which thread, in which function, on which file system.

Only ``/proc`` is read, never a path that a process waits for. A process that holds locks of its own memory may hold up
the reader: call :func:`waiting` in a child that can be given up.
"""

import contextlib
import os
import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from cosched.linux import files, process

#: What the kernel passes for "relative to the working directory" (AT_FDCWD), as 32 and as 64 bits.
_AT_FDCWD: Final = frozenset({0xFFFFFF9C, 0xFFFFFFFFFFFFFF9C})
#: System calls whose first argument is a path; what another's points at (poll's sockets, say) is none.
_PATH_FIRST: Final = {
    "x86_64": frozenset(
        {2, 4, 6, 21, 59, 76, 80, *range(82, 93), 94, 132, 133, 134, 137, 161, 165, 166, *range(188, 199)}
    ),
    "aarch64": frozenset({*range(5, 17), 39, 40, 43, 45, 49, 51, 221}),
}.get(os.uname().machine, frozenset())
_MOST_DESCRIPTORS: Final = 1 << 20
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_LONGEST_PATH: Final = 4096
_MOST_SHOWN: Final = 200
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
#: File systems that only the kernel's memory is behind: nobody waits for them.
_IN_MEMORY: Final = frozenset(
    {"bpf", "cgroup", "cgroup2", "debugfs", "devpts", "devtmpfs", "mqueue", "nsfs", "proc", "ramfs", "securityfs",
     "sysfs", "tmpfs", "tracefs"}
)  # fmt: skip


class Mount(NamedTuple):
    """A line of ``/proc/PID/mountinfo``. ``device`` is ``MAJOR:MINOR``, the same for all mounts of a file system;
    ``parent`` the mount that ``point`` lies on.
    """

    number: int
    parent: int
    device: str
    point: str
    kind: str


class Waiting(NamedTuple):
    """A process that does not end. ``channel`` is the kernel function that it waits in; empty: not known.

    ``path`` and ``mount`` (mount point) are what its system call works on, ``device`` (``MAJOR:MINOR``) names the file
    system; all empty where that cannot be told. Texts are a job's own: they are made printable, and cut.
    """

    pid: int
    command: str
    channel: str = ""
    path: str = ""
    mount: str = ""
    device: str = ""


def uninterruptible(pid: int) -> int | None:
    """A thread of the process that is in uninterruptible sleep; None: no thread is, or the process is gone."""
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/task"):
            if (found := process.stat_of(int(name))) is not None and found.state == "D":
                return int(name)
    return None


def waiting(pids: Iterable[int]) -> list[Waiting]:
    """What each of these processes waits for; those that have ended are left out. May hang: see above."""
    return [found for pid in pids if (found := _waiting(pid)) is not None]


def _waiting(pid: int) -> Waiting | None:
    thread = uninterruptible(pid) or pid
    if (stat := process.stat_of(thread)) is None or stat.state in "ZX":
        return None
    channel = _read(f"/proc/{thread}/wchan")
    found = Waiting(pid, _shown(stat.command), "" if channel == "0" else _shown(channel))
    path, mount = _place(thread)
    if mount is None:
        return found
    return found._replace(path=_shown(path), mount=_shown(mount.point), device=mount.device)


def _shown(text: str) -> str:
    clean = "".join(each if each.isprintable() else "?" for each in text)
    return clean if len(clean) <= _MOST_SHOWN else clean[: _MOST_SHOWN - 1] + "…"


def _place(thread: int) -> tuple[str, Mount | None]:
    """The path that a thread's system call works on, and its mount; None where that is not known."""
    words = _read(f"/proc/{thread}/syscall").split()
    if len(words) < 3:  # it runs, or it is about to end
        return "", None
    number, first, second = int(words[0]), int(words[1], 16), int(words[2], 16)
    mounts = mounts_of(_read(f"/proc/{thread}/mountinfo"))
    path = ""
    if first in _AT_FDCWD:
        path = _text_at(thread, second)
    elif first < _MOST_DESCRIPTORS:
        return _of_descriptor(thread, first, mounts)
    elif number in _PATH_FIRST:
        path = _text_at(thread, first)
    if not path:  # it waits for no path, or one that cannot be read: that is not the root's fault
        return "", None
    if not path.startswith("/"):
        path = os.path.join(_link(f"/proc/{thread}/cwd"), path)
    return path, mount_of(path, mounts)


def _of_descriptor(thread: int, fd: int, mounts: Collection[Mount]) -> tuple[str, Mount | None]:
    for line in _read(f"/proc/{thread}/fdinfo/{fd}").splitlines():
        key, _, value = line.partition(":")
        if key == "mnt_id":
            found = next((each for each in mounts if each.number == int(value)), None)
            return _link(f"/proc/{thread}/fd/{fd}"), found if found and found.kind not in _IN_MEMORY else None
    return "", None


def mounts_of(text: str) -> list[Mount]:
    """The mounts of a ``mountinfo`` file, in its order."""
    found = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        fields, kind = before.split(" "), after.partition(" ")[0]
        if len(fields) > 4:
            point = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
            found.append(Mount(int(fields[0]), int(fields[1]), fields[2], point, kind))
    return found


def mount_of(path: str, mounts: Collection[Mount]) -> Mount | None:
    """The mount that an absolute path lies on, as the path is written; None where that is in memory, or not known."""
    on = {(each.parent, each.point): each for each in mounts if each.parent != each.number}
    numbers = {each.number for each in mounts}
    found = next((each for each in mounts if each.parent not in numbers or each.parent == each.number), None)
    here = ""
    for name in ["", *path.split("/")]:  # as the kernel walks: what lies below a covered point is not seen
        here = here if not name else f"{here}/{name}"
        while found is not None and (above := on.get((found.number, here or "/"))) is not None:
            found = above
    return None if found is None or found.kind in _IN_MEMORY else found


def _text_at(thread: int, address: int) -> str:
    """The text at an address of a thread's memory; empty where there is none that could be a path."""
    data = b""
    with contextlib.suppress(OSError, ValueError, OverflowError):
        fd = os.open(f"/proc/{thread}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            while len(data) < _LONGEST_PATH and b"\0" not in data:  # page by page: the next may not be there
                at = address + len(data)
                piece = os.pread(fd, _PAGE_BYTES - at % _PAGE_BYTES, at)
                if not piece:
                    break
                data += piece
        finally:
            os.close(fd)
    text = data.partition(b"\0")[0].decode(errors="replace")
    return text if text.isprintable() else ""


def _read(path: str) -> str:
    try:
        return files.read(path).strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
