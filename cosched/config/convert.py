"""Checking plain data against a structure, with errors that say where, what was found and what was expected."""

import reprlib
from collections.abc import Iterable, Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec

from cosched.errors import BadInput, nearest

Settings = TypeVar("Settings", bound=msgspec.Struct)

TOO_DEEP: Final = "nested too deeply"
#: A whole number of more bits is not written out (Python refuses to, beyond 4300 digits).
_LONGEST_BITS: Final = 256
_MOST_BITS: Final = 64
_UNFIT: Final = "something is missing or does not fit"
#: By the word for a type, in the order in which messages name them: the plain types of its values.
_TAKES: Final[dict[str, tuple[type, ...]]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (float, int),
    "str": (str,),
    "array": (list, tuple),
    "object": (dict,),
    "null": (NoneType,),
}
_WORDS: Final = {
    bool: "bool", int: "int", float: "float", str: "str", list: "array", tuple: "array", dict: "object",
    NoneType: "null",
}  # fmt: skip


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
        misfit = _misfit(raw, into, "")
        if misfit is None:  # a structure's own check
            raise BadInput(where, _UNFIT, str(error)) from None
        place = f"{where}: {misfit.path}" if misfit.path else where
        raise BadInput(place, misfit.found, misfit.expected, nearest=misfit.nearest) from None


def _known_keys(raw: dict[Any, Any], into: type[msgspec.Struct], where: str, prefix: str) -> None:
    fields = _types(into)
    for key, value in raw.items():
        if key not in fields:
            close = nearest(str(key)[:80], fields)
            expected = "one of " + ", ".join(fields)
            raise BadInput(f"{where}: {prefix}{str(key)[:80]}", "unknown key", expected, nearest=close)
        if isinstance(value, dict) and (inner := _structure(fields[key])) is not None:
            _known_keys(value, inner, where, f"{prefix}{key}.")


@cache
def _types(into: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The types of a structure's fields by their names; evaluating annotations takes as long as all else here."""
    return {field.encode_name: field.type for field in msgspec.structs.fields(into)}


def _structure(kind: Any) -> type[msgspec.Struct] | None:
    """The structure that a key holds, be it one that may be left out."""
    kinds = [kind, *get_args(kind)] if get_origin(kind) in (None, Union, UnionType) else []
    return next((each for each in kinds if _is_structure(each)), None)


class _Misfit(NamedTuple):
    """Where plain data is not of its type: the key's path, and the parts of the message."""

    path: str
    found: str
    expected: str
    nearest: str = ""


def _misfit(value: Any, kind: Any, path: str) -> _Misfit | None:
    """The first place at which a value, or a part of it, is not of its type; None where all parts are."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    kinds = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    kinds = tuple(get_args(each)[0] if get_origin(each) is Annotated else each for each in kinds)
    words = {_word(each) for each in kinds}
    fitting = [each for each in kinds if type(value) in _TAKES.get(_word(each), (type(value),))]
    found = f"found {shown(value)}" if path else _UNFIT
    if (fitting or len(kinds) == 1) and (choices := _choices((fitting or kinds)[0])):
        near = nearest(shown(value).strip("'"), choices)
        return None if value in choices else _Misfit(path, found, f"one of {', '.join(choices)}", near)
    if not fitting:
        return _Misfit(path, found, " | ".join(word for word in _TAKES if word in words))
    parts = get_args(fitting[0])
    if get_origin(fitting[0]) is tuple and ... not in parts and len(value) != len(parts):
        return _Misfit(path, found, f"array of length {len(parts)}")
    for part, inner, inner_path in _parts(value, fitting[0], path):
        if (misfit := _misfit(part, inner, inner_path)) is not None:
            in_map = get_origin(fitting[0]) is dict and misfit.path == inner_path
            return misfit._replace(found=found) if in_map else misfit
    if _is_structure(fitting[0]):
        fields = msgspec.structs.fields(fitting[0])
        missing = [each.encode_name for each in fields if each.required and each.encode_name not in value]
        return _Misfit(path, found, f"Object missing required field {missing[0]}") if missing else None
    return None


def _parts(value: Any, kind: Any, path: str) -> Iterable[tuple[Any, Any, str]]:
    """The parts of a value of that kind of container: each with its type and its path."""
    inner = get_args(kind)
    if _is_structure(kind):
        types = _types(kind)
        return [(each, types[key], f"{path}.{key}".lstrip(".")) for key, each in value.items() if key in types]
    if get_origin(kind) is dict:
        return [(each, inner[1], f"{path}[...]") for each in value.values()]
    if get_origin(kind) in (list, tuple):
        kinds = inner if get_origin(kind) is tuple and ... not in inner else inner[:1] * len(value)
        return [(each, kinds[at], f"{path}[{at}]") for at, each in enumerate(value)]
    return []


def _word(kind: Any) -> str:
    """The word for a type; empty for one that takes any value."""
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, Enum)):
        return "str"
    return "object" if _is_structure(kind) else _WORDS.get(get_origin(kind) or kind, "")


def _is_structure(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def _choices(kind: Any) -> list[str]:
    """The words that may stand there, where these are few."""
    if get_origin(kind) is Literal:
        return [str(choice) for choice in get_args(kind)]
    return [str(choice.value) for choice in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


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
