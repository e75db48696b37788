"""What tests of replications share: no display of progress, and plots drawn on axes that nothing is written of."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING

from cosched.apps.replicate.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def quiet(_what: str, _total: int) -> nullcontext[Callable[[int], None]]:
    """Shows no progress."""
    return nullcontext(lambda _done: None)


def drawn(result: Result) -> Iterator[tuple[str, "Axes"]]:
    """Each plot's name and axes."""
    from matplotlib.figure import Figure  # noqa: PLC0415 (heavy)

    for name, plot in result.plots.items():
        axes = Figure().subplots()
        plot.draw(axes)
        yield name, axes


def outline(result: Result) -> str:
    """What a result has: tables and what their rows are of, plots, and each claim's verdict, also by readings."""
    lines = []
    for name, table in result.tables.items():
        values = dict(zip(table.columns, zip(*table.rows, strict=True), strict=True)) if table.rows else {}
        lines.append(f"table {name}, {len(table.rows)} rows: {', '.join(table.columns)}")
        for at, (column, found) in enumerate(values.items()):
            if at and not all(isinstance(each, str) for each in found):
                break
            of = [*dict.fromkeys(map(str, found))]
            lines.append(f"  {column} is {', '.join(of if len(of) < 30 else [*of[:3], '…', *of[-3:]])}")
    lines += [f"plot {name}" for name in result.plots]
    for claim in result.claims:
        apart = ", ".join(f"{name}: {verdict}" for name, verdict in claim.readings.items())
        lines.append(f"{claim.verdict:<15}{claim.id}{f' ({apart})' if apart else ''}")
    return "\n".join(lines) + "\n"
