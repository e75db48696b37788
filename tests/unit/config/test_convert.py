"""The place and the type that an error of plain data names come from the types, not from a library's message."""

from enum import Enum
from typing import Literal

import msgspec
import pytest

from cosched.config.convert import convert
from cosched.errors import BadInput


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


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ({"size": "x"}, "x: size: found 'x'; expected int | float | null"),
        ({"pair": ["a"]}, "x: pair: found ['a']; expected array of length 2"),
        ({"pair": ["a", "b"]}, "x: pair[1]: found 'b'; expected int"),
        ({"inners": [{"size": 1}, {"size": True}]}, "x: inners[1].size: found True; expected int"),
        ({"inners": [{}]}, "x: inners[0]: found {}; expected Object missing required field size"),
        ({"named": {"a": 1, "b": None}}, "x: named[...]: found {'a': 1, 'b': None}; expected int"),
        ({"colour": "reed"}, "x: colour: found 'reed'; expected one of red, blue; did you mean 'red'?"),
        ({"word": 5}, "x: word: found 5; expected one of up, down"),
        ({"text": ["a", 1]}, "x: text[1]: found 1; expected str"),
        ({"text": {}}, "x: text: found {}; expected str | array"),
    ],
)
def test_misfit_is_named_by_path_value_and_type(
    monkeypatch: pytest.MonkeyPatch, raw: dict[str, object], message: str
) -> None:
    monkeypatch.setattr(msgspec, "convert", _refusing)
    with pytest.raises(BadInput) as refused:
        convert(raw, Outer, "x")
    assert str(refused.value) == message


def _refusing(_raw: object, _kind: object) -> None:
    raise msgspec.ValidationError("worded by another version of the library")
