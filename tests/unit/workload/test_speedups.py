"""Speed-up models: by hand, and what is said of those that are none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosched.errors import BadInput
from cosched.workload.speedups import UNIT, parse

BAD = [
    "", "amdal:0.1", "amdahl", "amdahl:", "amdahl:1.5", "amdahl:-0.1", "amdahl:0.1,2", "amdahl:x", "amdahl:nan",
    "downey:8", "downey:0.5,1", "downey:8,-1", "downey:8,1,2", "downey:inf,1", "table", "table:", "linear:2", "LINEAR",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_what_is_no_model(text: str) -> None:
    with pytest.raises(BadInput, match=r"^--speed-up: .*one of linear, amdahl:F, downey:A,SIGMA, table:FILE"):
        parse(text)


def test_the_nearest_is_told() -> None:
    with pytest.raises(BadInput, match="did you mean 'amdahl:F'"):
        parse("amdal:F")


#: A table's text -> its line (0: the whole file), and what the message must contain.
BAD_TABLES = {
    "": (0, "no line with a speed-up"),
    "# only words\n\n": (0, "no line with a speed-up"),
    "1 1\n8\n": (2, "'8'"),
    "0 1\n": (1, "'0 1'"),
    "8 0\n": (1, "'8 0'"),
    "8 -2\n": (1, "'8 -2'"),
    "8 many\n": (1, "'8 many'"),
    "8 1 2\n": (1, "'8 1 2'"),
    "1 1\n8 6\n8 7\n": (3, "8 again"),
}


@pytest.mark.parametrize("text", BAD_TABLES)
def test_a_bad_table(text: str, tmp_path: Path) -> None:
    path = tmp_path / "speed.txt"
    path.write_text(text)
    line, words = BAD_TABLES[text]
    with pytest.raises(BadInput) as caught:
        parse(f"table:{path}")
    assert caught.value.where == (f"{path}:{line}" if line else str(path))
    assert words in caught.value.found


@pytest.mark.parametrize("data", [None, b"8 6\xff\n"])
def test_a_table_that_cannot_be_read(data: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "speed.txt"
    if data is not None:
        path.write_bytes(data)
    with pytest.raises(BadInput, match="it cannot be read"):
        parse(f"table:{path}")


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
