"""Callbacks for options of all commands: a value that cannot be is told before anything happens, with what can."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from cosched.config.units import is_whole
from cosched.errors import BadInput, nearest

Value = TypeVar("Value")


def refuse(*cases: tuple[object, str, str, str]) -> None:
    """Raise :class:`BadInput` for the first case that is so: (whether it is so, where, found, expected)."""
    for is_so, where, found, expected in cases:
        if is_so:
            raise BadInput(where, found, expected)


def one_of(*words: str) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """A callback for an option whose value is one of some words; another is told the nearest."""

    choices = [str(word) for word in words]  # of an enum the values

    def checked(value: str, option: str) -> str:
        if value not in choices:
            raise BadInput(option, f"{value!r}", "one of " + ", ".join(choices), nearest=nearest(value, choices))
        return value

    return read_by(checked)


def some_of(*words: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A callback for an option whose value is one or more of some words, with commas between."""

    def checked(_ctx: click.Context, param: click.Parameter, value: str) -> list[str]:
        chosen = [word.strip() for word in value.split(",") if word.strip()]
        for word in chosen or [""]:
            if word not in words:
                near = nearest(word, map(str, words))
                raise BadInput(param.opts[-1], f"{word!r}", ", ".join(words), nearest=near)
        return chosen

    return checked


def read_by(read: Callable[[Any, str], Value]) -> Callable[[click.Context, click.Parameter, Any], Value | None]:
    """A callback for an option that is read by a function of (what was given, the option's name)."""
    return lambda _ctx, param, given: None if given is None else read(given, param.opts[-1])


def within(least: float, most: float, unit: str = "") -> Callable[[click.Context, click.Parameter, float], float]:
    """A callback for an option whose value is a number between two."""

    def checked(_ctx: click.Context, param: click.Parameter, value: float) -> float:
        if not least <= value <= most:
            raise BadInput(param.opts[-1], f"{value:g}", f"{least:g} to {most:g}{unit}")
        return value

    return checked


def up_to(most: float, said: str = "") -> Callable[[click.Context, click.Parameter, float], float]:
    """A callback for an option whose value is a number above 0; ``said``: the bound in words."""

    def checked(_ctx: click.Context, param: click.Parameter, value: float) -> float:
        if not 0 < value <= most:
            raise BadInput(param.opts[-1], f"{value:g}", f"more than 0, at most {said or f'{most:.0f}'}")
        return value

    return checked


def whole_number(least: int, most: int) -> Callable[[click.Context, click.Parameter, str | None], int | None]:
    """A callback for an option whose value is a whole number between two."""

    def checked(text: str, option: str) -> int:
        if not is_whole(text) or not least <= int(text) <= most:
            raise BadInput(option, f"{text!r}", f"a whole number from {least} to {most}")
        return int(text)

    return read_by(checked)


def numbers_in(text: str, option: str, least: int, most: int, expected: str) -> list[int]:
    """Whole numbers between two, with commas between them. Raises :class:`BadInput`."""
    for word in text.split(","):
        if not is_whole(word.strip()) or not least <= int(word) <= most:
            raise BadInput(option, f"{word!r}", expected)
    return [int(word) for word in text.split(",")]


def number_within(text: str, least: float, most: float, otherwise: BadInput) -> float:
    """The number that a text is. Raises ``otherwise`` where it is none, or not between the two."""
    try:
        if least <= (number := float(text)) <= most:
            return number
    except ValueError:
        pass
    raise otherwise


def absolute_path(path: str, option: str) -> str:
    """A directory or file on some host, without a slash at its end. Raises :class:`BadInput`."""
    if not path.startswith("/"):
        raise BadInput(option, f"{path!r}", "an absolute path on the host")
    return path.rstrip("/") or "/"


def toml_table(path: Path, _option: str) -> dict[str, Any]:
    """What a TOML file says, or a JSON object. Raises :class:`BadInput`."""
    import json  # noqa: PLC0415 (these two for this option only: they compile patterns when they are imported)
    import tomllib  # noqa: PLC0415

    try:
        text = path.read_text(encoding="utf-8")
        return dict(json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text))
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(str(path), f"cannot be read: {error}") from None
    except (ValueError, RecursionError) as error:
        raise BadInput(str(path), f"not TOML, nor a JSON object: {error}") from None
