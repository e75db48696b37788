"""What ranks of one job tell each other: the leader's word at each point, a change of the map, a wake-up."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class Action(IntEnum):
    """What the leader has the enabled ranks do at a point."""

    GO_ON = 0
    MEASURE = 1  # and perhaps move: what meters have counted goes to the leader, who then tells the change


@dataclass(frozen=True)
class Change:
    """From the ranks and weights of before to those after it, at a step. ``number`` and ``shares`` are the map's."""

    number: int
    shares: Mapping[str, int]
    old: tuple[int, ...]
    old_weights: tuple[float, ...]
    new: tuple[int, ...]
    new_weights: tuple[float, ...]
    step: int


@dataclass(frozen=True)
class WakeUp:
    """To a rank that sleeps: take part in the change, with the program's state and the last answer it was given.

    ``forms`` are of what will be moved.
    """

    change: Change
    state: Mapping[Any, Any]
    answer: tuple[int, bool] | None
    forms: tuple[object, ...]


class Release:
    """To a rank that sleeps: the others have left the ``with`` block."""
