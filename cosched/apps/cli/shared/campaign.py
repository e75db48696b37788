"""What the experiments share: an option, what is said of their runs, and the files that are written of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import click

from cosched.apps.cli.shared.values import some_of, whole_number, within
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


def modes_option(*choices: str, default: str = "", told: str = "Coscheduling modes.") -> Callable[..., Any]:
    """Adds ``--modes``, a list of these (all, unless there is a default), which arrives as ``modes``."""
    chosen = default or ",".join(choices)
    return click.option(
        "--modes", default=chosen, callback=some_of(*choices), show_default=True, metavar="LIST", help=told
    )


def seconds_option(default: float, told: str = "How long a run measures.", least: float = 1) -> Callable[..., Any]:
    """Adds ``--seconds``, which arrives as ``seconds``."""
    return click.option(
        "--seconds", type=float, default=default, callback=within(least, 600), show_default=True, help=told
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
