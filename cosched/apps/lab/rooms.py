"""What makes a process tree look like a workstation of its own: its mounts and its name.

Called as process 1 of new namespaces. Private are /proc, /dev (terminals, shared memory), /tmp, /var/tmp and /run;
everything else is the machine's own. What must stay visible although it lies in a private place (a checkout under /tmp,
say) is bound back to where it was.
"""

import contextlib
import os
import socket
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from cosched.apps.lab import kernel
from cosched.linux import files
from cosched.linux.namespaces import mount

_PRIVATE: Final = {"/tmp": "1777", "/var/tmp": "1777", "/run": "0755"}
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty", "fuse")
_DEVICE_LINKS: Final = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}


def _covered(shared_memory: str) -> dict[str, str]:
    """The private directories that this machine has, by their real paths, with the mode of each; /dev apart."""
    found = {shared_memory: "1777"}
    for name, mode in _PRIVATE.items():
        if os.path.isdir(name):
            found.setdefault(os.path.realpath(name), mode)
    return found


def kept(places: Iterable[str | Path]) -> list[str]:
    """Of these directories, the real paths of those that lie in a private one and so have to be bound back.

    A private directory itself, or one that holds it, is never bound back: it would not be private then.
    """
    inside = set()
    private = _covered(os.path.realpath("/dev/shm"))
    for place in places:
        real = os.path.realpath(place)
        if os.path.isdir(real) and any(real.startswith(f"{each}/") for each in private):
            inside.add(real)
    return sorted(place for place in inside if not any(place.startswith(f"{other}/") for other in inside))


def own_places() -> list[str]:
    """Where the program, its interpreter and its libraries are, the directory it was called in, and the search path."""
    interpreter = os.path.dirname(os.path.realpath(sys.executable))
    places = [sys.prefix, sys.base_prefix, sys.exec_prefix, interpreter, str(Path(__file__).parents[3]), *sys.path]
    with contextlib.suppress(FileNotFoundError):  # somebody removed it
        places.append(os.getcwd())
    return [place for place in [*places, *os.get_exec_path()] if os.path.isabs(place)]


def separate_mounts() -> None:
    """Have mounts made from here on stay here, and show the processes of this namespace."""
    mount("", "/", flags=kernel.MS_REC | kernel.MS_PRIVATE)
    mount("proc", "/proc", "proc", kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC)


def cover(keep: Iterable[str]) -> None:
    """Cover the private directories with empty ones, and bind back what to keep (as :func:`kept` gives it)."""
    held = _held([*keep, *(f"/dev/{name}" for name in _DEVICES)])
    shared_memory = os.path.realpath("/dev/shm")
    try:
        mount("tmpfs", "/dev", "tmpfs", kernel.MS_NOSUID, "mode=0755")
        for name, target in _DEVICE_LINKS.items():
            os.symlink(target, f"/dev/{name}")
        if shared_memory != "/dev/shm":
            os.symlink(shared_memory, "/dev/shm")
        for place, mode in sorted(_covered(shared_memory).items()):  # those that hold others first
            os.makedirs(place, exist_ok=True)
            mount("tmpfs", place, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, f"mode={mode}")
        for place, descriptor in held.items():
            if place.startswith("/dev/") and place[5:] in _DEVICES:
                os.close(os.open(place, os.O_CREAT | os.O_CLOEXEC, 0o666))
            else:
                os.makedirs(place, exist_ok=True)
            mount(f"/proc/self/fd/{descriptor}", place, flags=kernel.MS_BIND | kernel.MS_REC)
    finally:
        for descriptor in held.values():
            os.close(descriptor)


def _held(places: Iterable[str]) -> dict[str, int]:
    """A descriptor of each of these that there is: by it, it is found although something covers it."""
    return {place: os.open(place, os.O_PATH | os.O_CLOEXEC) for place in places if os.path.exists(place)}


def own_terminals() -> None:
    """Pseudo-terminals that nobody else sees; the machine's consoles are not there either, their keys are others'."""
    os.mkdir("/dev/pts")
    options = "newinstance,ptmxmode=0666,mode=0620"
    try:
        mount("devpts", "/dev/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, f"{options},gid=5")
    except OSError:  # the group tty has no number in this user namespace
        mount("devpts", "/dev/pts", "devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, options)


def allow_programs(directory: str) -> None:
    """Mount an executable tmpfs over a directory where its file system is ``noexec``, as /run of Debian and Ubuntu is.

    The caller's mount namespace alone has it: for all others the directory stays as it was. An executable bind mount of
    the same directory would do, too, but the kernel refuses one in a user namespace. Raises OSError.
    """
    os.makedirs(directory, mode=0o711, exist_ok=True)
    if files.exec_problem(directory):
        mount("tmpfs", directory, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0711")


def furnish(name: str, hosts: str, keep: Iterable[str]) -> None:
    """Make the caller's new namespaces the workstation ``name``, which knows the others by the file ``hosts``."""
    socket.sethostname(name)
    separate_mounts()
    known = os.open(hosts, os.O_PATH | os.O_CLOEXEC)
    cover(keep)
    own_terminals()
    with contextlib.suppress(OSError):  # few programs use POSIX message queues
        os.mkdir("/dev/mqueue")
        mount("mqueue", "/dev/mqueue", "mqueue")
    mount(f"/proc/self/fd/{known}", "/etc/hosts", flags=kernel.MS_BIND)
    os.close(known)
    with open("/run/utmp", "xb"):  # who is logged in, as on any machine
        os.chmod("/run/utmp", 0o664)
    with contextlib.suppress(FileExistsError):  # where /var/lock leads
        os.mkdir("/run/lock", 0o777)
