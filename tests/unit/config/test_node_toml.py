"""The one author of ``node.toml``: what it writes is read as it was, and an administrator finds what he looks for."""

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosched.config.node import NodeConfig, load_node, node_config
from cosched.config.templates import node_toml
from cosched.errors import BadInput
from node_agent.guard.base import settings

LEAST: dict[str, Any] = {
    "name": "desk1",
    "cluster": "office",
    "procs": 4,
    "memory_bytes": 8 << 30,
    "scheduler": {"url": "wss://head.example:7420/v1/agent"},
    "launch": {"address": "desk1.example"},
}
WHOLE: dict[str, Any] = LEAST | {
    "launch": {"address": "192.0.2.1", "port": 7700, "network": "192.0.2.0/24"},
    "paths": {"run": "/r", "state": "/s", "identity": "/i", "keep": ["/tmp/a b", '/ü"\\ 😀']},
    "cgroup": {"mode": "v1", "mount": "/cg", "cosched": "lab/a/cosched", "desk": "lab/a/desk", "decoys": True},
    "security": {
        "users": "self",
        "min_uid": 500,
        "allow_root": True,
        "agent_user": "agent",
        "private_tmp": False,
        "desk_users": ["ann"],
    },
    "presence": {
        "preset": "dedicated",
        "away_after_s": 0.25,
        "hours": "09:00-17:00",
        "days": ["sat"],
        "sources": [],
        "poll_s": 5.0,
        "busy_cpus": 1e6,
        "events": False,
    },
    "coscheduling": {"watch_messages": True, "clock_shift_us": 7},
    "contract": {"cpu_ratio": 1.0, "memory_ratio": 0.25, "mpl": 2},
    "weights": {"io": 10, "network_priority": 2},
    "parallel": False,
    "output": {"limit": "2GiB", "total": "3GiB", "keep": "1d", "least_free": "1MiB", "least_free_files": 7},
    "monitoring": {"wakeups": False},
}


def read_again(config: NodeConfig, directory: Path) -> NodeConfig:
    (directory / "node.toml").write_text(node_toml(config), encoding="utf-8")
    return load_node(directory / "node.toml")


@pytest.mark.parametrize("raw", [LEAST, WHOLE])
def test_what_is_written_is_read_as_it_was(raw: dict[str, Any], tmp_path: Path) -> None:
    config = node_config(raw, "here")
    assert read_again(config, tmp_path) == config
    guards = settings.load(str(tmp_path / "node.toml"))
    assert (guards.cgroup.cosched, guards.contract.mpl) == (config.cgroup.cosched, config.contract.mpl)
    assert guards.security.agent_user == config.security.agent_user


def test_the_whole_of_it_is_tried() -> None:
    """Each key of each section is at another value than its default in ``WHOLE``."""
    config, default = (msgspec.to_builtins(node_config(raw, "here")) for raw in (WHOLE, LEAST))
    same = [
        f"{name}.{key}"
        for name, section in config.items()
        for key, value in (section.items() if isinstance(section, dict) else [("", section)])
        if value == (default[name][key] if isinstance(section, dict) else default[name])
    ]
    assert same == ["name.", "cluster.", "procs.", "memory_bytes.", "scheduler.url"]


def test_what_an_administrator_looks_for_is_there_and_no_more() -> None:
    text = node_toml(node_config(LEAST, "here"))
    assert tomllib.loads(text) == LEAST | {
        "launch": {"address": "desk1.example", "port": 7421, "network": ""},
        "paths": {"run": "/run/cosched", "state": "/var/lib/cosched", "identity": "/etc/cosched/identity"},
        "presence": {"preset": "desktop"},
        "contract": {"cpu_ratio": 0.5, "memory_ratio": 0.5, "mpl": 1},
    }
    assert "# CHECK: what this machine has ('nproc', and MemTotal of /proc/meminfo in bytes).\nprocs = 4\n" in text
    assert "# The owner's maximum: the cluster may ask for less, never for more.\n[contract]\n" in text


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=20).map("/".__add__), max_size=3))
def test_any_text_comes_through(keep: list[str]) -> None:
    address = "a" + "".join(keep).replace(":", "")  # a colon is that of an IPv6 address, which is refused
    config = node_config(LEAST | {"launch": {"address": address}, "paths": {"keep": keep}}, "here")
    assert node_config(tomllib.loads(node_toml(config)), "here") == config


def test_what_could_not_be_read_is_not_written() -> None:
    with pytest.raises(BadInput, match=r"here: presence\.poll: unknown key"):
        node_config(LEAST | {"presence": {"poll": 3}}, "here")
