"""How many descriptors a process takes of those that it may have."""

import resource

import pytest

from cosched.linux.descriptors import raised_limit

NONE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "most", "has", "asks"),
    [
        (1024, 524_288, 16_384, 16_384, (16_384, 524_288)),
        (1024, 4096, 16_384, 4096, (4096, 4096)),
        (1024, NONE, 16_384, 16_384, (16_384, NONE)),
        (65_536, 524_288, 16_384, 65_536, None),
        (4096, 4096, 16_384, 4096, None),
        (NONE, NONE, 16_384, 16_384, None),
    ],
)
def test_soft_limit_is_raised_as_far_as_allowed_and_wanted(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, most: int, has: int, asks: tuple[int, int] | None
) -> None:
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: asked.append(limits))
    assert raised_limit(most) == has
    assert asked == ([asks] if asks else [])


def test_limit_that_cannot_be_raised_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(which: int, limits: tuple[int, int]) -> None:
        raise OSError("a container's filter")

    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    monkeypatch.setattr(resource, "setrlimit", refused)
    assert raised_limit(16_384) == 1024
