"""The system calls that a lab is made of and that Python 3.11 has no names for."""

import ctypes
import os
import signal
from typing import Final

NEW_USER: Final = 0x10000000
NEW_PID: Final = 0x20000000
NEW_NET: Final = 0x40000000
NEW_UTS: Final = 0x04000000
NEW_IPC: Final = 0x08000000
NEW_MOUNTS: Final = 0x00020000

MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_PRIVATE: Final = 1 << 18

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int, what: str) -> None:
    """Leave the caller's namespaces of these kinds for new ones. ``what`` names them in an error."""
    _checked(_libc.unshare(ctypes.c_int(flags)), what)


def mount(source: str, target: str, kind: str = "", flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    arguments = [os.fsencode(text) if text else None for text in (source, target, kind)]
    data = os.fsencode(options) if options else None
    _checked(_libc.mount(*arguments, ctypes.c_ulong(flags), data), f"mount {kind or source} on {target}")


def enter_user_namespace() -> None:
    """A user namespace in which the caller keeps his user and group, and has every capability until he executes."""
    uid, gid = os.geteuid(), os.getegid()
    unshare(NEW_USER, "user namespace")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        try:
            write(f"/proc/self/{name}", text)
        except OSError as error:
            raise OSError(error.errno, f"user namespace: {name}: {error.strerror}") from None


def write(path: str, text: str) -> None:
    """Write to a file of the kernel's with one system call, so that its refusal is seen."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def die_with_parent() -> None:
    """Have the kernel kill the caller when the process that forked him dies."""
    _checked(_libc.prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL), 0, 0, 0), "parent's death signal")


def adopt_orphans() -> None:
    """Have every orphan below the caller become a child of his."""
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, ctypes.c_ulong(1), 0, 0, 0), "subreaper")


def call_me(name: str) -> None:
    """Set the name that ``ps`` and ``top`` show (15 characters)."""
    _libc.prctl(_PR_SET_NAME, ctypes.c_char_p(name.encode()[:15]), 0, 0, 0)
