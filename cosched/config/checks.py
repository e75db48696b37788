"""What a setting's value must be beyond its type: declared beside the type, checked by one walk over the structure.

A check is a function of a value and its place; it raises :class:`BadInput`, and its result is ignored. So
:func:`~cosched.config.units.duration_us` is a check, and ``Annotated[str, duration_us]`` declares a duration,
``list[Annotated[str, check]]`` a check of each item. An optional setting is checked where it is given.
"""

from collections.abc import Callable, Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Final, TypeAlias, Union, get_args, get_origin

import msgspec

from cosched.config.hosts import MAX_CLUSTER_NAME, MAX_NODE_NAME, is_cluster, is_host, is_network
from cosched.config.units import duration_us, size_bytes
from cosched.errors import BadInput

Check: TypeAlias = Callable[[Any, str], object]

_LAST_PORT: Final = 65_535


def check(settings: msgspec.Struct, where: str) -> None:
    """Check each setting by what its declaration has. ``where`` names the file. Raises :class:`BadInput` by key."""
    for field in msgspec.structs.fields(settings):
        for value, declared, key in _parts(getattr(settings, field.name), field.type, field.encode_name):
            for each in declared:
                each(value, f"{where}{key}")
            if isinstance(value, msgspec.Struct):
                check(value, f"{where}{key}.")


def _parts(value: Any, kind: Any, key: str) -> Iterator[tuple[Any, list[Check], str]]:
    """A value and the items of a list: each with its checks and its key."""
    declared: list[Check] = []
    if get_origin(kind) in (Union, UnionType):
        if value is None:
            return
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    if get_origin(kind) is Annotated:
        kind, *metadata = get_args(kind)
        declared = [each for each in metadata if callable(each)]
    yield value, declared, key
    if get_origin(kind) is list:
        for at, item in enumerate(value):
            yield from _parts(item, get_args(kind)[0], f"{key}[{at}]")


def such(holds: Callable[[Any], bool], expected: str) -> Check:
    """A check by a predicate."""

    def checked(value: Any, where: str) -> None:
        if not holds(value):
            raise BadInput(where, f"found {value!r}", expected)

    return checked


def number(least: float, most: float = float("inf"), expected: str = "") -> Check:
    """A number within two bounds, which are allowed."""
    return such(lambda value: least <= value <= most, expected or f"a number, {least} to {most}")


def some_bytes(value: str, where: str) -> None:
    """A size with its unit, of at least a byte."""
    if size_bytes(value, where) < 1:
        raise BadInput(where, f"found {value!r}", "at least 1B")


def duration(least_us: int, expected: str, most_us: float = float("inf")) -> Check:
    """A duration with its unit, within two bounds in microseconds, which are allowed."""

    def checked(value: str, where: str) -> None:
        if not least_us <= duration_us(value, where) <= most_us:
            raise BadInput(where, f"found {value!r}", expected)

    return checked


#: A path, and one that may be empty.
absolute = such(lambda path: path.startswith("/"), "an absolute path")
absolute_or_empty = such(lambda path: not path or path.startswith("/"), "an absolute path")
host_name = such(
    lambda name: is_host(name) and len(name) <= MAX_NODE_NAME,
    f"a host's name: letters, digits, - and dots, at most {MAX_NODE_NAME} characters",
)
cluster_name = such(is_cluster, f"the cluster's name: printable, at most {MAX_CLUSTER_NAME} characters")
network_or_empty = such(lambda network: not network or is_network(network), "a network, such as 10.0.0.0/24")
valid_port = number(1, _LAST_PORT, f"a port, 1 to {_LAST_PORT}")
port_or_zero = number(0, _LAST_PORT, f"a port, 0 to {_LAST_PORT}; 0: any that is free")
