"""The first ``cluster.yaml`` and ``node.toml`` of a cluster, with a comment on what an administrator looks at first."""

import json
from collections.abc import Sequence


def _quoted(text: str) -> str:
    """A string as JSON has it, which YAML and TOML read too."""
    return json.dumps(text, ensure_ascii=False)


def cluster_yaml(name: str, nodes: Sequence[str], *, address: str, port: int, network: str) -> str:
    """The scheduler's settings; every other key has the default of docs/guide/operate.md."""
    listed = "\n".join(f"  - {_quoted(node)}" for node in nodes)
    return f"""\
# The cluster's settings, read by 'cosched scheduler'.
name: {_quoted(name)}

# The agents that are let in. A node needs its certificate and its name here.
nodes:
{listed}

# Which jobs start when: a name from 'cosched policies'.
policy: easy

# While somebody is at a desk, parallel work has at most this share of its CPU; of its memory always.
contract:
  cpu_ratio: 0.5
  memory_ratio: 0.5
  mpl: 1            # tasks of parallel jobs for each CPU

listen:
  socket: /run/cosched/scheduler.sock
  address: {_quoted(address)}      # for agents and remote users, by TLS with certificates alone
  port: {port}

state: /var/lib/cosched/scheduler   # the journal: keep 1 GiB free
identity: /etc/cosched/identity
network: {_quoted(network)}         # the network that ranks talk over, such as 10.1.0.0/24; empty: any

default_time: 1h    # for jobs that ask for no time of their own
max_time: 24h
operators: [root]   # who may drain nodes, and cancel other users' jobs
"""


def node_toml(
    name: str,
    cluster: str,
    *,
    procs: int,
    memory_bytes: int,
    url: str,
    address: str,
    port: int,
    network: str,
    run: str = "/run/cosched",
    state: str = "/var/lib/cosched",
    identity: str = "/etc/cosched/identity",
) -> str:
    """A workstation's settings. ``url`` is where its agent finds the scheduler; ``memory_bytes`` is all it has."""
    return f"""\
# This workstation's settings, read by its guard and its agent.
name = {_quoted(name)}
cluster = {_quoted(cluster)}

# CHECK: what this machine has ('nproc', and MemTotal of /proc/meminfo in bytes).
procs = {procs}
memory_bytes = {memory_bytes}

[scheduler]
url = {_quoted(url)}

[launch]            # where the other nodes reach this one
address = {_quoted(address)}
port = {port}
network = {_quoted(network)}

[paths]
run = {_quoted(run)}
state = {_quoted(state)}
identity = {_quoted(identity)}

[presence]          # when somebody counts as being at this desk
preset = "desktop"  # or desktop-hours, lab-night, dedicated

[contract]          # the owner's maximum: the cluster may ask for less, never for more
cpu_ratio = 0.5
memory_ratio = 0.5
mpl = 1
"""
