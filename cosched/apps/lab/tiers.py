"""Which tier of lab this machine can have, found by trying: a child makes one of everything, and says what refused.

1: namespaces and control groups. 2: namespaces alone, in a user namespace that keeps the caller's user. 3: neither.
"""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from cosched.apps.lab import cgroups, kernel, rooms
from cosched.apps.lab.netlink import Network

NAMESPACES: Final = kernel.NEW_PID | kernel.NEW_MOUNTS | kernel.NEW_NET | kernel.NEW_UTS | kernel.NEW_IPC
ABOUT: Final = {
    1: "namespaces and control groups",
    2: "namespaces without control groups: CPU and memory are not limited",
    3: "plain processes on one host: no job over several nodes",
}
#: A control group that is only tried; no lab's name has a dot.
_TRY: Final = "try."
#: Settings of the kernel that forbid namespaces to ordinary users: file below /proc/sys, what forbids, what allows.
_SETTINGS: Final = (
    ("user/max_user_namespaces", "0", "15000"),
    ("kernel/unprivileged_userns_clone", "0", "1"),
    ("kernel/apparmor_restrict_unprivileged_userns", "1", "0"),
    *((f"user/max_{kind}_namespaces", "0", "15000") for kind in ("pid", "mnt", "net", "uts", "ipc")),
)


class Possible(NamedTuple):
    """The tier to make, with or without a user namespace, why not a better one, and what to do about it."""

    tier: int
    user_namespace: bool = False
    why: str = ""
    remedy: str = ""


def headline(name: str, tier: int, why: str, remedy: str) -> str:
    """What every command of the lab says first."""
    because = f"; not tier {tier - 1}: {why}" if why else ""
    return f"lab {name}: tier {tier}, {ABOUT[tier]}{because}" + (f"; remedy: {remedy}" if remedy else "")


def best(wanted: int = 0) -> Possible:
    """The best tier there is (``wanted`` 0), or the best that is not better than the wanted one."""
    if wanted == 3:
        return Possible(3, why="tier 3 was asked for")
    plain = tried(_namespaces)
    groups = "tier 2 was asked for" if wanted == 2 else tried(_groups) or plain
    if not groups:
        return Possible(1)
    remedy = "" if wanted == 2 else _remedy_for_groups()
    if not plain:
        return Possible(2, why=groups, remedy=remedy)
    trouble = tried(_user_namespaces)
    if not trouble:
        return Possible(2, True, groups, remedy)
    return Possible(3, why=trouble, remedy=_remedy_for_namespaces(trouble))


def tried(attempt: Callable[[], None]) -> str:
    """What kept a child from doing this; empty when nothing did."""
    told, tell = os.pipe2(os.O_CLOEXEC)
    pid = os.fork()
    if pid == 0:
        try:
            os.close(told)
            attempt()
        except BaseException as error:
            os.write(tell, kernel.told(error).encode())
        finally:
            os._exit(0)
    os.close(tell)
    with open(told, encoding="utf-8") as file:
        trouble = file.read()
    _, status = os.waitpid(pid, 0)
    return trouble or (f"the attempt ended with {status}" if status else "")


def _groups() -> None:
    if not cgroups.hierarchies():
        raise OSError(0, "no control groups with CPU and memory are mounted")
    for name in cgroups.labs():
        pid = name.removeprefix(_TRY)
        if pid != name and not Path("/proc", pid).exists():  # a process was killed while it tried
            cgroups.remove(name)
    name = f"{_TRY}{os.getpid()}"
    try:
        cgroups.make(name, {"node": cgroups.Share(1, 64 << 20, 1.0)})
        # a child of ours enters, and leaves by its end
        if trouble := tried(lambda: cgroups.enter(cgroups.doors(name, "node", "desk"))):
            raise OSError(0, trouble)
    finally:
        cgroups.remove(name)


def _user_namespaces() -> None:
    kernel.enter_user_namespace()
    _namespaces()


def _namespaces() -> None:
    kernel.unshare(NAMESPACES, "namespaces")
    if trouble := tried(_furnish):
        raise OSError(0, trouble)


def _furnish() -> None:
    rooms.furnish("try", "/etc/hosts", ())
    for descriptor in os.openpty():
        os.close(descriptor)
    inside = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    with Network() as network:
        network.set_up("lo")
        network.add_bridge("lan")
        network.add_pair("one", "other", inside, "lan")
        network.add_address("other", "10.77.0.1/24")


def _remedy_for_groups() -> str:
    if os.geteuid():
        return "as root, desks get limits too"
    if _in_container():
        return "start the container with --privileged"
    return "mount control groups with the controllers cpu and memory"


def _remedy_for_namespaces(trouble: str) -> str:
    if os.strerror(errno.EOPNOTSUPP) in trouble:
        return "as root: modprobe bridge veth; this kernel lacks them"
    found = []
    for setting, forbids, allows in _SETTINGS:
        if _read(f"/proc/sys/{setting}") == forbids:
            found.append(f"sysctl -w {setting.replace('/', '.')}={allows}")
    if found:
        return "as root: " + "; ".join(found)
    if _in_container():
        return (
            "start the container with --privileged, or with --security-opt seccomp=unconfined "
            "--security-opt apparmor=unconfined --security-opt systempaths=unconfined"
        )
    if "\nSeccomp:\t2" in _read("/proc/self/status"):
        return "a seccomp filter of the service or shell that this runs in forbids it; run outside of it"
    return "run as root" if os.geteuid() else "run where root has the capability CAP_SYS_ADMIN"


def _in_container() -> bool:
    return any(Path(mark).exists() for mark in ("/.dockerenv", "/run/.containerenv")) or "container" in os.environ


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""
