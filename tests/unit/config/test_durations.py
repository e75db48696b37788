"""Durations and sizes carry their unit."""

import pytest

from cosched.config.units import duration_us, memory_text, size_bytes
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


@pytest.mark.parametrize(
    "text", ["", "5", "s", "-5s", "5 sec", "1e3s", "5s 3", "inf s", "nan s", "1e400s", "9" * 400 + "s"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="here"):
        duration_us(text, "here")


@pytest.mark.parametrize(
    ("text", "meant"), [("4m", "min"), ("4M", "min"), ("2hours", "h"), ("3days", "d"), ("5msec", "ms")]
)
def test_unknown_unit_of_time_suggests_the_one_that_is_meant(text: str, meant: str) -> None:
    with pytest.raises(BadInput, match=f"did you mean '{meant}'"):
        duration_us(text, "here")


@pytest.mark.parametrize(
    ("text", "expected_bytes"),
    [
        ("512B", 512),
        ("1kB", 1000),
        ("1K", 1024),
        ("200 MB", 200_000_000),
        ("1.5GiB", 3 << 29),
        ("2G", 2 << 30),
        ("1TB", 10**12),
    ],
)
def test_sizes(text: str, expected_bytes: int) -> None:
    assert size_bytes(text, "here") == expected_bytes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("512", "here: '512'; expected a size with its unit"),
        ("-1MB", "here: '-1MB'"),
        ("1 gb", "unknown unit 'gb' in '1 gb'.*did you mean 'GB'"),
        ("1 gig", "did you mean 'GiB'"),
        ("1 mb", "did you mean 'MB'"),
        ("٣ MB", "here: '٣ MB'"),
        ("inf MB", "here: 'inf MB'"),
        ("9" * 400 + "B", "a number of a size that can be"),
        (f"{(1 << 60) + 512}B", "a number of a size that can be"),
    ],
)
def test_sizes_that_are_none(text: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        size_bytes(text, "here")


def test_sizes_for_people() -> None:
    assert [memory_text(size) for size in (100, 1 << 10, 200 << 20, 3 << 29)] == [
        "100 B",
        "1 KiB",
        "200 MiB",
        "1.5 GiB",
    ]
