"""The cluster's settings, ``cluster.yaml``: read by ``cosched scheduler``."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from cosched.config.between import read_between
from cosched.config.checks import (
    absolute,
    absolute_or_empty,
    check,
    duration,
    host_name,
    network_or_empty,
    number,
    port_or_zero,
    some_bytes,
    such,
)
from cosched.config.convert import convert
from cosched.config.hosts import check_spellings
from cosched.config.load import plain
from cosched.config.units import duration_us
from cosched.errors import BadInput
from cosched.model.components import MOST_COMPONENTS, Between, Dividing, Partition
from cosched.model.contract import SocialContract
from cosched.model.coscheduling import Mode

_HOUR_US: Final = 3_600_000_000
#: What guards keep: shorter ones cost more than they bring, longer ones are no coscheduling.
SHORTEST_SLOT_US, LONGEST_SLOT_US = 5_000, 10_000_000

_Duration = Annotated[str, duration_us]
_Positive = Annotated[str, duration(1, "more than nothing")]
_Count = Annotated[int, number(0, 1000)]
_Operator = Annotated[str, such(re.compile(r"@?[^\s@]\S*").fullmatch, "a user's name, or a group's as '@GROUP'")]
_Jobs = Annotated[int, number(0, expected="a number of jobs; 0: any number")]
_Connections = Annotated[int, number(1, 1_000_000, "a number of connections, 1 to 1000000")]


class CoschedulingSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs that share nodes are run together, unless they say so themselves; ``slot`` is the length of a turn."""

    mode: Mode = Mode.NONE
    slot: Annotated[str, duration(SHORTEST_SLOT_US, "5ms to 10s", LONGEST_SLOT_US)] = "50ms"


class Listen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the service listens: a Unix socket (peer credentials), and TLS (agents, remote users); empty: nowhere.

    ``tokens``: whether a token will do over TLS in place of a user's certificate; agents show theirs always. The last
    two: how many connections users may have, agents not counted.
    """

    socket: str = "/run/cosched/scheduler.sock"
    address: str = ""
    port: Annotated[int, port_or_zero] = 7420
    tokens: bool = True
    max_connections: _Connections = 512
    max_connections_per_user: _Connections = 128


class LaunchSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``retries``: how often a job whose launch has failed is tried again, on other nodes."""

    retries: _Count = 2


class SetAside(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a node is set aside: after so many launches in a row that failed there, or so many losses within a time.

    0: never.
    """

    failed_launches: _Count = 3
    losses: _Count = 3
    within: _Duration = "1h"

    @property
    def within_us(self) -> int:
        """The time, in microseconds."""
        return duration_us(self.within, "set_aside.within")


class ComponentSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How jobs are divided over clusters: those of more tasks than ``threshold`` (0: none but those that say so).

    The rest as in :class:`cosched.model.components.Dividing`; ``bounds`` are those of ``phased`` and ``balanced``.
    ``costs`` is a file of what the link between clusters costs, as ``cosched calibrate --clusters`` writes it.
    """

    threshold: Annotated[int, number(0, expected="a number of tasks; 0: no job is divided")] = 0
    partition: Partition = Partition.RANDOM
    most_components: Annotated[int, number(1, 1000)] = MOST_COMPONENTS
    bounds: list[int] = []
    costs: Annotated[str, absolute_or_empty] = ""

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
    keep_presence: Annotated[str, duration(_HOUR_US, "at least 1h")] = "30d"

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
    a script with lines such as ``#SBATCH --gres=gpu:1``, which are not read, is refused, unless its submission says
    otherwise.
    """

    name: Annotated[str, such(lambda name: bool(name.strip()) and name.isprintable(), "what the cluster is called")]
    nodes: list[Annotated[str, host_name]] = []
    policy: str = "easy"
    order: str | None = None
    policy_directory: Annotated[str, absolute_or_empty] = ""
    eligibility: list[str] = []
    place: Literal["first-fit", "spread", "normal"] = "first-fit"
    contract: SocialContract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=1)
    coscheduling: CoschedulingSettings = CoschedulingSettings()
    listen: Listen = Listen()
    state: Annotated[str, absolute] = "/var/lib/cosched/scheduler"
    identity: Annotated[str, absolute] = "/etc/cosched/identity"
    network: Annotated[str, network_or_empty] = ""
    default_time: _Positive = "1h"
    max_time: _Positive = "24h"
    default_memory: Annotated[str, some_bytes] | None = None
    max_queued: _Jobs = 10_000
    max_queued_per_user: _Jobs = 5_000
    max_submissions_per_minute: _Jobs = 1_000
    operators: list[_Operator] = msgspec.field(default_factory=lambda: ["root"])
    allow_root: bool = False
    foreign_directives: Literal["warn", "refuse"] = "warn"
    heartbeat: _Positive = "1s"
    lease: _Duration = "10s"
    launch_timeout: _Positive = "30s"
    grace: _Duration = "1s"
    pass_interval: Annotated[str, duration(0, "at most 1min: jobs wait for a pass", 60_000_000)] = "50ms"
    keep_output: _Duration = "7d"
    keep_jobs: _Duration | None = None
    slow_reader: _Duration = "60s"
    launch: LaunchSettings = LaunchSettings()
    set_aside: SetAside = SetAside()
    components: ComponentSettings = ComponentSettings()
    monitoring: MonitoringSettings = MonitoringSettings()
    max_token_time: _Positive = "365d"
    max_nodes_per_job: Annotated[int, number(1, expected="a number of nodes of at least 1")] | None = None
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
    check(config, f"{path}: ")
    for key, found, expected in _contradictions(config):
        raise BadInput(f"{path}: {key}", found, expected)
    check_spellings(config.nodes, f"{path}: nodes")
    config.components.between(config.name)
    return config


def _contradictions(config: ClusterConfig) -> Iterator[tuple[str, str, str]]:
    """Settings that do not fit to one another: key, what was found, what is expected."""
    if len(set(config.nodes)) != len(config.nodes):
        yield "nodes", "a node is named twice", "each name once"
    if problem := config.contract.impossible():
        key, found, expected = problem
        yield f"contract.{key}", f"found {found!r}", expected
    yield from _contradictory_bounds(config.components)
    least_us = max(2 * config.time_us("keep_output"), _HOUR_US)
    if config.keep_jobs_us is not None and config.keep_jobs_us < least_us:
        expected = f"at least 1h, and twice keep_output, {config.keep_output}: until then nodes are told to drop it"
        yield "keep_jobs", f"found {config.keep_jobs!r}", expected
    if config.time_us("default_time") > config.time_us("max_time"):
        yield "default_time", f"found {config.default_time!r}", f"at most max_time, {config.max_time}"
    if config.time_us("lease") <= 2 * config.time_us("heartbeat"):
        yield "lease", f"found {config.lease!r}", f"more than twice the heartbeat, {config.heartbeat}"


def _contradictory_bounds(found: ComponentSettings) -> Iterator[tuple[str, str, str]]:
    least = found.threshold
    for at, bound in enumerate(found.bounds):
        if bound <= least:
            yield f"components.bounds[{at}]", f"found {bound}", f"a number of tasks above {least}: bounds rise"
        least = bound
    most = max(0, found.most_components - 2)
    if found.threshold and len(found.bounds) > most:
        expected = f"at most {most} for up to {found.most_components} components"
        yield "components.bounds", f"found {len(found.bounds)}", expected
