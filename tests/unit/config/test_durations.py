"""Durations and sizes carry their unit."""

import pytest
from kit.snapshots import Snapshot, refusals

from cosched.config.units import duration_us, memory_text, size_bytes


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


#: None of them is a duration. Some units are nearly one.
NO_DURATIONS = ["", "5", "s", "-5s", "5 sec", "1e3s", "5s 3", "inf s", "nan s", "1e400s", "9" * 400 + "s"]
NO_DURATIONS += ["4m", "4M", "2hours", "3days", "5msec"]
NO_SIZES = ["512", "-1MB", "1 gb", "1 gig", "1 mb", "٣ MB", "inf MB", "9" * 400 + "B", f"{(1 << 60) + 512}B"]


def test_what_is_no_duration_and_no_size_is_refused_with_the_unit_that_is_meant(snapshot: Snapshot) -> None:
    durations = refusals(lambda text: duration_us(text, "here"), *NO_DURATIONS)
    snapshot(durations + "\n" + refusals(lambda text: size_bytes(text, "here"), *NO_SIZES))


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


def test_sizes_for_people() -> None:
    assert [memory_text(size) for size in (100, 1 << 10, 200 << 20, 3 << 29)] == [
        "100 B",
        "1 KiB",
        "200 MiB",
        "1.5 GiB",
    ]
