"""``cluster.yaml`` and ``node.toml`` as they are written, with comments on what an administrator looks at first."""

import json
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import tomli_w

from cosched.config.node import NodeConfig


def _quoted(text: str) -> str:
    """A string as JSON has it, which YAML reads too."""
    return json.dumps(text, ensure_ascii=False)


def cluster_yaml(
    name: str,
    nodes: Sequence[str],
    *,
    address: str,
    port: int,
    network: str,
    run: str = "/run/cosched",
    state: str = "/var/lib/cosched",
    identity: str = "/etc/cosched/identity",
) -> str:
    """The scheduler's settings; every other key has the default of docs/guide/settings.md."""
    listed = "".join(f"\n  - {_quoted(node)}" for node in nodes) or " []"
    return f"""\
# The cluster's settings, read by 'cosched scheduler'.
name: {_quoted(name)}

# The agents that are let in. A node needs its certificate and its name here.
nodes:{listed}

# Which jobs start when: a name from 'cosched policies'.
policy: easy

# While somebody is at a desk, parallel work has at most this share of its CPU; of its memory always.
contract:
  cpu_ratio: 0.5
  memory_ratio: 0.5
  mpl: 1            # tasks of parallel jobs for each CPU

listen:
  socket: {_quoted(f"{run}/scheduler.sock")}
  address: {_quoted(address)}      # for agents and remote users, by TLS with certificates alone
  port: {port}

state: {_quoted(f"{state}/scheduler")}   # the journal: keep 1 GiB free
identity: {_quoted(identity)}
network: {_quoted(network)}         # the network that ranks talk over, such as 10.1.0.0/24; empty: any

default_time: 1h    # for jobs that ask for no time of their own
max_time: 24h
operators: [root]   # who may drain nodes, and cancel other users' jobs
"""


#: What stands above a key or a section of a node's settings.
_COMMENTS: Final = {
    "procs": "CHECK: what this machine has ('nproc', and MemTotal of /proc/meminfo in bytes).",
    "launch": "Where the other nodes reach this one.",
    "presence": "When somebody counts as being at this desk: desktop, desktop-hours, lab-night or dedicated.",
    "contract": "The owner's maximum: the cluster may ask for less, never for more.",
}
#: Which keys of a section are written at their default too, because an administrator looks for them; None: all.
_ALWAYS: Final[dict[str, tuple[str, ...] | None]] = {
    "launch": None,
    "paths": ("run", "state", "identity"),
    "presence": ("preset",),
    "contract": None,
}


def node_toml(config: NodeConfig) -> str:
    """A workstation's settings as a file that :func:`cosched.config.node.load_node` reads as these again.

    Every ``node.toml`` is written by this: of ``cosched init``, of an enrolment, of a lab. Keys at their default are
    left out, but for those that are looked for.
    """
    blocks = ["# This workstation's settings, read by its guard and its agent.\n"]
    top: dict[str, Any] = {}
    sections: dict[str, dict[str, Any]] = {}
    for field in msgspec.structs.fields(config):
        value = getattr(config, field.name)
        if isinstance(value, msgspec.Struct):
            if section := _written(field.name, value):
                sections[field.name] = section
        elif field.default is msgspec.NODEFAULT or value != field.default:
            top[field.name] = value
    for key, value in top.items():
        blocks.append(_comment(key, "\n") + tomli_w.dumps({key: value}))
    for name, section in sections.items():
        blocks.append("\n" + _comment(name) + tomli_w.dumps({name: section}))
    return "".join(blocks)


def _written(name: str, section: msgspec.Struct) -> dict[str, Any]:
    """The keys of a section that are written, as plain data."""
    always = _ALWAYS.get(name, ())
    found = {}
    for field in msgspec.structs.fields(section):
        value = getattr(section, field.name)
        default = field.default if field.default_factory is msgspec.NODEFAULT else field.default_factory()
        if value is not None and (always is None or field.name in always or value != default):
            found[field.name] = value
    return found


def _comment(key: str, before: str = "") -> str:
    return f"{before}# {_COMMENTS[key]}\n" if key in _COMMENTS else ""
