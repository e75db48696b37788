"""What a replication found: tables, claims and plots; on a terminal, as JSON, and as files with a manifest.

The files of one configuration are the same, byte for byte, wherever and whenever they are made with the same versions.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
from rich.console import Console

from cosched.apps.replicate.claims import Claim, Verdict
from cosched.report.manifest import Made, digest, make
from cosched.report.plots import figure
from cosched.report.table import Table, shown

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Plot:
    """How to draw one figure, and how large in inches."""

    draw: Callable[["Axes"], None]
    size_in: tuple[float, float] = (8.0, 4.5)


@dataclass
class Result:
    """Everything found. ``configuration`` decides the outcome; ``notes`` say what the paper leaves open and what was
    chosen, and whom to acknowledge.
    """

    paper: str
    title: str
    configuration: dict[str, Any]
    inputs: list[Path] = field(default_factory=list)
    tables: dict[str, Table] = field(default_factory=dict)
    claims: list[Claim] = field(default_factory=list)
    plots: dict[str, Plot] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


#: Longer tables are for files.
_MOST_ROWS: Final = 60


def write(result: Result, directory: Path) -> Made[dict[str, Any]]:
    """Write tables (CSV and Parquet), plots (PNG and SVG), ``claims.json`` and ``manifest.json``."""
    directory.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, table in result.tables.items():
        for ending in (".csv", ".parquet"):
            written.append(directory / (name + ending))
            table.write(written[-1])
    for name, plot in result.plots.items():
        written += figure(plot.draw, directory / name, plot.size_in)
    written.append(directory / "claims.json")
    written[-1].write_bytes(_indented({"paper": result.paper, "title": result.title, "claims": result.claims}))
    manifest = make(f"replicate {result.paper}", result.configuration, result.inputs, written, "pyarrow")
    (directory / "manifest.json").write_bytes(_indented(manifest))
    return manifest


def document(result: Result) -> dict[str, Any]:
    """The result as plain data, for ``--json``."""
    return {
        "paper": result.paper,
        "title": result.title,
        "claims": result.claims,
        "tables": {
            name: {"caption": table.caption, "rows": table.as_dicts(), "notes": table.notes}
            for name, table in result.tables.items()
        },
        "configuration": result.configuration,
        "inputs": [digest(path) for path in result.inputs],
        "notes": result.notes,
    }


def show(result: Result, screen: Console) -> None:
    """Print the tables, then the claims with their verdicts, then the notes."""
    for name, table in result.tables.items():
        if len(table.rows) <= _MOST_ROWS:
            table.show(screen)
        else:
            screen.print(f"{table.caption}: {len(table.rows)} rows, as {name} in --json and in the files of --out\n")
    screen.print(f"\nClaims of {result.title}", style="bold", highlight=False)
    for claim in result.claims:
        screen.print(
            f"  {claim.verdict.value.replace('_', ' '):<14} {claim.id}: {claim.text}", highlight=False, markup=False
        )
        interval = "" if claim.interval is None else " [{:.4g}, {:.4g}]".format(*claim.interval)
        ours = "nothing" if claim.ours is None else f"{shown(claim.ours)}{interval}"
        paper = "" if claim.paper is None else f"; the paper {shown(claim.paper)}"
        screen.print(f"             ours {ours}{paper}; holds if {claim.predicate}", highlight=False, markup=False)
        if claim.note:
            screen.print(f"             {claim.note}", highlight=False, markup=False)
        for reading, found in claim.readings.items():
            screen.print(f"             {found.replace('_', ' ')} with {reading}", highlight=False, markup=False)
    counts = {v: sum(claim.verdict is v for claim in result.claims) for v in Verdict}
    screen.print(
        "  " + ", ".join(f"{count} {v.replace('_', ' ')}" for v, count in counts.items()) + "\n", highlight=False
    )
    for note in result.notes:
        screen.print(f"  {note}", highlight=False, markup=False)


def as_json(value: object) -> bytes:
    """JSON of plain data, structures and numpy's numbers."""
    return msgspec.json.encode(value, enc_hook=_plain)


def _plain(value: Any) -> object:
    if isinstance(value, np.generic):
        return value.item()
    raise NotImplementedError(f"{type(value).__name__} in a result")


def _indented(value: object) -> bytes:
    return msgspec.json.format(as_json(value), indent=2) + b"\n"
