"""A workstation's own settings, ``node.toml``: read by its agent, and with the standard library alone by its guard.

TOML because the guard, which has privileges, imports nothing but the standard library (``tomllib``).
"""

import tomllib
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from cosched.config.convert import check_numbers, convert
from cosched.config.hosts import MAX_CLUSTER_NAME, MAX_NODE_NAME, is_cluster, is_host, is_network
from cosched.config.units import duration_us, size_bytes
from cosched.errors import BadInput
from cosched.model.contract import SocialContract
from cosched.model.presets import DEDICATED, Habit, Hours, habit, hours_of
from cosched.model.quantities import LONGEST_S, MOST_CPUS, MOST_MEMORY_BYTES, MOST_TASKS
from cosched.model.time import US_PER_S

_LAST_PORT: Final = 65_535
_NORMAL_WEIGHT: Final = 100


class SchedulerLink(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the scheduler listens for agents."""

    url: str  # wss://HOST:PORT/v1/agent


class Launch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where other agents reach this one, and which network ranks talk over (CIDR; empty: any)."""

    address: str
    port: int = 7421
    network: str = ""


class Paths(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``run`` has the sockets, ``state`` what must survive (records, spool, epoch), ``identity`` the certificates.

    ``keep``: directories that stay visible when a job's private /tmp covers the place they are in.
    """

    run: str = "/run/cosched"
    state: str = "/var/lib/cosched"
    identity: str = "/etc/cosched/identity"
    keep: list[str] = []


class Cgroups(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``cosched`` is the parallel side, ``desk`` the owner's, both relative to the mount of each hierarchy.

    ``decoys``: small processes in both, which spare the owner the tick's wait beside a ceiling.
    """

    mode: Literal["auto", "v2", "v1", "none"] = "auto"
    mount: str = "/sys/fs/cgroup"
    cosched: str = "cosched"
    desk: str = "user.slice"
    decoys: bool = False


class SideWeights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What parallel work weighs beside others; 0: as everybody's.

    ``io``: of the 100 that others' groups weigh on disks, 1: behind them; ``network_priority``: of its packets
    (``skb->priority``).
    """

    io: int = 1
    network_priority: int = 0


class Security(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Who jobs run as: ``switch`` to their submitter (needs root), or always the agent's ``self``.

    ``by-name`` is ``switch`` for a desk that shares no directories: the account of the submitter's name, also where its
    uid is another than on the scheduler's host.
    """

    users: Literal["switch", "by-name", "self"] = "switch"
    min_uid: int = 1000
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
    away_after_s: float | None = None
    hours: str = "08:00-20:00"
    days: list[str] = msgspec.field(default_factory=lambda: ["mon", "tue", "wed", "thu", "fri"])
    sources: list[Literal["terminals", "sessions", "input", "processes"]] = msgspec.field(
        default_factory=lambda: ["terminals", "sessions", "input", "processes"]
    )
    poll_s: float = 1.0
    busy_cpus: float = 0.25
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

    limit: str = "1GiB"
    total: str = "10GiB"
    keep: str = "30d"
    least_free: str = "64MiB"
    least_free_files: int = 1000

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

    name: str
    cluster: str
    procs: int
    memory_bytes: int
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
    for key, found, expected in _problems(config):
        raise BadInput(f"{path}: {key}", f"found {found!r}", expected)
    for key, most in (("away_after_s", LONGEST_S), ("poll_s", LONGEST_S), ("busy_cpus", MOST_CPUS)):
        if (value := getattr(config.presence, key)) is not None and not 0 < value <= most:
            raise BadInput(f"{path}: presence.{key}", f"found {value!r}", f"a number above 0, up to {most}")
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
    for key in ("limit", "total", "least_free"):
        size_bytes(getattr(config.output, key), f"{path}: output.{key}")
    duration_us(config.output.keep, f"{path}: output.keep")
    if problem := config.contract.impossible():
        key, found, expected = problem
        raise BadInput(f"{path}: contract.{key}", f"found {found!r}", expected)
    return config


def _problems(config: NodeConfig) -> Iterator[tuple[str, object, str]]:
    """What well-formed settings have wrong: key, what was found, what is expected."""
    if not is_host(config.name) or len(config.name) > MAX_NODE_NAME:
        yield "name", config.name, f"a host's name: letters, digits, - and dots, at most {MAX_NODE_NAME} characters"
    if not is_cluster(config.cluster):
        yield "cluster", config.cluster, f"the cluster's name: printable, at most {MAX_CLUSTER_NAME} characters"
    for key, most in (("procs", MOST_TASKS), ("memory_bytes", MOST_MEMORY_BYTES)):
        if not 1 <= (number := getattr(config, key)) <= most:
            yield key, number, f"at least 1, at most {most}"
    if not config.scheduler.url.startswith("wss://"):
        yield "scheduler.url", config.scheduler.url, "wss://HOST:PORT/v1/agent"
    yield from _unfit_launch(config.launch)
    yield from _unfit_paths(config)
    if not 0 <= config.output.least_free_files <= MOST_MEMORY_BYTES:
        yield "output.least_free_files", config.output.least_free_files, "a number of inodes, 0 or more"
    if config.security.min_uid < 0:
        yield "security.min_uid", config.security.min_uid, "a user's number"
    if not 0 <= config.weights.io <= _NORMAL_WEIGHT:
        yield "weights.io", config.weights.io, f"1 to {_NORMAL_WEIGHT}, or 0 for none"
    if not 0 <= config.weights.network_priority < 1 << 31:
        yield "weights.network_priority", config.weights.network_priority, "a priority of packets, or 0 for none"


def _unfit_launch(launch: Launch) -> Iterator[tuple[str, object, str]]:
    if not launch.address.strip():
        yield "launch.address", launch.address, "where other agents reach this one"
    if ":" in launch.address:
        cause = "MPICH and Open MPI read an IPv6 address in a file of hosts as a port or a slot count, PVM knows none"
        yield "launch.address", launch.address, f"a name or an IPv4 address: {cause}"
    if not 1 <= launch.port <= _LAST_PORT:
        yield "launch.port", launch.port, f"a port, 1 to {_LAST_PORT}"
    if launch.network and not is_network(launch.network):
        yield "launch.network", launch.network, "a network, such as 10.0.0.0/24"


def _unfit_paths(config: NodeConfig) -> Iterator[tuple[str, object, str]]:
    named = [(f"paths.{key}", getattr(config.paths, key)) for key in ("run", "state", "identity")]
    named += [(f"paths.keep[{at}]", kept) for at, kept in enumerate(config.paths.keep)]
    for key, path in (*named, ("cgroup.mount", config.cgroup.mount)):
        if not path.startswith("/"):
            yield key, path, "an absolute path"
    for key in ("cosched", "desk"):
        group = getattr(config.cgroup, key)
        if group.startswith("/") or ".." in group.split("/"):
            yield f"cgroup.{key}", group, "a group below the mount of each hierarchy, such as user.slice"
