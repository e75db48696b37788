"""Many calls, one order of answers."""

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from cosched.apps.replicate.pool import Call, carry_out


def squared(number: int) -> int:
    return number * number


def broken(number: int) -> int:
    raise ZeroDivisionError(f"call {number}")


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def long_answer(length: int, heard: bytes) -> bytes:
    return heard[:1] * length


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


def test_a_worker_that_is_killed_is_told() -> None:
    with pytest.raises(RuntimeError, match=r"a worker \(process \d+\) ended with status -9"):
        carry_out([Call(squared, (2,)), Call(killed, ())], 2, Watch(), "both")
    assert multiprocessing.active_children() == []


def test_one_that_fails_ends_the_others_in_the_midst_of_long_arguments_and_answers() -> None:
    """More than a pipe holds: nobody reads it any more."""
    long = [Call(long_answer, (1 << 24, b"x" * (1 << 20)), weight=2.0 - number / 100) for number in range(20)]
    with pytest.raises(ZeroDivisionError, match="call 7"):
        carry_out([*long[:3], Call(broken, (7,), weight=1.98), *long[3:]], 3, Watch(), "all")
    assert multiprocessing.active_children() == []


def test_the_place_where_a_call_failed_is_told() -> None:
    with pytest.raises(ZeroDivisionError) as found:
        carry_out([Call(broken, (7,))], 2, Watch(), "one")
    assert "in broken" in found.value.__notes__[0]
