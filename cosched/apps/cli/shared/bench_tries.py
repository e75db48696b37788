"""``--tries``, which experiments share that have to have the machine to themselves."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from cosched.apps.cli.shared.values import whole_number
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
