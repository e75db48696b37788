"""Many calls, one order of answers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cosched.replicate.pool import Call, carry_out


def squared(number: int) -> int:
    return number * number


def broken(number: int) -> int:
    raise ZeroDivisionError(f"call {number}")


class Watch:
    """Remembers what was begun and how far it came."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int]] = []
        self.done: list[int] = []

    @contextmanager
    def __call__(self, what: str, total: int) -> Iterator[Callable[[int], None]]:
        self.begun.append((what, total))
        yield self.done.append


@pytest.mark.parametrize("workers", [1, 2])
def test_answers_come_in_the_order_of_the_calls(workers: int) -> None:
    watch = Watch()
    calls = [Call(squared, (number,), weight=number % 3) for number in range(10)]
    assert carry_out(calls, workers, watch, "squares") == [number * number for number in range(10)]
    assert watch.begun == [("squares", 10)]
    assert watch.done == list(range(1, 11))


@pytest.mark.parametrize("workers", [1, 2])
def test_a_call_that_fails_is_not_lost(workers: int) -> None:
    with pytest.raises(ZeroDivisionError, match="call 7"):
        carry_out([Call(squared, (2,)), Call(broken, (7,))], workers, Watch(), "both")


def test_no_calls_no_answers() -> None:
    assert carry_out([], 2, Watch(), "nothing") == []
