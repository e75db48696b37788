"""What strangers make grow, bounded: of what was written down the newest is kept."""

from collections.abc import Hashable
from typing import Final, TypeVar

MOST: Final = 10_000

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


def put(kept: dict[Key, Value], key: Key, value: Value) -> None:
    """Write a value down as the newest; the oldest goes where there are more than :data:`MOST`."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > MOST:
        del kept[next(iter(kept))]
