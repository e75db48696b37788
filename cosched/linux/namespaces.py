"""Namespaces: a job's private /tmp and /dev/shm, made of directories, and what must stay visible inside them; its IPC.

The file descriptors of directories are what is mounted and what is mounted on (through /proc/self/fd), so that no
symlink which a job's user puts anywhere leads a mount with privileges somewhere else.
"""

import contextlib
import ctypes
import os
from collections.abc import Iterable, Mapping
from typing import Final

from cosched.linux.process import checked

_CLONE_NEWNS: Final = 0x00020000
_CLONE_NEWIPC: Final = 0x08000000
_MS_NOSUID, _MS_NODEV, _MS_BIND, _MS_REC, _MS_PRIVATE = 0x2, 0x4, 0x1000, 0x4000, 0x40000
_MNT_DETACH, _UMOUNT_NOFOLLOW = 0x2, 0x8
_libc = ctypes.CDLL(None, use_errno=True)


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2). Raises OSError that names the target."""
    result = _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(), ctypes.c_ulong(flags), data.encode())
    checked(result, f"mount on {target}")


def private_mounts() -> None:
    """From now on, what this process mounts is seen by itself and its descendants alone."""
    checked(_libc.unshare(_CLONE_NEWNS), "unshare of mounts")
    mount("none", "/", flags=_MS_REC | _MS_PRIVATE)


def mount_memory(fd: int, uid: int, gid: int, size_bytes: int) -> None:
    """Mount an empty tmpfs of one user on an open directory, at most of that size. Raises OSError."""
    data = f"mode=0700,uid={uid},gid={gid},size={size_bytes}"
    mount("cosched", f"/proc/self/fd/{fd}", "tmpfs", _MS_NOSUID | _MS_NODEV, data)


def make_ipc(directory_fd: int, name: str) -> None:
    """An empty IPC namespace (System V's objects, POSIX message queues), kept alive by a file of an open directory.

    The caller is in it afterwards. Nobody else may be able to write to the directory. Raises OSError; then there is no
    file.
    """
    os.close(os.open(name, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o400, dir_fd=directory_fd))
    try:
        checked(_libc.unshare(_CLONE_NEWIPC), "unshare of IPC")
        mount("/proc/self/ns/ipc", f"/proc/self/fd/{directory_fd}/{name}", flags=_MS_BIND)
    except OSError:
        os.unlink(name, dir_fd=directory_fd)
        raise


def enter_ipc(path: str) -> None:
    """Be in the IPC namespace that a file keeps; stay where one is, when there is no file. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        checked(_libc.setns(fd, _CLONE_NEWIPC), f"setns to {path}")
    finally:
        os.close(fd)


def unmount(path: str) -> None:
    """Take a mount away, in the background where it is still in use. Nothing mounted there: nothing to do."""
    with contextlib.suppress(OSError):
        checked(_libc.umount2(os.fsencode(path), _MNT_DETACH | _UMOUNT_NOFOLLOW), f"unmount {path}")


def cover(covers: Mapping[str, str], keep: Iterable[str]) -> None:
    """Put directories (values) over others (keys) in this mount namespace; paths below them in ``keep`` stay visible.

    Call after :func:`private_mounts`, with privileges. A path of ``keep`` that isn't there is passed over. Raises
    OSError.
    """
    kept = [(path, _opened(path)) for path in _outermost(keep)]
    sources = {target: _opened(source) for target, source in covers.items()}
    try:
        for target, source in sources.items():
            if source is None:
                raise FileNotFoundError(2, "no such directory", covers[target])
            place = os.open(target, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            mount(f"/proc/self/fd/{source}", f"/proc/self/fd/{place}", flags=_MS_BIND)
            os.close(place)
        for path, fd in kept:
            for target in covers:
                if fd is not None and is_below(path, target):
                    place = _made(target, os.path.relpath(path, target))
                    mount(f"/proc/self/fd/{fd}", f"/proc/self/fd/{place}", flags=_MS_BIND | _MS_REC)
                    os.close(place)
    finally:
        for fd in [*sources.values(), *(fd for _, fd in kept)]:
            if fd is not None:
                os.close(fd)


def is_below(path: str, directory: str) -> bool:
    """Whether a path lies within a directory, as the two are written."""
    path, directory = os.path.normpath(path), os.path.normpath(directory)
    return path != directory and os.path.commonpath([path, directory]) == directory


def _outermost(paths: Iterable[str]) -> list[str]:
    chosen: list[str] = []
    for path in sorted({os.path.normpath(path) for path in paths if os.path.isabs(path)}):
        if not any(path == other or is_below(path, other) for other in chosen):
            chosen.append(path)
    return chosen


def _opened(path: str) -> int | None:
    try:
        return os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _made(top: str, way: str) -> int:
    """A directory below a private one, made when missing, that no symlink leads out of it."""
    here = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    for name in way.split("/"):
        with contextlib.suppress(FileExistsError):
            os.mkdir(name, 0o755, dir_fd=here)
        try:
            below = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=here)
        finally:
            os.close(here)
        here = below
    return here
