"""The system calls that a lab is made of, beyond those that the node's guard has names for already."""

import contextlib
import ctypes
import os
from collections.abc import Iterator
from typing import Final

from cosched.linux import files
from cosched.linux.process import checked

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

_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int, what: str) -> None:
    """Leave the caller's namespaces of these kinds for new ones. ``what`` names them in an error."""
    checked(_libc.unshare(ctypes.c_int(flags)), what)


def own_network() -> int:
    """A descriptor of the network namespace that the caller is in."""
    return os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


@contextlib.contextmanager
def in_network(namespace: int) -> Iterator[None]:
    """Be in the network namespace of that descriptor for as long as the context lasts."""
    before = own_network()
    try:
        checked(_libc.setns(ctypes.c_int(namespace), ctypes.c_int(NEW_NET)), "enter a network namespace")
        yield
    finally:
        try:
            checked(_libc.setns(ctypes.c_int(before), ctypes.c_int(NEW_NET)), "leave a network namespace")
        finally:
            os.close(before)


def new_network() -> int:
    """A descriptor of a new network namespace, which nobody is in."""
    before = own_network()
    try:
        with in_network(before):
            unshare(NEW_NET, "network namespace")
            return own_network()
    finally:
        os.close(before)


def enter_user_namespace() -> None:
    """A user namespace in which the caller keeps user and group, and has every capability until it executes another
    program.
    """
    uid, gid = os.geteuid(), os.getegid()
    unshare(NEW_USER, "user namespace")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        try:
            files.write(f"/proc/self/{name}", text)
        except OSError as error:
            raise OSError(error.errno, error.strerror, f"{name} of a user namespace") from None


def told(error: BaseException) -> str:
    """An error for people: what was tried, and what the kernel said."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or repr(error)
