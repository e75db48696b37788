"""The cluster's settings, ``cluster.yaml``: read by ``cosched scheduler``."""

from pathlib import Path
from typing import Final, Literal

import msgspec

from cosched.config.load import load
from cosched.config.units import duration_us, size_bytes
from cosched.errors import BadInput
from cosched.model.contract import SocialContract

_DURATIONS: Final = (
    "default_time", "max_time", "heartbeat", "lease", "launch_timeout", "grace", "pass_interval", "keep_output",
)  # fmt: skip


class Listen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the service listens: a Unix socket (peer credentials), and TLS (agents, remote users); empty: nowhere."""

    socket: str = "/run/cosched/scheduler.sock"
    address: str = ""
    port: int = 7420


class ClusterConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``cluster.yaml``. ``nodes`` is the allow-list of agents; durations are written with their unit.

    ``max_nodes_per_job`` is 1 where nothing can be launched across nodes, and ``note`` then says how to change that.
    ``allow_root`` accepts jobs of root; the nodes have a setting of their own for that.
    """

    name: str
    nodes: list[str] = []
    policy: str = "easy"
    order: str | None = None
    place: Literal["first-fit", "spread"] = "first-fit"
    contract: SocialContract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=1)
    listen: Listen = Listen()
    state: str = "/var/lib/cosched/scheduler"
    identity: str = "/etc/cosched/identity"
    network: str = ""
    default_time: str = "1h"
    max_time: str = "24h"
    default_memory: str | None = None
    max_queued: int = 10_000
    operators: list[str] = msgspec.field(default_factory=lambda: ["root"])
    allow_root: bool = False
    heartbeat: str = "1s"
    lease: str = "10s"
    launch_timeout: str = "30s"
    grace: str = "1s"
    pass_interval: str = "50ms"
    keep_output: str = "7d"
    max_nodes_per_job: int | None = None
    note: str = ""

    def time_us(self, name: str) -> int:
        """One of the durations, in microseconds."""
        return duration_us(getattr(self, name), name)


def load_cluster(path: Path) -> ClusterConfig:
    """Read and check ``cluster.yaml``. Raises :class:`BadInput` with the key's path."""
    config = load(path, ClusterConfig)
    for key in _DURATIONS:
        duration_us(getattr(config, key), f"{path}: {key}")
    if config.default_memory is not None:
        size_bytes(config.default_memory, f"{path}: default_memory")
    if problem := config.contract.impossible():
        key, found, expected = problem
        raise BadInput(f"{path}: contract.{key}", f"found {found!r}", expected)
    if config.time_us("lease") <= 2 * config.time_us("heartbeat"):
        raise BadInput(
            f"{path}: lease", f"found {config.lease!r}", f"more than twice the heartbeat, {config.heartbeat}"
        )
    if len(set(config.nodes)) != len(config.nodes):
        raise BadInput(f"{path}: nodes", "a node is named twice", "each name once")
    return config
