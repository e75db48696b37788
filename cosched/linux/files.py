"""Files as somebody with privileges must treat them: no buffers on cgroup files, no symlinks, whole or not at all."""

import contextlib
import ctypes
import os
import stat
from collections.abc import Iterator
from typing import Final

_READ_BYTES: Final = 64 << 10
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEPTH: Final = 32
_ATTEMPTS: Final = 10_000
_AT_FDCWD: Final = -100
_RENAME_EXCHANGE: Final = 2
_libc = ctypes.CDLL(None, use_errno=True)


def read(path: str, dir_fd: int | None = None) -> str:
    """The text of a small file of the kernel or of ours. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=dir_fd)
    try:
        pieces = []
        while piece := os.read(fd, _READ_BYTES):
            pieces.append(piece)
        return b"".join(pieces).decode(errors="replace")
    finally:
        os.close(fd)


def write(path: str, text: str) -> None:
    """Write into a file of the kernel, in one call, so that its refusal (EBUSY, EINVAL) is heard. Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def exec_problem(path: str | os.PathLike[str], *, others: bool = False) -> str:
    """Why no program in that directory, or not that program, can be executed; "" where it can.

    A mount with ``noexec``; for ``others`` than the caller also a directory on the way that they may not enter. What
    does not exist yet is judged by the nearest directory above it. Raises OSError.
    """
    there = os.path.realpath(path)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    if _is_noexec(there):
        while there != "/" and _is_noexec(above := os.path.dirname(there)):
            there = above
        return f"{there} is mounted noexec"
    while others:
        if not (mode := stat.S_IMODE(os.stat(there).st_mode)) & stat.S_IXOTH:
            return f"{there} is closed to other users (mode {mode:04o})"
        others, there = there != "/", os.path.dirname(there)
    return ""


def _is_noexec(path: str) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_NOEXEC)


def drop(name: str, dir_fd: int | None = None) -> None:
    """Remove a file, if it is there. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=dir_fd)


def replace(name: str, text: str, dir_fd: int, *, durable: bool) -> None:
    """Write a whole file under that name in a directory of ours, or none; ``durable``: it survives a power cut.

    A process that is killed meanwhile leaves ``.NAME.PID``.
    """
    fresh = f".{name}.{os.getpid()}"
    drop(fresh, dir_fd)
    fd = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=dir_fd)
    try:
        data = text.encode()
        while data:
            data = data[os.write(fd, data) :]
        if durable:
            os.fsync(fd)
        os.rename(fresh, name, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(fresh, dir_fd=dir_fd)
        raise
    finally:
        os.close(fd)
    if durable:
        os.fsync(dir_fd)


def exchange(one: str, other: str) -> None:
    """Two names of a file system change what they name, in one moment. Raises OSError, EINVAL where it cannot."""
    if _libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), one, None, other)


def own_directory(path: str, mode: int, dir_fd: int | None = None) -> int:
    """A descriptor of a directory that is ours alone, made when missing. Raises PermissionError if somebody else's.

    A symlink is refused, and so is a directory in which others may write: what is written there has privileges.
    """
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode, dir_fd=dir_fd)
    fd = os.open(path, _DIRECTORY, dir_fd=dir_fd)
    status = os.fstat(fd)
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(fd)
        raise PermissionError(
            f"{path} belongs to uid {status.st_uid} with mode {stat.S_IMODE(status.st_mode):o}; "
            f"expected one that only uid {os.geteuid()} can write to"
        )
    os.fchmod(fd, mode)
    return fd


def remove_tree(name: str, dir_fd: int) -> None:
    """Remove a directory and what is in it, wherever its owner may move parts of it meanwhile; never through a symlink.

    Raises OSError. Missing: nothing to do. It may take as long as there are files in it.
    """
    try:
        top = os.open(name, _DIRECTORY, dir_fd=dir_fd)
    except FileNotFoundError:
        return
    except NotADirectoryError:
        os.unlink(name, dir_fd=dir_fd)
        return
    try:
        for attempt in range(_ATTEMPTS):  # what was too deep comes to the top and is removed in the next round
            if not os.listdir(top):
                break
            _empty(top, f".deep-{os.getpid()}-{attempt}-")
        os.rmdir(name, dir_fd=dir_fd)
    finally:
        os.close(top)


def _empty(top: int, prefix: str) -> None:
    moved = 0
    way: list[tuple[int, str, Iterator[str]]] = [(top, "", iter(os.listdir(top)))]
    try:
        while way:
            here, label, entries = way[-1]
            entry = next(entries, None)
            if entry is None:
                way.pop()
                if way:
                    os.close(here)
                    with contextlib.suppress(FileNotFoundError):
                        os.rmdir(label, dir_fd=way[-1][0])
                continue
            try:
                if not stat.S_ISDIR(os.stat(entry, dir_fd=here, follow_symlinks=False).st_mode):
                    os.unlink(entry, dir_fd=here)
                elif len(way) > _DEPTH:  # as deep as somebody likes, but not with as many descriptors
                    os.rename(entry, f"{prefix}{moved}", src_dir_fd=here, dst_dir_fd=top)
                    moved += 1
                else:
                    if os.geteuid():  # a user may have shut himself out of his own directory
                        os.chmod(entry, 0o700, dir_fd=here)
                    below = os.open(entry, _DIRECTORY, dir_fd=here)
                    way.append((below, entry, iter(os.listdir(below))))
            except FileNotFoundError:
                continue
    finally:
        for left, _, _ in way[1:]:
            os.close(left)
