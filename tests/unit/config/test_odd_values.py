"""Values that YAML and TOML make of a few words, and that no setting can have: one message each, by file and line."""

from pathlib import Path

import pytest

from cosched.config.cluster import load_cluster
from cosched.config.node import load_node
from cosched.errors import BadInput
from node_agent.guard.base.settings import BadSettings
from node_agent.guard.base.settings import load as load_guard

HEX = "0x" + "f" * 5000


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("name: 2026-99-99\n", ""),
        ("name: 2026-11-24\n", ""),
        ("name: a\nmax_queued: !!timestamp x\n", ":2: a value that cannot be read"),
        ("name: a\nmax_queued: " + "9" * 5000 + "\n", ":2: a value that cannot be read: Exceeds the limit"),
        (f"name: a\nmax_queued: {HEX}\n", "a whole number of 20000 bits; expected at most 64"),
        ("name: a\nmax_queued: " + "[" * 100 + "]" * 100 + "\n", "max_queued: found [[[[...]]]]; expected int"),
        ("name: a\nnodes: &x [*x]\n", "nodes[0]: found [[[[...]]]]; expected str"),
        ("name: a\nnodes: " + "[" * 1000 + "\n", "nested too deeply"),
        ('name: "\\ud800"\n', ":1: a value that cannot be read"),
        ("name: a\nmax_time: " + "9" * 400 + "d\n", "max_time: '9999"),
    ],
    ids=str.split("no-date date tag long hexadecimal deep circle deepest half-a-pair time"),
)
def test_a_cluster(tmp_path: Path, text: str, complaint: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    if not complaint:
        assert load_cluster(path).name == text.split()[1]  # a date is a text like any other
        return
    with pytest.raises(BadInput) as refused:
        load_cluster(path)
    assert complaint in str(refused.value)
    assert len(str(refused.value)) < 500


@pytest.mark.parametrize(
    "text",
    [
        "procs = " + "9" * 5000,
        f"procs = {HEX}",
        "procs = " + "[" * 5000 + "]" * 5000,
        f"[contract]\nmpl = {HEX}",
        "procs = 1\n" + "k" * 5000 + " = 1",
        "procs = 1\n[contract]\n" + "k" * 5000 + " = 1",
    ],
    ids=["long", "hexadecimal", "deep", "in-a-table", "key", "key-in-a-table"],
)
def test_a_node(tmp_path: Path, text: str) -> None:
    path = tmp_path / "node.toml"
    path.write_text(f"memory_bytes = 1\n{text}\n")
    with pytest.raises(BadInput) as refused:
        load_node(path)
    assert len(str(refused.value)) < 500
    with pytest.raises(BadSettings) as by_guard:
        load_guard(str(path))
    assert len(str(by_guard.value)) < 500
