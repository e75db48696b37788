"""What this machine can enforce, and why not the rest: found by trying, and nothing of it is left."""

import contextlib
import os
import time
from typing import Final, Protocol

from cosched.linux import cgroup_find, namespaces, process, slices, users
from cosched.linux.cgroups import YES, Cgroups, NoCgroups, beside_desk, trial_name, trial_of
from cosched.linux.weights import Weights

_PATIENCE_S: Final = 5.0


class CgroupSettings(Protocol):
    """Of ``node.toml``: ``[cgroup]``."""

    @property
    def mode(self) -> str:
        """Which cgroups."""

    @property
    def mount(self) -> str:
        """Where the hierarchies are."""

    @property
    def cosched(self) -> str:
        """The parallel side."""

    @property
    def desk(self) -> str:
        """The owner's side."""


class SecuritySettings(Protocol):
    """Of ``node.toml``: ``[security]``."""

    @property
    def users(self) -> str:
        """Who jobs run as: switch or self."""

    @property
    def private_tmp(self) -> bool:
        """Whether a job gets a /tmp of its own."""


class WeightSettings(Protocol):
    """Of ``node.toml``: ``[weights]``."""

    @property
    def io(self) -> int:
        """On disks."""

    @property
    def network_priority(self) -> int:
        """Of packets."""


class NodeSettings(Protocol):
    """Of ``node.toml``, as the guard or ``cosched.config.node`` reads it."""

    @property
    def cgroup(self) -> CgroupSettings:
        """Section ``[cgroup]``."""

    @property
    def security(self) -> SecuritySettings:
        """Section ``[security]``."""

    @property
    def weights(self) -> WeightSettings:
        """Section ``[weights]``."""


def what_can(config: NodeSettings) -> dict[str, str]:
    """Capability -> "yes", or what holds instead and why. Leaves nothing behind.

    Run it with the rights of the guard; a running guard tells the same by ``status``.
    """
    try:
        weights = Weights(config.weights.io, config.weights.network_priority)
        cgroups = cgroup_find.find(config.cgroup.mode, config.cgroup.mount, config.cgroup.cosched, weights)
    except NoCgroups as error:
        return {"cgroups": f"no: {error}"}
    try:
        return found(config, cgroups)
    finally:
        cgroups.close()


def found(config: NodeSettings, cgroups: Cgroups) -> dict[str, str]:
    """As :func:`what_can`, with cgroups that are there already."""
    can = {"cgroups": cgroups.kind, **cgroups.can()}
    if cgroups.kernel_groups:
        can["job kill"] = _try_kill(cgroups) if can["job kill"].startswith(YES) else can["job kill"]
        can["protects the desk"] = beside_desk(config.cgroup.cosched, config.cgroup.desk, idle=cgroups.idle_above())
        can["load by side"] = YES
    else:
        can["protects the desk"] = "no: without a cgroup beside the desk's, priorities hold within one user's session"
        can["load by side"] = "by owner of the process, not by cgroup"
    can["gives way"] = _in_child(slices.give_way)
    if not config.security.private_tmp:
        can["private /tmp"] = "no: security.private_tmp is false"
    else:
        can["private /tmp"] = _in_child(_try_mounts)
    if config.security.users == "self":
        can["switch user"] = "no: security.users is self, jobs run as the agent's user"
    else:
        can["switch user"] = _in_child(_try_switch)
    return can


def _try_kill(cgroups: Cgroups) -> str:
    """Kill a process in a group of its own, and remove the group; first the groups that killed checks have left."""
    for left in cgroups.names():
        checker = trial_of(left)
        if checker is not None and (checker == os.getpid() or process.stat_of(checker) is None):
            _end(cgroups, left, time.monotonic() + _PATIENCE_S)
            _remove(cgroups, left)
    name = trial_name(os.getpid())
    pid = 0
    try:
        cgroups.create(name, 64 << 20, 16)
        pid = os.fork()
        if pid == 0:
            try:
                cgroups.enter(name)
                time.sleep(2 * _PATIENCE_S)
            finally:
                os._exit(0)
        deadline_s = time.monotonic() + _PATIENCE_S
        while not cgroups.procs(name) and time.monotonic() < deadline_s:
            time.sleep(0.001)
        entered = bool(cgroups.procs(name))
        _end(cgroups, name, deadline_s)
        if not entered:
            return "no: a process could not enter a job's group"
        return YES if cgroups.empty(name) else "no: a process in a job's group could not be killed"
    except OSError as error:
        return f"no: {error.filename or name}: {error.strerror}"
    finally:
        if pid:
            with contextlib.suppress(OSError):
                os.kill(pid, 9)  # not reaped yet: it is still ours
            os.waitpid(pid, 0)
        _remove(cgroups, name)


def _end(cgroups: Cgroups, name: str, deadline_s: float) -> None:
    while not cgroups.empty(name) and time.monotonic() < deadline_s:
        cgroups.kill(name)
        time.sleep(0.001)


def _remove(cgroups: Cgroups, name: str) -> None:
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            cgroups.remove(name)
            return
        except OSError:
            if time.monotonic() > deadline_s:
                return
            time.sleep(0.01)


def _try_mounts() -> str:
    """Cover /tmp in a mount namespace."""
    try:
        namespaces.private_mounts()
        namespaces.cover({"/tmp": "/var"}, [])
    except OSError as error:
        return f"no: {error.filename}: {error.strerror}; TMPDIR names a directory of the job's instead"
    return YES


def _try_switch() -> str:
    """Become another user, and find no way back."""
    try:
        users.become(users.of_uid(users.NOBODY))
    except (OSError, PermissionError) as error:
        return f"no: {error.strerror or error}; it needs root (security.users = self runs jobs as the agent's user)"
    return YES


def _in_child(attempt: "Attempt") -> str:
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            process.no_new_privileges()
            os.write(write, attempt().encode())
        finally:
            os._exit(0)
    os.close(write)
    try:
        return os.read(read, 4096).decode() or "no: the attempt ended without a result"
    finally:
        os.close(read)
        os.waitpid(pid, 0)


class Attempt(Protocol):
    """Something tried in a child: "yes", or why not."""

    def __call__(self) -> str:
        """Try."""
