"""A workstation's settings of presence: what is refused, by its key."""

from pathlib import Path

import pytest

from cosched.config.node import load_node
from cosched.errors import BadInput

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


@pytest.mark.parametrize(
    ("presence", "complaint"),
    [
        ('preset = "desktops"', "presence.preset: found 'desktops'"),
        ('hours = "8-20"', "presence.hours: found '8-20'"),
        ('days = ["monday"]', "days of mon, tue, wed, thu, fri, sat, sun, not 'monday'"),
        ('sources = ["webcam"]', "presence.sources"),
        ("sources = []", "presence.sources: found none: the desk would count as occupied for ever"),
        ("away_after_s = 0", "presence.away_after_s: found 0"),
        ("quiet = 3", "presence.quiet"),
    ],
)
def test_presence_that_cannot_be_is_refused_by_its_key(tmp_path: Path, presence: str, complaint: str) -> None:
    (tmp_path / "node.toml").write_text(NODE + presence + "\n")
    with pytest.raises(BadInput) as refused:
        load_node(tmp_path / "node.toml")
    assert complaint in str(refused.value), str(refused.value)


@pytest.mark.parametrize("cluster", ["", "  ", "a\\nb", "x" * 256])
def test_a_cluster_that_cannot_be_is_refused_by_its_key(tmp_path: Path, cluster: str) -> None:
    (tmp_path / "node.toml").write_text(NODE.replace('"lab"', f'"{cluster}"'))
    with pytest.raises(BadInput, match=r"node.toml: cluster: found .*; expected the cluster's name: printable"):
        load_node(tmp_path / "node.toml")


@pytest.mark.parametrize("address", ["::1", "fd00::5", "[fd00::5]"])
def test_ipv6_launch_address_is_refused_with_its_cause(tmp_path: Path, address: str) -> None:
    (tmp_path / "node.toml").write_text(NODE.replace('address = "127.0.0.1"', f'address = "{address}"'))
    with pytest.raises(BadInput, match=r"launch.address: found .*; expected a name or an IPv4 address: .*MPICH"):
        load_node(tmp_path / "node.toml")


def test_a_desk_that_is_nobodys_needs_no_source(tmp_path: Path) -> None:
    (tmp_path / "node.toml").write_text(NODE + 'preset = "dedicated"\nsources = []\n')
    assert load_node(tmp_path / "node.toml").presence.preset == "dedicated"


@pytest.mark.parametrize(
    ("output", "complaint"),
    [
        ('limit = "1 gig"', "output.limit: unknown unit 'gig'"),
        ("total = 10", "output.total: found 10"),
        ('keep = "forever"', "output.keep"),
        ('least_free = "5%"', "output.least_free"),
        ("least_free_files = -1", "output.least_free_files"),
        ('most = "1GiB"', "output.most: unknown key"),
    ],
)
def test_bounds_of_output_that_cannot_be_are_refused_by_their_key(tmp_path: Path, output: str, complaint: str) -> None:
    (tmp_path / "node.toml").write_text(NODE.replace("[presence]", "[output]") + output + "\n")
    with pytest.raises(BadInput) as refused:
        load_node(tmp_path / "node.toml")
    assert complaint in str(refused.value), str(refused.value)
