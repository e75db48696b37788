"""Checking plain data against a structure, with errors that say where, what was found and what was expected."""

import re
import reprlib
from enum import Enum
from types import UnionType
from typing import Any, Final, Literal, TypeVar, Union, get_args, get_origin

import msgspec

from cosched.errors import BadInput, nearest

Settings = TypeVar("Settings", bound=msgspec.Struct)

TOO_DEEP: Final = "nested too deeply"
#: A whole number of more bits is not written out (Python refuses to, beyond 4300 digits).
_LONGEST_BITS: Final = 256
_MOST_BITS: Final = 64


def check_numbers(raw: object, where: str) -> None:
    """Whole numbers of more than 64 bits are a mistake in any setting. Raises :class:`BadInput`."""
    seen: set[int] = set()
    left = [raw]
    while left:
        each = left.pop()
        if isinstance(each, int) and each.bit_length() > _MOST_BITS:
            raise BadInput(where, f"a whole number of {each.bit_length()} bits", f"at most {_MOST_BITS}")
        if isinstance(each, dict | list) and id(each) not in seen:
            seen.add(id(each))  # YAML can refer to what is around it
            left += each.values() if isinstance(each, dict) else each


def convert(raw: object, into: type[Settings], where: str) -> Settings:
    """Check plain data against a structure. ``where`` names its origin in errors."""
    if raw is None:
        raw = {}
    if not isinstance(raw, dict):
        raise BadInput(where, f"a {type(raw).__name__}", "keys and values")
    _known_keys(raw, into, where, "")
    try:
        return msgspec.convert(raw, into)
    except RecursionError:
        raise BadInput(where, TOO_DEEP, "keys and values") from None
    except msgspec.ValidationError as error:
        problem, _, path = str(error).partition(" - at `$")
        key = path.rstrip("`").lstrip(".")
        found = _found(raw, key)
        if choices := _choices(into, key):
            near = nearest(found.removeprefix("found ").strip("'"), choices)
            raise BadInput(f"{where}: {key}", found, f"one of {', '.join(choices)}", nearest=near) from None
        raise BadInput(f"{where}: {key}" if key else where, found, _expected(problem)) from None


def _known_keys(raw: dict[Any, Any], into: type[msgspec.Struct], where: str, prefix: str) -> None:
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(into)}
    for key, value in raw.items():
        if key not in fields:
            close = nearest(str(key)[:80], fields)
            expected = "one of " + ", ".join(fields)
            raise BadInput(f"{where}: {prefix}{str(key)[:80]}", "unknown key", expected, nearest=close)
        if isinstance(value, dict) and (inner := _structure(fields[key])) is not None:
            _known_keys(value, inner, where, f"{prefix}{key}.")


def _structure(kind: Any) -> type[msgspec.Struct] | None:
    """The structure that a key holds, be it one that may be left out."""
    kinds = [kind, *get_args(kind)] if get_origin(kind) in (None, Union, UnionType) else []
    return next((each for each in kinds if isinstance(each, type) and issubclass(each, msgspec.Struct)), None)


def _found(raw: Any, key: str) -> str:
    if not key:
        return "something is missing or does not fit"
    value = raw
    for part in re.findall(r"[^.\[\]]+", key):
        try:
            value = value[int(part)] if isinstance(value, list) else value[part]
        except (KeyError, IndexError, ValueError, TypeError):
            return "a value that does not fit"
    return f"found {shown(value)}"


class _Short(reprlib.Repr):
    """A few levels, a few items, so many characters: whatever the value is, and it may be anything."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxother = 80

    def repr_int(self, x: int, level: int) -> str:
        return repr(x) if x.bit_length() <= _LONGEST_BITS else f"a number of {x.bit_length()} bits"


def shown(value: object) -> str:
    """A value for an error's message."""
    return _Short().repr(value)


def _choices(kind: Any, key: str) -> list[str]:
    """What a key may be set to, where that is one of a few words."""
    for part in re.findall(r"[^.\[\]]+", key):
        if (inner := _structure(kind)) is not None:
            kind = {field.encode_name: field.type for field in msgspec.structs.fields(inner)}.get(part)
        else:
            kind = next(iter(get_args(kind)), None)
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return [str(choice.value) for choice in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


def _expected(problem: str) -> str:
    return problem.removeprefix("Expected ").replace("`", "").partition(", got ")[0]
