"""What the guard reads of ``node.toml``, with the standard library alone (the whole file: ``cosched.config.node``).

Every key is checked here again: what has privileges trusts nobody's validation. The file must be the guard's own, or
whoever can write to it has the guard's privileges.
"""

import os
import stat
import tomllib
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from cosched.linux.weights import Weights


class BadSettings(ValueError):
    """The settings cannot be used, and why: file and key, what was found, what was expected."""


class Paths(NamedTuple):
    """Absolute paths; ``keep`` stays visible where a job's private /tmp covers it."""

    run: str = "/run/cosched"
    state: str = "/var/lib/cosched"
    identity: str = "/etc/cosched/identity"
    keep: tuple[str, ...] = ()


class Cgroup(NamedTuple):
    """Which cgroups, where in them the parallel side and the owner's are, and whether to have ``decoys`` in both."""

    mode: str = "auto"
    mount: str = "/sys/fs/cgroup"
    cosched: str = "cosched"
    desk: str = "user.slice"
    decoys: bool = False


class Security(NamedTuple):
    """Who jobs may run as, who may talk to the guard, and who decides about this desk beside its local users."""

    users: str = "switch"
    min_uid: int = 1000
    allow_root: bool = False
    agent_user: str = ""
    private_tmp: bool = True
    desk_users: tuple[str, ...] = ()


class Contract(NamedTuple):
    """Shares of CPU and memory that parallel work may have while somebody is at the desk, and tasks per processor."""

    cpu_ratio: float = 0.5
    memory_ratio: float = 0.5
    mpl: int = 1


class Monitoring(NamedTuple):
    """What is measured here of what the owner feels: ``wakeups``, by a process that sleeps and wakes."""

    wakeups: bool = True


class Settings(NamedTuple):
    """The part of ``node.toml`` that the guard acts on. ``parallel``: whether this desk takes part at all."""

    procs: int
    memory_bytes: int
    paths: Paths = Paths()
    cgroup: Cgroup = Cgroup()
    security: Security = Security()
    contract: Contract = Contract()
    weights: Weights = Weights()
    parallel: bool = True
    monitoring: Monitoring = Monitoring()


#: Keys of the file that are others' business; any further one is a mistake.
OTHERS: Final = frozenset({"name", "cluster", "scheduler", "launch", "presence", "output", "coscheduling"})


def load(path: str) -> Settings:
    """Read and check the file. Raises :class:`BadSettings`."""
    try:
        with open(path, "rb") as file:
            status = os.fstat(file.fileno())
            raw = tomllib.load(file)
    except OSError as error:
        raise BadSettings(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:  # also of its converters: a number of too many digits
        raise BadSettings(f"{path}: not TOML: {error}") from None
    except RecursionError:
        raise BadSettings(f"{path}: not TOML: nested too deeply") from None
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BadSettings(
            f"{path}: belongs to uid {status.st_uid} with mode {stat.S_IMODE(status.st_mode):o}; expected a file that "
            "root or the guard's own user alone can write to"
        )
    try:
        return parsed(raw)
    except BadSettings as error:
        raise BadSettings(f"{path}: {error}") from None


def parsed(raw: Mapping[str, Any]) -> Settings:
    """Check what a file says. Raises :class:`BadSettings` that begins with the key."""
    for key in raw:
        if key not in OTHERS and key not in Settings._fields:
            raise BadSettings(f"{key[:80]}: unknown key; expected one of {', '.join(sorted(Settings._fields))}")
    settings = Settings(
        _whole(raw, "procs", "", 1),
        _whole(raw, "memory_bytes", "", 1),
        Paths(**_table(raw, "paths", Paths())),
        Cgroup(**_table(raw, "cgroup", Cgroup())),
        Security(**_table(raw, "security", Security())),
        Contract(**_table(raw, "contract", Contract())),
        Weights(**_table(raw, "weights", Weights())),
        raw.get("parallel", True),
        Monitoring(**_table(raw, "monitoring", Monitoring())),
    )
    _check(settings)
    return settings


def _check(settings: Settings) -> None:
    paths, cgroup, security, contract, weights, parallel, _ = settings[2:]
    _expect(isinstance(parallel, bool), "parallel", parallel, "true or false")
    for key, path in (("run", paths.run), ("state", paths.state), *(("keep", kept) for kept in paths.keep)):
        _expect(os.path.isabs(path), f"paths.{key}", path, "an absolute path")
    _expect(cgroup.mode in {"auto", "v2", "v1", "none"}, "cgroup.mode", cgroup.mode, "auto, v2, v1 or none")
    _expect(os.path.isabs(cgroup.mount), "cgroup.mount", cgroup.mount, "an absolute path")
    for key, path in (("cosched", cgroup.cosched), ("desk", cgroup.desk)):
        straight = not any(part in {"", ".", ".."} for part in path.strip("/").split("/"))
        _expect(straight, f"cgroup.{key}", path, "a group's path below the mount")
    _expect(
        security.users in {"switch", "by-name", "self"}, "security.users", security.users, "switch, by-name or self"
    )
    _expect(security.min_uid >= 1, "security.min_uid", security.min_uid, "at least 1")
    for key, share in (("cpu_ratio", contract.cpu_ratio), ("memory_ratio", contract.memory_ratio)):
        _expect(0 < share <= 1, f"contract.{key}", share, "a share above 0, up to 1")
    _expect(contract.mpl >= 1, "contract.mpl", contract.mpl, "at least 1")
    _expect(0 <= weights.io <= 100, "weights.io", weights.io, "1 to 100, or 0 for none")
    priority = weights.network_priority
    _expect(0 <= priority < 1 << 31, "weights.network_priority", priority, "a priority of packets, or 0 for none")


def _expect(holds: bool, key: str, found: object, expected: str) -> None:
    if not holds:
        raise BadSettings(f"{key}: found {_shown(found)}; expected {expected}")


def _shown(value: object) -> str:
    try:
        return repr(value)[:200]
    except (ValueError, RecursionError):  # a number of too many digits, tables in tables in tables
        return "a value of a size that cannot be"


def _whole(raw: Mapping[str, Any], key: str, table: str, least: int) -> int:
    value = raw.get(key)
    if type(value) is not int or not least <= value < 1 << 63:
        raise BadSettings(f"{table}{key}: found {_shown(value)}; expected a whole number from {least} on")
    return value


def _table(raw: Mapping[str, Any], name: str, default: NamedTuple) -> dict[str, Any]:
    """A table's values, each of the type that its default has."""
    table = raw.get(name, {})
    if not isinstance(table, dict):
        raise BadSettings(f"{name}: found {_shown(table)}; expected a table")
    values: dict[str, Any] = {}
    for key, found in table.items():
        if key not in default._fields:
            raise BadSettings(f"{name}.{key[:80]}: unknown key; expected one of {', '.join(default._fields)}")
        value = _like(getattr(default, key), found)
        _expect(value is not None, f"{name}.{key}", found, f"a value like {getattr(default, key)!r}")
        values[key] = value
    return values


def _like(default: object, found: object) -> object:
    """The value when it is of the default's type, else None; lists of texts for tuples, whole numbers for shares."""
    if isinstance(default, tuple):
        texts = isinstance(found, list) and all(isinstance(item, str) and "\0" not in item for item in found)
        return tuple(found) if texts and isinstance(found, list) else None
    if isinstance(found, int) and found.bit_length() > 63:
        return None
    if isinstance(default, float) and type(found) is int:
        return float(found)
    if type(found) is not type(default) or (isinstance(found, str) and "\0" in found):
        return None
    return found
