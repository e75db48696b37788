"""What a lab is to be: its settings as people give them, and the plan that its holder carries out.

The plan travels as JSON from ``cosched lab up`` to the holder. Standard library alone, as everything the holder needs.
"""

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

HEAD: Final = "head"
#: The groups of all capped nodes' guards and agents.
AGENTS: Final = "agents"
#: What capped nodes have together of this machine; the rest is for guards, agents and scheduler.
_CAPPED_PART: Final = 0.85
NETWORK: Final = "10.77.0.0/24"
#: What helps where the lab's directory is mounted noexec and nothing can be mounted over a part of it.
NOEXEC_REMEDY: Final = "COSCHED_RUNTIME_DIR=DIR, with a directory of a file system that is mounted without noexec"
#: What nodes of their own have at the same place: Open MPI tells its daemons on other nodes paths of the first.
RUN: Final = "/run/cosched"
HEAD_ADDRESS: Final = "10.77.0.254"
SCHEDULER_PORT: Final = 7420
AGENT_PORT: Final = 7421
#: Where users' messages are answered (head), and where Prometheus may look at a user (nodes).
PEER_PORT: Final = 7424
USER_PORT: Final = 7425
#: What a user is, and when he is there, in a node's directory.
USER_PROFILE: Final = "user.json"
USER_PRESENCE: Final = "presence.csv"
MAX_NODES: Final = 64
MAX_CLUSTERS: Final = 8
MAX_DELAY_US: Final = 1_000_000
LEAST_RATE_BIT_S, MAX_RATE_BIT_S = 64_000, 10_000_000_000
#: Where the link between clusters takes orders, in the lab's directory.
LINK_SOCKET: Final = "link.sock"


@dataclass(frozen=True)
class Settings:
    """What ``lab up`` was asked for; a second ``lab up`` with other settings is refused.

    ``tier`` 0 means the best there is, ``memory_bytes`` None an equal part of what is free. ``cap`` gives each node a
    hard ceiling at its share of the machine, guard and agent outside of it (heartbeats are no slower on slower nodes),
    and its user asks for that much less; ``users`` is the number of desks with a synthetic user, ``user_profile``
    what kind of user (empty: a mixture), ``presence`` a trace by which they come and go (empty: they stay). ``pin``
    gives each node CPUs of its own, ``mpl`` tasks may share one, ``coscheduling`` is the cluster's mode, and
    ``clock_shift_us`` by how much every second node is wrong about the cluster's clock (for experiments). For those,
    too, pinned nodes are without ``decoys``, or agents see at their looks alone who is there (no ``events``). A
    policy's module lies in ``policy_directory``. ``clusters`` is how many of the nodes are in each of several labs,
    with commas between (empty: they are one); between two of them a packet takes ``delay_us`` one way, at
    ``rate_bit_s`` (0: as it comes).
    """

    nodes: int
    cpus: int
    memory_bytes: int | None
    tier: int
    policy: str
    users: int
    cap: bool
    pin: bool = False
    mpl: int = 1
    coscheduling: str = "none"
    user_profile: str = ""
    presence: str = ""
    clock_shift_us: int = 0
    decoys: bool = True
    events: bool = True
    policy_directory: str = ""
    clusters: str = ""
    delay_us: int = 0
    rate_bit_s: int = 0

    @property
    def cluster_sizes(self) -> list[int]:
        """How many nodes are in each of several clusters; empty: there is one. Raises ValueError."""
        return [int(each) for each in self.clusters.split(",")] if self.clusters else []

    @property
    def cap_cpus(self) -> float | None:
        """How many CPUs a node may use, owner and jobs together; None: no such limit."""
        return min(float(self.cpus), _CAPPED_PART * (os.cpu_count() or 1) / self.nodes) if self.cap else None

    @property
    def agents_apart(self) -> bool:
        """Whether guards and agents are outside of their nodes' groups. (Pinned ones stay on their nodes' CPUs.)"""
        return self.cap and not self.pin


@dataclass(frozen=True)
class Node:
    """One workstation: how others reach it, and its directory (configuration, sockets, state)."""

    name: str
    address: str
    port: int
    directory: str
    user: str  # the profile of the synthetic one at the desk; empty: nobody
    cluster: str = ""  # its cluster's name where there are several

    @property
    def control(self) -> Path:
        """Where its process 1 listens."""
        return Path(self.directory) / "init.sock"


@dataclass(frozen=True)
class LabPlan:
    """Everything a holder needs. ``user_namespace``: it has to make one (tier 2 of an ordinary user)."""

    name: str
    cookie: str
    directory: str
    tier: int
    user_namespace: bool
    settings: Settings
    memory_bytes: int  # of each node
    scheduler_address: str
    scheduler_port: int
    nodes: tuple[Node, ...]
    keep: tuple[str, ...]

    def encoded(self) -> bytes:
        """As one line of JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decoded(cls, data: bytes) -> Self:
        """The plan in that line."""
        raw = json.loads(data)
        raw["settings"] = Settings(**raw["settings"])
        raw["nodes"] = tuple(Node(**node) for node in raw["nodes"])
        raw["keep"] = tuple(raw["keep"])
        return cls(**raw)

    @property
    def clusters(self) -> list[str]:
        """The names of the clusters, the scheduler's first; empty: there is one."""
        return list(dict.fromkeys(node.cluster for node in self.nodes if node.cluster))

    def path(self, *parts: str) -> Path:
        """A path in the lab's directory."""
        return Path(self.directory, *parts)


def run_directory(plan: LabPlan, node: Node) -> Path:
    """Where the sockets of a node's guard and agent are, as the node sees it."""
    return Path(RUN) if plan.tier < 3 else Path(node.directory, "run")


def python(*arguments: str) -> tuple[str, ...]:
    """A command line that runs Python on our own modules, whatever lies in the directory that it starts in."""
    return (sys.executable, "-P", *arguments)


def own_cpus(nodes: int, cpus: int) -> list[str]:
    """The CPUs of each pinned node, as the kernel writes lists; too few of them: an empty list."""
    usable = sorted(os.sched_getaffinity(0))
    if len(usable) < nodes * cpus:
        return []
    return [",".join(map(str, usable[at * cpus : (at + 1) * cpus])) for at in range(nodes)]
