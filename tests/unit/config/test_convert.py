"""The place and the type that an error of plain data names come from the types, not from a library's message."""

from enum import Enum
from typing import Literal

import msgspec
import pytest
from kit.snapshots import Snapshot, refusals

from cosched.config.convert import convert


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Inner(msgspec.Struct):
    size: int


class Outer(msgspec.Struct):
    size: float | int | None = None
    pair: tuple[str, int] = ("", 0)
    inners: list[Inner] = []
    named: dict[str, int] = {}
    colour: Colour | None = None
    word: Literal["up", "down"] = "up"
    text: str | list[str] = ""


MISFITS: list[dict[str, object]] = [
    {"size": "x"}, {"pair": ["a"]}, {"pair": ["a", "b"]}, {"inners": [{"size": 1}, {"size": True}]}, {"inners": [{}]},
    {"named": {"a": 1, "b": None}}, {"colour": "reed"}, {"word": 5}, {"text": ["a", 1]}, {"text": {}},
]  # fmt: skip


def test_misfit_is_named_by_path_value_and_type(monkeypatch: pytest.MonkeyPatch, snapshot: Snapshot) -> None:
    monkeypatch.setattr(msgspec, "convert", _refusing)
    snapshot(refusals(lambda raw: convert(raw, Outer, "x"), *MISFITS))


def _refusing(_raw: object, _kind: object) -> None:
    raise msgspec.ValidationError("worded by another version of the library")
