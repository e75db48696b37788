"""Durations carry their unit."""

import pytest

from cosched.config.units import duration_us
from cosched.errors import BadInput


@pytest.mark.parametrize(
    ("text", "expected_us"),
    [
        ("250us", 250),
        ("1.5ms", 1500),
        ("90 s", 90_000_000),
        ("15min", 900_000_000),
        ("2h", 7_200_000_000),
        ("1d", 86_400_000_000),
    ],
)
def test_units(text: str, expected_us: int) -> None:
    assert duration_us(text, "here") == expected_us


@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "5 sec", "1e3s", "5s 3"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="here"):
        duration_us(text, "here")
