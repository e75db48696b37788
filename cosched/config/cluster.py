"""The cluster's settings, ``cluster.yaml``: read by ``cosched scheduler``."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import msgspec

from cosched.config.between import read_between
from cosched.config.convert import convert
from cosched.config.hosts import MAX_NODE_NAME, check_spellings, is_host, is_network
from cosched.config.load import plain
from cosched.config.units import duration_us, size_bytes
from cosched.errors import BadInput
from cosched.model.components import MOST_COMPONENTS, Between, Dividing, Partition
from cosched.model.contract import SocialContract
from cosched.model.coscheduling import Mode

_MOST: Final = 1000
_OPERATOR: Final = re.compile(r"@?[^\s@]\S*")
_LAST_PORT: Final = 65_535
_MOST_CONNECTIONS: Final = 1_000_000
_SHORTEST_PRESENCE_US: Final = 3_600_000_000
_LONGEST_PASS_INTERVAL_US: Final = 60_000_000
#: What guards keep: shorter ones cost more than they bring, longer ones are no coscheduling.
SHORTEST_SLOT_US, LONGEST_SLOT_US = 5_000, 10_000_000
_DURATIONS: Final = (
    "default_time", "max_time", "heartbeat", "lease", "launch_timeout", "grace", "pass_interval", "keep_output",
    "slow_reader",
)  # fmt: skip


class CoschedulingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs that share nodes are run together, unless they say so themselves; ``slot`` is the length of a turn."""

    mode: Mode = Mode.NONE
    slot: str = "50ms"


class Listen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the service listens: a Unix socket (peer credentials), and TLS (agents, remote users); empty: nowhere.

    ``tokens``: whether a token will do over TLS in place of a user's certificate; agents show theirs always. The last
    two: how many connections users may have, agents not counted.
    """

    socket: str = "/run/cosched/scheduler.sock"
    address: str = ""
    port: int = 7420
    tokens: bool = True
    max_connections: int = 512
    max_connections_per_user: int = 128


class LaunchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``retries``: how often a job whose launch has failed is tried again, on other nodes."""

    retries: int = 2


class SetAside(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a node is set aside: after so many launches in a row that failed there, or so many losses within a time.

    0: never.
    """

    failed_launches: int = 3
    losses: int = 3
    within: str = "1h"

    @property
    def within_us(self) -> int:
        """The time, in microseconds."""
        return duration_us(self.within, "set_aside.within")


class ComponentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs are divided over clusters: those of more tasks than ``threshold`` (0: none but those that say so).

    The rest as in :class:`cosched.model.components.Dividing`; ``bounds`` are those of ``phased`` and ``balanced``.
    ``costs`` is a file of what the link between clusters costs, as ``cosched calibrate --clusters`` writes it.
    """

    threshold: int = 0
    partition: Partition = Partition.RANDOM
    most_components: int = MOST_COMPONENTS
    bounds: list[int] = []
    costs: str = ""

    def between(self, own: str) -> Between | None:
        """What communication between clusters costs; None: nothing is known. Raises :class:`BadInput`.

        ``own`` is the name of the scheduler's own cluster, which its nodes do not carry.
        """
        return read_between(Path(self.costs), own) if self.costs else None

    def dividing(self) -> Dividing | None:
        """The same as a value; None: no job is divided."""
        if not self.threshold:
            return None
        return Dividing(
            threshold=self.threshold,
            partition=self.partition,
            most=self.most_components,
            bounds=tuple(self.bounds),
        )


class MonitoringSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is told of desks: by ``node``, or counted by ``cluster`` alone. Who was there is kept for ``keep_presence``.

    That is in the journal's events, which a replay needs: older ones are dropped, whatever they say.
    """

    aggregate: Literal["node", "cluster"] = "node"
    keep_presence: str = "30d"

    @property
    def keep_presence_us(self) -> int:
        """The time, in microseconds."""
        return duration_us(self.keep_presence, "monitoring.keep_presence")


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``cluster.yaml``. ``nodes`` is the allow-list of agents; durations are written with their unit.

    A policy that is ``module:name`` is looked for in ``policy_directory``, then where Python has what is installed.
    ``eligibility`` are rules by which a job waits before it is queued, by name or ``module:name``, in their order.
    ``max_nodes_per_job`` is 1 where nothing can be launched across nodes, and ``note`` then says how to change that.
    ``allow_root`` accepts jobs of root; the nodes have a setting of their own for that. ``foreign_directives``: whether
    a script with lines such as ``#SBATCH -n 4`` is refused, unless its submission says otherwise.
    """

    name: str
    nodes: list[str] = []
    policy: str = "easy"
    order: str | None = None
    policy_directory: str = ""
    eligibility: list[str] = []
    place: Literal["first-fit", "spread", "normal"] = "first-fit"
    contract: SocialContract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=1)
    coscheduling: CoschedulingSettings = CoschedulingSettings()
    listen: Listen = Listen()
    state: str = "/var/lib/cosched/scheduler"
    identity: str = "/etc/cosched/identity"
    network: str = ""
    default_time: str = "1h"
    max_time: str = "24h"
    default_memory: str | None = None
    max_queued: int = 10_000
    max_queued_per_user: int = 5_000
    max_submissions_per_minute: int = 1_000
    operators: list[str] = msgspec.field(default_factory=lambda: ["root"])
    allow_root: bool = False
    foreign_directives: Literal["warn", "refuse"] = "warn"
    heartbeat: str = "1s"
    lease: str = "10s"
    launch_timeout: str = "30s"
    grace: str = "1s"
    pass_interval: str = "50ms"
    keep_output: str = "7d"
    keep_jobs: str | None = None
    slow_reader: str = "60s"
    launch: LaunchSettings = LaunchSettings()
    set_aside: SetAside = SetAside()
    components: ComponentSettings = ComponentSettings()
    monitoring: MonitoringSettings = MonitoringSettings()
    max_token_time: str = "365d"
    max_nodes_per_job: int | None = None
    note: str = ""

    @property
    def keep_jobs_us(self) -> int | None:
        """For how long jobs, with scripts and stories, stay after their end, in microseconds; None: for ever."""
        return None if self.keep_jobs is None else duration_us(self.keep_jobs, "keep_jobs")

    def time_us(self, name: str) -> int:
        """One of the durations, in microseconds."""
        return duration_us(getattr(self, name), name)


def load_cluster(path: Path) -> ClusterConfig:
    """Read and check ``cluster.yaml``. Raises :class:`BadInput` with the key's path."""
    return cluster_config(plain(path), str(path))


def cluster_config(raw: object, path: str) -> ClusterConfig:
    """Check what a ``cluster.yaml`` says; ``path`` names it in errors. Raises :class:`BadInput` with the key's path."""
    config = convert(raw, ClusterConfig, path)
    for key in _DURATIONS:
        duration_us(getattr(config, key), f"{path}: {key}")
    duration_us(config.set_aside.within, f"{path}: set_aside.within")
    if config.keep_jobs is not None:
        duration_us(config.keep_jobs, f"{path}: keep_jobs")
    duration_us(config.monitoring.keep_presence, f"{path}: monitoring.keep_presence")
    if config.default_memory is not None:
        size_bytes(config.default_memory, f"{path}: default_memory")
    duration_us(config.coscheduling.slot, f"{path}: coscheduling.slot")
    for key, found, expected in _problems(config):
        raise BadInput(f"{path}: {key}", found, expected)
    check_spellings(config.nodes, f"{path}: nodes")
    config.components.between(config.name)
    return config


def _problems(config: ClusterConfig) -> Iterator[tuple[str, str, str]]:
    """What well-formed settings have wrong: key, what was found, what is expected."""
    if not config.name.strip() or not config.name.isprintable():
        yield "name", f"found {config.name!r}", "what the cluster is called"
    for at, name in enumerate(config.nodes):
        if not is_host(name) or len(name) > MAX_NODE_NAME:
            expected = f"a host's name: letters, digits, - and dots, at most {MAX_NODE_NAME} characters"
            yield f"nodes[{at}]", f"found {name!r}", expected
    if len(set(config.nodes)) != len(config.nodes):
        yield "nodes", "a node is named twice", "each name once"
    for at, name in enumerate(config.operators):
        if not _OPERATOR.fullmatch(name):
            yield f"operators[{at}]", f"found {name!r}", "a user's name, or a group's as '@GROUP'"
    yield from _unfit_numbers(config)
    yield from _unfit_times(config)
    if problem := config.contract.impossible():
        key, found, expected = problem
        yield f"contract.{key}", f"found {found!r}", expected
    for key in ("state", "identity"):
        if not getattr(config, key).startswith("/"):
            yield key, f"found {getattr(config, key)!r}", "an absolute path"
    if config.policy_directory and not config.policy_directory.startswith("/"):
        yield "policy_directory", f"found {config.policy_directory!r}", "an absolute path"
    if config.network and not is_network(config.network):
        yield "network", f"found {config.network!r}", "a network, such as 10.0.0.0/24"


def _unfit_numbers(config: ClusterConfig) -> Iterator[tuple[str, str, str]]:
    for key in ("max_queued", "max_queued_per_user", "max_submissions_per_minute"):
        if (found := getattr(config, key)) < 0:
            yield key, f"found {found}", "a number of jobs; 0: any number"
    for section, keys in (("launch", ("retries",)), ("set_aside", ("failed_launches", "losses"))):
        for key in keys:
            if not 0 <= (found := getattr(getattr(config, section), key)) <= _MOST:
                yield f"{section}.{key}", f"found {found}", f"a number, 0 to {_MOST}"
    yield from _unfit_components(config.components)
    if not 0 <= config.listen.port <= _LAST_PORT:
        yield "listen.port", f"found {config.listen.port}", f"a port, 0 to {_LAST_PORT}; 0: any that is free"
    for key in ("max_connections", "max_connections_per_user"):
        if not 1 <= (found := getattr(config.listen, key)) <= _MOST_CONNECTIONS:
            yield f"listen.{key}", f"found {found}", f"a number of connections, 1 to {_MOST_CONNECTIONS}"
    if config.max_nodes_per_job is not None and config.max_nodes_per_job < 1:
        yield "max_nodes_per_job", f"found {config.max_nodes_per_job}", "a number of nodes of at least 1"
    if config.default_memory is not None and size_bytes(config.default_memory, "default_memory") < 1:
        yield "default_memory", f"found {config.default_memory!r}", "at least 1B"


def _unfit_components(found: ComponentSettings) -> Iterator[tuple[str, str, str]]:
    if found.threshold < 0:
        yield "components.threshold", f"found {found.threshold}", "a number of tasks; 0: no job is divided"
    if not 1 <= found.most_components <= _MOST:
        yield "components.most_components", f"found {found.most_components}", f"a number, 1 to {_MOST}"
    if found.costs and not found.costs.startswith("/"):
        yield "components.costs", f"found {found.costs!r}", "an absolute path"
    least = found.threshold
    for at, bound in enumerate(found.bounds):
        if bound <= least:
            yield f"components.bounds[{at}]", f"found {bound}", f"a number of tasks above {least}: bounds rise"
        least = bound
    if found.threshold and len(found.bounds) > max(0, found.most_components - 2):
        expected = f"at most {max(0, found.most_components - 2)} for up to {found.most_components} components"
        yield "components.bounds", f"found {len(found.bounds)}", expected


def _unfit_times(config: ClusterConfig) -> Iterator[tuple[str, str, str]]:
    for key in ("default_time", "max_time", "heartbeat", "launch_timeout", "max_token_time"):
        if config.time_us(key) <= 0:
            yield key, f"found {getattr(config, key)!r}", "more than nothing"
    if config.monitoring.keep_presence_us < _SHORTEST_PRESENCE_US:
        yield "monitoring.keep_presence", f"found {config.monitoring.keep_presence!r}", "at least 1h"
    least_us = max(2 * config.time_us("keep_output"), _SHORTEST_PRESENCE_US)
    if config.keep_jobs_us is not None and config.keep_jobs_us < least_us:
        expected = f"at least 1h, and twice keep_output, {config.keep_output}: until then nodes are told to drop it"
        yield "keep_jobs", f"found {config.keep_jobs!r}", expected
    if config.time_us("default_time") > config.time_us("max_time"):
        yield "default_time", f"found {config.default_time!r}", f"at most max_time, {config.max_time}"
    if config.time_us("pass_interval") > _LONGEST_PASS_INTERVAL_US:
        yield "pass_interval", f"found {config.pass_interval!r}", "at most 1min: jobs wait for a pass"
    slot_us = duration_us(config.coscheduling.slot, "coscheduling.slot")
    if not SHORTEST_SLOT_US <= slot_us <= LONGEST_SLOT_US:
        yield "coscheduling.slot", f"found {config.coscheduling.slot!r}", "5ms to 10s"
    if config.time_us("lease") <= 2 * config.time_us("heartbeat"):
        yield "lease", f"found {config.lease!r}", f"more than twice the heartbeat, {config.heartbeat}"
