"""What the experiments share: an option, what is said of their runs, and the files that are written of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import click

from cosched.apps.cli.shared.values import whole_number
from cosched.apps.cli.shared.verb import echo
from cosched.apps.experiments.interference import TRIES

Command = TypeVar("Command", bound=Callable[..., Any])


def tries_option(command: Command) -> Command:
    """Add ``--tries``, which arrives as ``tries``."""
    return click.option(
        "--tries",
        default=str(TRIES),
        callback=whole_number(1, 100),
        show_default=True,
        help="How often a run that others disturb is made, at most.",
    )(command)


def not_run(refused: Mapping[str, str]) -> Iterator[str]:
    """A line for each cell that was refused."""
    return (f"not run: {what}: {why}" for what, why in refused.items())


def wrote(path: Path, document: str, plots: Iterable[Path] = ()) -> None:
    """Write a document, and say that it and what was drawn are there."""
    path.write_text(document, encoding="utf-8")
    echo(f"wrote {each}" for each in (path, *plots))
