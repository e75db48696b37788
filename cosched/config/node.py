"""A workstation's own settings, ``node.toml``: read by its agent, and with the standard library alone by its guard.

TOML because the guard, which has privileges, imports nothing but the standard library (``tomllib``).
"""

import tomllib
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from cosched.config.checks import (
    Check,
    absolute,
    check,
    cluster_name,
    host_name,
    network_or_empty,
    number,
    such,
    valid_port,
)
from cosched.config.convert import check_numbers, convert
from cosched.config.units import duration_us, size_bytes
from cosched.errors import BadInput
from cosched.model.contract import SocialContract
from cosched.model.presets import DEDICATED, Habit, Hours, habit, hours_of
from cosched.model.quantities import LONGEST_S, MOST_CPUS, MOST_MEMORY_BYTES, MOST_TASKS
from cosched.model.time import US_PER_S

_NORMAL_WEIGHT: Final = 100
_IPV4_ALONE: Final = (
    "MPICH and Open MPI read an IPv6 address in a file of hosts as a port or a slot count, PVM knows none"
)


def _above_zero(most: float) -> Check:
    return such(lambda value: 0 < value <= most, f"a number above 0, up to {most}")


_Path = Annotated[str, absolute]
_Group = Annotated[
    str,
    such(
        lambda group: not group.startswith("/") and ".." not in group.split("/"),
        "a group below the mount of each hierarchy, such as user.slice",
    ),
]
_Seconds = Annotated[float, _above_zero(LONGEST_S)]
_Size = Annotated[str, size_bytes]


class SchedulerLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the scheduler listens for agents."""

    url: Annotated[str, such(lambda url: url.startswith("wss://"), "wss://HOST:PORT/v1/agent")]


class Launch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where other agents reach this one, and which network ranks talk over (CIDR; empty: any)."""

    address: Annotated[
        str,
        such(str.strip, "where other agents reach this one"),
        such(lambda address: ":" not in address, f"a name or an IPv4 address: {_IPV4_ALONE}"),
    ]
    port: Annotated[int, valid_port] = 7421
    network: Annotated[str, network_or_empty] = ""


class Paths(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``run`` has the sockets, ``state`` what must survive (records, spool, epoch), ``identity`` the certificates.

    ``keep``: directories that stay visible when a job's private /tmp covers the place they are in.
    """

    run: _Path = "/run/cosched"
    state: _Path = "/var/lib/cosched"
    identity: _Path = "/etc/cosched/identity"
    keep: list[_Path] = []


class Cgroups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``cosched`` is the parallel side, ``desk`` the owner's, both relative to the mount of each hierarchy.

    ``decoys``: small processes in both, which spare the owner the tick's wait beside a ceiling.
    """

    mode: Literal["auto", "v2", "v1", "none"] = "auto"
    mount: _Path = "/sys/fs/cgroup"
    cosched: _Group = "cosched"
    desk: _Group = "user.slice"
    decoys: bool = False


class SideWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What parallel work weighs beside others; 0: as everybody's.

    ``io``: of the 100 that others' groups weigh on disks, 1: behind them; ``network_priority``: of its packets
    (``skb->priority``).
    """

    io: Annotated[int, number(0, _NORMAL_WEIGHT, f"1 to {_NORMAL_WEIGHT}, or 0 for none")] = 1
    network_priority: Annotated[int, number(0, (1 << 31) - 1, "a priority of packets, or 0 for none")] = 0


class Security(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who jobs run as: ``switch`` to their submitter (needs root), or always the agent's ``self``.

    ``by-name`` is ``switch`` for a desk that shares no directories: the account of the submitter's name, also where its
    uid is another than on the scheduler's host.
    """

    users: Literal["switch", "by-name", "self"] = "switch"
    min_uid: Annotated[int, number(0, expected="a user's number")] = 1000
    allow_root: bool = False
    agent_user: str = ""  # who may talk to the guard; empty: the guard's own user
    private_tmp: bool = True
    desk_users: list[str] = []  # who may pause parallel work here, beside root and local users


class PresenceSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When somebody counts as being at the desk: at the first sign, and until there was none for the preset's time.

    ``preset`` is what an administrator says of the desk in one word (:mod:`cosched.model.presets`), by working
    ``hours`` of ``days`` where it needs them; ``away_after_s`` replaces its quiet times. ``sources`` are asked every
    ``poll_s`` (a key on a terminal is seen at once, unless ``events`` is false, as in some experiments); others'
    processes are a sign of presence while they use more than ``busy_cpus`` CPUs.
    """

    preset: Literal["desktop", "desktop-hours", "lab-night", "dedicated"] = "desktop"
    away_after_s: _Seconds | None = None
    hours: str = "08:00-20:00"
    days: list[str] = msgspec.field(default_factory=lambda: ["mon", "tue", "wed", "thu", "fri"])
    sources: list[Literal["terminals", "sessions", "input", "processes"]] = msgspec.field(
        default_factory=lambda: ["terminals", "sessions", "input", "processes"]
    )
    poll_s: _Seconds = 1.0
    busy_cpus: Annotated[float, _above_zero(MOST_CPUS)] = 0.25
    events: bool = True

    def working(self) -> Hours:
        """The working hours. Raises ValueError where they are none."""
        return hours_of(self.hours, self.days)

    def habit(self, local: datetime) -> Habit:
        """What the preset means at a moment of local time."""
        minute = 60 * local.hour + local.minute
        return habit(self.preset, self.working(), local.weekday(), minute, self.away_after_s)


class OutputSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is kept of jobs' output here: ``limit`` of each stream of a job, ``total`` of all, ``keep`` at most so long.

    Below ``least_free`` bytes or ``least_free_files`` inodes on the disk of ``paths.state`` no new work is taken.
    """

    limit: _Size = "1GiB"
    total: _Size = "10GiB"
    keep: Annotated[str, duration_us] = "30d"
    least_free: _Size = "64MiB"
    least_free_files: Annotated[int, number(0, MOST_MEMORY_BYTES, "a number of inodes, 0 or more")] = 1000

    @property
    def limit_bytes(self) -> int:
        """Of each stream of a job."""
        return size_bytes(self.limit, "output.limit")

    @property
    def total_bytes(self) -> int:
        """Of all output."""
        return size_bytes(self.total, "output.total")

    @property
    def least_free_bytes(self) -> int:
        """On the disk of ``paths.state``."""
        return size_bytes(self.least_free, "output.least_free")

    @property
    def keep_s(self) -> float:
        """After its last line."""
        return duration_us(self.keep, "output.keep") / US_PER_S


class NodeCoscheduling(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``watch_messages``: an agent with an account of its own may see which connections jobs' processes hold
    (two capabilities), which ``ccs``, ``dcs`` and ``spin`` go by.

    ``clock_shift_us``, for experiments: this node takes the cluster's clock for so much later than it is.
    """

    clock_shift_us: int = 0
    watch_messages: bool = False


class NodeMonitoring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is measured here of what the owner feels: ``wakeups``, by a process that sleeps and wakes."""

    wakeups: bool = True


class NodeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``node.toml``. ``contract`` is the owner's maximum: what the scheduler asks for beyond it is cut.

    ``cluster`` is the name of the cluster (a lab) that the node belongs to: the scheduler's own, or one of several.
    ``parallel`` is the owner's opt-out: false where this desk takes part in nothing.
    """

    name: Annotated[str, host_name]
    cluster: Annotated[str, cluster_name]
    procs: Annotated[int, number(1, MOST_TASKS, f"at least 1, at most {MOST_TASKS}")]
    memory_bytes: Annotated[int, number(1, MOST_MEMORY_BYTES, f"at least 1, at most {MOST_MEMORY_BYTES}")]
    scheduler: SchedulerLink
    launch: Launch
    paths: Paths = Paths()
    cgroup: Cgroups = Cgroups()
    security: Security = Security()
    presence: PresenceSettings = PresenceSettings()
    coscheduling: NodeCoscheduling = NodeCoscheduling()
    contract: SocialContract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=1)
    weights: SideWeights = SideWeights()
    parallel: bool = True
    output: OutputSettings = OutputSettings()
    monitoring: NodeMonitoring = NodeMonitoring()


def load_node(path: Path) -> NodeConfig:
    """Read and check ``node.toml``. Raises :class:`BadInput` with the key's path."""
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadInput(
            str(path), "no such file", "a node's settings ('cosched node render' makes them, --config names others)"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"cannot be read: {error}") from None
    except ValueError as error:  # also of its converters: a number of too many digits
        raise BadInput(str(path), f"not TOML: {error}") from None
    except RecursionError:
        raise BadInput(str(path), "not TOML: nested too deeply") from None
    return node_config(raw, str(path))


def node_config(raw: dict[str, Any], path: str) -> NodeConfig:
    """Check what a ``node.toml`` says; ``path`` names it in errors. Raises :class:`BadInput` with the key's path."""
    check_numbers(raw, path)
    config = convert(raw, NodeConfig, path)
    check(config, f"{path}: ")
    try:
        config.presence.working()
    except ValueError as error:
        written = f"found {config.presence.hours!r} on {config.presence.days!r}"
        raise BadInput(f"{path}: presence.hours", written, str(error)) from None
    if not config.presence.sources and config.presence.preset != DEDICATED:
        raise BadInput(
            f"{path}: presence.sources", "found none: the desk would count as occupied for ever",
            f"at least one, or preset = {DEDICATED!r}",
        )  # fmt: skip
    if problem := config.contract.impossible():
        key, found, expected = problem
        raise BadInput(f"{path}: contract.{key}", f"found {found!r}", expected)
    return config
