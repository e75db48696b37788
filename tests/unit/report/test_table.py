"""One table in its forms."""

import io
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from rich.console import Console

from cosched.errors import BadInput
from cosched.report.table import Table, shown


@pytest.fixture
def table() -> Table:
    made = Table("Two rows", ("name", "value"), notes=["a note [with brackets]"])
    made.add("a", 1.5)
    made.add("b", None)
    return made


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "yes"),
        (1234567, "1 234 567"),
        (12345.6, "12 346"),
        (0.123456, "0.1235"),
        (float("nan"), "undefined"),
        (float("inf"), "inf"),
        ("x", "x"),
    ],
)
def test_cells(value: object, text: str) -> None:
    assert shown(value) == text


def test_plain_text_keeps_notes_as_they_are(table: Table) -> None:
    out = io.StringIO()
    table.show(Console(file=out, width=60))
    assert "Two rows" in out.getvalue()
    assert "a note [with brackets]" in out.getvalue()


def test_files(table: Table, tmp_path: Path) -> None:
    table.write(tmp_path / "t.tsv")
    assert (tmp_path / "t.tsv").read_text() == "name\tvalue\na\t1.5\nb\t\n"
    table.write(tmp_path / "t.csv")
    assert (tmp_path / "t.csv").read_text() == "name,value\na,1.5\nb,\n"
    table.write(tmp_path / "t.parquet")
    assert pq.read_table(tmp_path / "t.parquet").to_pylist() == table.as_dicts()
    with pytest.raises(BadInput, match=r"\.xls"):
        table.write(tmp_path / "t.xls")


def test_a_row_of_another_length_is_refused(table: Table) -> None:
    with pytest.raises(ValueError, match="3 values for the 2 columns"):
        table.add(1, 2, 3)
