"""A workstation's settings of presence: what is refused, by its key."""

from pathlib import Path

from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.snapshots import Snapshot

from cosched.config.node import load_node

NODE = """
name = "a"
cluster = "lab"
procs = 1
memory_bytes = 1_000_000_000
[scheduler]
url = "wss://127.0.0.1:7420/v1/agent"
[launch]
address = "127.0.0.1"
[presence]
"""


def test_a_desk_that_is_nobodys_needs_no_source(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(NODE + 'preset = "dedicated"\nsources = []\n')
    assert load_node(tmp_path / "node.toml").presence.preset == "dedicated"


def test_settings_that_cannot_be_are_refused_by_their_key(snapshot: Snapshot, cosched: Call) -> None:  # noqa: F811
    snapshot.replay(cosched)
