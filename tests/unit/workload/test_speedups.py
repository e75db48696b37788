"""Speed-up models: by hand, and what is said of those that are none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.snapshots import Snapshot

from cosched.errors import BadInput
from cosched.workload.speedups import UNIT, parse


def test_models_and_tables_that_are_none_are_refused(snapshot: Snapshot, cosched: Call) -> None:  # noqa: F811
    snapshot.replay(cosched)


def test_models_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "speed.txt"
    path.write_text("# processes, speed-up\n1 1\n4,3\n8; 5\n")
    for text, procs, expected in (
        ("amdahl:0.5", 4, 1.6),
        ("amdahl:0", 64, 64),
        ("amdahl:1", 64, 1),
        ("downey:8,0", 4, 4),
        ("downey:8,1", 8, 8 * 8 / (8 + 7 / 2)),
        ("downey:8,1", 99, 8),
        ("downey:8,2", 1, 1),
        (f"table:{path}", 2, 1 + 2 / 3),
        (f"table:{path}", 8, 5),
        (f"table:{path}", 99, 5),
    ):
        model = parse(text)
        assert model is not None
        assert model(procs) == round(UNIT * expected), (text, procs)
    assert parse("linear") is None


@given(st.text(max_size=30) | st.from_regex(r"(amdahl|downey|table):[0-9.,\-e]{0,12}", fullmatch=True))
def test_whatever_text(text: str) -> None:
    """A model is one that has a speed above 0 with any number of processes; all else is bad input."""
    try:
        model = parse(text)
    except BadInput:
        return
    assert model is None or all(model(procs) >= 1 for procs in (1, 2, 7, 64, 1_000_000))


@given(st.binary(max_size=60))
def test_whatever_is_in_a_table(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("table") / "speed.txt"
    path.write_bytes(data)
    try:
        model = parse(f"table:{path}")
    except BadInput as error:
        model, where = None, error.where
    else:
        where = ""
    assert (model is None) == where.startswith(str(path))
    assert model is None or model(3) >= 1
