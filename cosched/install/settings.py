"""A node's ``node.toml`` from what is known of the node."""

from collections.abc import Mapping
from typing import Any

import msgspec

from cosched.config.node import NodeConfig, node_config
from cosched.install.layout import AGENT, Layout
from cosched.install.units import PLACE


class NodeFacts(msgspec.Struct, frozen=True):
    """What a node's settings are made of. ``placed``: its parallel work has a slice of systemd's; ``account``: its
    agent runs as an account of its own. ``users``: whose accounts jobs run as (``security.users``). ``extra``: more of
    ``node.toml``, as plain data, and prevails.
    """

    name: str
    cluster: str
    url: str
    address: str
    procs: int
    memory_bytes: int
    port: int = 7421
    network: str = ""
    placed: bool = False
    account: bool = True
    users: str = "switch"
    extra: Mapping[str, Any] = {}


def node_settings(facts: NodeFacts, layout: Layout) -> NodeConfig:
    """The settings, checked. Raises :class:`BadInput` with the key's path."""
    settings: dict[str, Any] = {
        "name": facts.name,
        "cluster": facts.cluster,
        "procs": facts.procs,
        "memory_bytes": facts.memory_bytes,
        "scheduler": {"url": facts.url},
        "launch": {"address": facts.address, "port": facts.port, "network": facts.network},
        "paths": {"run": layout.run, "state": layout.state, "identity": layout.identity},
    }
    if facts.placed:
        settings["cgroup"] = {"cosched": PLACE}
    settings["security"] = {"agent_user": AGENT} if facts.account else {}
    if facts.users != "switch":
        settings["security"]["users"] = facts.users
    for key, value in facts.extra.items():
        known = settings.get(key)
        settings[key] = known | value if isinstance(known, dict) and isinstance(value, dict) else value
    return node_config(settings, f"node.toml of {facts.name}")
