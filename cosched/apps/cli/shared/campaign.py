"""What the experiments share: an option, what is said of their runs, and the files that are written of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import click

from cosched.apps.cli.shared.values import whole_number
from cosched.apps.cli.shared.verb import echo
from cosched.apps.experiments.interference import TRIES
from cosched.report.table import Table

#: Adds ``--tries``, which arrives as ``tries``.
tries_option: Final = click.option(
    "--tries",
    default=str(TRIES),
    callback=whole_number(1, 100),
    show_default=True,
    help="How often a run that others disturb is made, at most.",
)


def not_run(refused: Mapping[str, str]) -> Iterator[str]:
    """A line for each cell that was refused."""
    return (f"not run: {what}: {why}" for what, why in refused.items())


def told(
    lines: Iterable[str | Table],
    out: Path | None,
    name: str,
    document: Callable[[], str],
    plot: Callable[[Path], Iterable[Path]] = lambda _out: (),
) -> None:
    """Print what was found; with a directory, write the document there by that name, draw, and say what was made."""
    echo(lines)
    if out is not None:
        text, plots = document(), plot(out)
        (out / name).write_text(text, encoding="utf-8")
        echo(f"wrote {each}" for each in (out / name, *plots))
