"""The numbers in a log's header, as people have written them."""

import pytest

from cosched.workload.log import Header


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1024", 1024),
        ("1024 (8 per board)", 1024),
        ("1024(8 per board)", 1024),
        ("128-node machine", 128),
        ("1,024", 1024),
        ("1,152,000 in all", 1_152_000),
        ("512, 4 processors each", 512),
        ("512,4", 512),
        ("512,1280", 512),
        ("843480031.5", 843_480_031),
        ("-28800", -28_800),
        ("+3600", 3600),
        ("10k", None),
        ("10 K", None),
        ("1.5k", None),
        ("4 M", None),
        ("1e4", None),
        ("10x", None),
        ("about 100", None),
        ("", None),
        ("١٢", None),
    ],
)
def test_the_leading_number_of_an_entry(text: str, number: int | None) -> None:
    assert Header({"MaxNodes": text}).integer("MaxNodes") == number


def test_an_absent_entry_is_no_number() -> None:
    assert Header().integer("MaxNodes") is None
