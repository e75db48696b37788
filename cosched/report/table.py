"""One table, many forms: for a terminal, as TSV, CSV, Parquet, or rows for JSON."""

import contextlib
import csv
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final

from cosched.errors import BadInput

if TYPE_CHECKING:
    from rich.console import Console

#: The name of a file that means standard output.
STDOUT: Final = Path("-")
_WIDE = 240
#: No column is cut below that: most numbers keep their digits.
_LEAST = 6


@dataclass
class Table:
    """Named columns and rows of plain values; ``caption`` says what it shows, ``notes`` what to know about it.

    One with columns to ``cut`` is a list, which :meth:`print` gives a line for each row: on a terminal no wider than it
    is, these columns give way first. ``wide``: as wide as it takes.
    """

    caption: str
    columns: Sequence[str]
    rows: list[Sequence[Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    cut: Sequence[str] = ()
    wide: bool = False

    def add(self, *values: Any) -> None:
        """Append a row."""
        if len(values) != len(self.columns):
            raise ValueError(f"{len(values)} values for the {len(self.columns)} columns of {self.caption!r}")
        self.rows.append(values)

    def as_dicts(self) -> list[dict[str, Any]]:
        """The rows as dictionaries, for JSON."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]

    def show(self, console: "Console") -> None:
        """Print for people: drawn on a terminal, aligned plain lines into a pipe."""
        from rich import box  # noqa: PLC0415 (rich, only where a table is drawn)
        from rich.table import Table as RichTable  # noqa: PLC0415 (as above)

        console.print(self.caption, style="bold", markup=False)
        drawn = RichTable(box=box.SIMPLE_HEAD)
        for i, column in enumerate(self.columns):
            numeric = bool(self.rows) and all(isinstance(row[i], int | float | None) for row in self.rows)
            drawn.add_column(column, justify="right" if numeric else "left", overflow="fold")
        for row in self.rows:
            drawn.add_row(*(shown(value) for value in row))
        console.print(drawn)
        for note in self.notes:
            console.print(f"  {note}", highlight=False, markup=False)

    def print(self, *, err: bool = False) -> None:
        """Print to standard output (a drawn one, with ``err``, to standard error): drawn, or as a list."""
        if self.cut:
            self._print_list()
        else:
            self.show(console(stderr=err))

    def _print_list(self) -> None:
        """A line for each row. Into a pipe: tabs between values, the columns' names first; notes go to stderr."""
        texts = [[" ".join(("" if value is None else str(value)).split()) for value in row] for row in self.rows]
        lines = [list(self.columns), *texts]
        piped = not sys.stdout.isatty()
        if not piped:
            screen = _WIDE * len(self.columns) if self.wide else os.get_terminal_size(sys.stdout.fileno()).columns
            lines = _fitted(lines, screen, [list(self.columns).index(name) for name in self.cut])
        between = "\t" if piped else "  "
        sys.stdout.write("".join(between.join(line).rstrip(" ") + "\n" for line in lines))
        for note in self.notes:
            print(note, file=sys.stderr if piped else sys.stdout)

    def write(self, path: Path) -> None:
        """Write to a file; its ending says how: .tsv, .csv or .parquet."""
        if path.suffix == ".parquet":
            write_parquet(path, {name: [row[i] for row in self.rows] for i, name in enumerate(self.columns)})
            return
        if path.suffix not in (".csv", ".tsv"):
            raise BadInput(str(path), f"unknown table format {path.suffix!r}", "an ending of .csv, .tsv or .parquet")
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file, delimiter="\t" if path.suffix == ".tsv" else ",", lineterminator="\n")
            writer.writerow(self.columns)
            writer.writerows(["" if value is None else value for value in row] for row in self.rows)


def _fitted(lines: list[list[str]], screen: int, cut: Sequence[int]) -> list[list[str]]:
    """The lines with each column as wide as its widest value, those columns narrower that are to be ``cut``."""
    from rich.cells import cell_len, set_cell_size  # noqa: PLC0415 (as above)

    columns = list(zip(*lines, strict=True))
    widths = [max(map(cell_len, column)) for column in columns]
    for i in [*cut, *range(len(columns) - 1, -1, -1)]:
        if (excess := sum(widths) + 2 * (len(widths) - 1) - screen) > 0:
            widths[i] = max(min(widths[i], _LEAST), widths[i] - excess)

    def fitted(text: str, width: int) -> str:
        shorter = text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"
        return set_cell_size(shorter, width)

    return [[fitted(text, width) for text, width in zip(line, widths, strict=True)] for line in lines]


def shown(value: Any) -> str:
    """A cell for people: four significant digits, thousands apart, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) or (isinstance(value, float) and 1000 <= abs(value) < math.inf):
        return f"{value:,.0f}".replace(",", " ")
    if isinstance(value, float):
        return "undefined" if math.isnan(value) else f"{value:.4g}"
    return str(value)


@contextlib.contextmanager
def text_file(path: Path) -> Iterator[IO[str]]:
    """A file of ASCII text with plain line ends, opened to be written; ``-`` is standard output."""
    if path == STDOUT:
        yield sys.stdout
        return
    with path.open("w", encoding="ascii", newline="") as file:
        yield file


def console(*, stderr: bool = False) -> "Console":
    """A console that never cuts lines off when its output goes into a pipe or a file."""
    from rich.console import Console  # noqa: PLC0415 (as above)

    stream = sys.stderr if stderr else sys.stdout
    return Console(stderr=stderr, width=None if stream.isatty() else _WIDE, highlight=False)


def write_parquet(path: Path, columns: Mapping[str, Any], kinds: Mapping[str, str] | None = None) -> None:
    """Columns of equal length to a Parquet file; the same columns give the same bytes.

    ``kinds`` are the columns' types where values do not tell them, such as ``int64`` or ``list<double>``.
    """
    pa, pq = parquet_modules(path)
    made = {name: pa.array(values, _arrow(pa, kinds[name])) if kinds else values for name, values in columns.items()}
    pq.write_table(pa.table(made), path, compression="zstd")


def parquet_modules(path: Path) -> tuple[Any, Any]:
    """What writes Parquet. Raises :class:`BadInput` where it is not installed; ``path`` is what was to be written."""
    try:
        import pyarrow as pa  # noqa: PLC0415 (an extra: heavy, and only for this)
        import pyarrow.parquet as pq  # noqa: PLC0415
    except ImportError:
        raise BadInput(str(path), "Parquet needs the package pyarrow", "the extra 'results' to be installed") from None
    return pa, pq


def _arrow(pa: Any, kind: str) -> Any:
    """A type of Arrow by its name."""
    inner = kind.removeprefix("list<").removesuffix(">")
    return pa.type_for_alias(kind) if inner == kind else pa.list_(pa.type_for_alias(inner))
