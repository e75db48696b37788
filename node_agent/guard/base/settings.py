"""What the guard reads of ``node.toml``, with the standard library alone (the whole file: ``cosched.config.node``).

Every key is checked here again: what has privileges trusts nobody's validation. The file must be the guard's own, or
whoever can write to it has the guard's privileges.
"""

import os
import stat
import tomllib
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from cosched.linux.users import User, resolve
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

    def account(self, name: str, submitter: int | None) -> User:
        """A user's account here; ``submitter``: the uid on the scheduler's host. Raises ``UserRefused``."""
        return resolve(name, users=self.users, min_uid=self.min_uid, allow_root=self.allow_root, submitter=submitter)


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


def _is_share(value: float) -> bool:
    return 0 < value <= 1


def _is_group(path: str) -> bool:
    return not any(part in {"", ".", ".."} for part in path.strip("/").split("/"))


#: What holds for a value beside its type (of a list: for each), and that in words.
_RULES: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    "paths.run": (os.path.isabs, "an absolute path"),
    "paths.state": (os.path.isabs, "an absolute path"),
    "paths.keep": (os.path.isabs, "an absolute path"),
    "cgroup.mode": (lambda mode: mode in {"auto", "v2", "v1", "none"}, "auto, v2, v1 or none"),
    "cgroup.mount": (os.path.isabs, "an absolute path"),
    "cgroup.cosched": (_is_group, "a group's path below the mount"),
    "cgroup.desk": (_is_group, "a group's path below the mount"),
    "security.users": (lambda users: users in {"switch", "by-name", "self"}, "switch, by-name or self"),
    "security.min_uid": (lambda uid: uid >= 1, "at least 1"),
    "contract.cpu_ratio": (_is_share, "a share above 0, up to 1"),
    "contract.memory_ratio": (_is_share, "a share above 0, up to 1"),
    "contract.mpl": (lambda mpl: mpl >= 1, "at least 1"),
    "weights.io": (lambda weight: 0 <= weight <= 100, "1 to 100, or 0 for none"),
    "weights.network_priority": (lambda priority: 0 <= priority < 1 << 31, "a priority of packets, or 0 for none"),
}


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
    for key in ("procs", "memory_bytes"):
        value = raw.get(key)
        _expect(type(value) is int and 1 <= value < 1 << 63, key, value, "a whole number from 1 on")
    parallel = raw.get("parallel", True)
    _expect(isinstance(parallel, bool), "parallel", parallel, "true or false")
    tables = {
        name: _table(raw, name, default)
        for name, default in Settings._field_defaults.items()
        if isinstance(default, tuple)
    }
    return Settings(raw["procs"], raw["memory_bytes"], parallel=parallel, **tables)


def _expect(holds: bool, key: str, found: object, expected: str) -> None:
    if not holds:
        raise BadSettings(f"{key}: found {_shown(found)}; expected {expected}")


def _shown(value: object) -> str:
    try:
        return repr(value)[:200]
    except (ValueError, RecursionError):  # a number of too many digits, tables in tables in tables
        return "a value of a size that cannot be"


def _table(raw: Mapping[str, Any], name: str, default: Any) -> Any:
    """A table: its values each of the type that its default has, and within its rule."""
    table = raw.get(name, {})
    _expect(isinstance(table, dict), name, table, "a table")
    values: dict[str, Any] = {}
    for key, found in table.items():
        if key not in default._fields:
            raise BadSettings(f"{name}.{key[:80]}: unknown key; expected one of {', '.join(default._fields)}")
        value = _like(getattr(default, key), found)
        _expect(value is not None, f"{name}.{key}", found, f"a value like {getattr(default, key)!r}")
        holds, expected = _RULES.get(f"{name}.{key}", (lambda _: True, ""))
        for each in value if isinstance(value, tuple) else [value]:
            _expect(holds(each), f"{name}.{key}", each, expected)
        values[key] = value
    return default._replace(**values)


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
