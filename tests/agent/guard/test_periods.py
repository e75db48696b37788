"""The ceiling's periods, moved to where they should begin: by a kernel's rules in made time, and by itself."""

import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.guards import RealGuard, places
from kit.waiting import skip_if_busy, wait_for

from cosched.linux.cgroups import PERIOD_US, Cgroups
from cosched.linux.process import US_PER_S, boottime_us
from node_agent.guard.base.client import GuardRefused
from node_agent.guard.base.requests import MAX_LEASE_US, Refusal
from node_agent.guard.desk.periods import Periods

MakeGuard = Callable[..., RealGuard]
_HALF = 1.0  # CPUs, of two


class Kernel(Cgroups):
    """A ceiling's timer: at the end of each period it counts, and only then takes another length."""

    def __init__(self, first_us: int) -> None:
        self.length_us, self.next_us, self.count = PERIOD_US, first_us, 0
        self.began_us = first_us - PERIOD_US
        self.writes: list[tuple[int, int]] = []  # how long after a beginning, which length
        self.now_us = 0
        self.slow_us = 0  # how long a look takes
        self.busy = True

    def advance(self, now_us: int) -> None:
        while self.next_us <= now_us:
            self.began_us, self.next_us = self.next_us, self.next_us + self.length_us
            self.count += self.busy
        self.now_us = now_us

    def clock(self) -> int:
        return self.now_us

    def periods(self) -> int:
        self.advance(self.now_us + self.slow_us)
        return self.count

    def set_period(self, cpus: float, period_us: int) -> None:
        assert cpus == _HALF
        assert period_us >= PERIOD_US, "a shorter one would let more run"
        self.writes.append((self.now_us - self.began_us, period_us))
        self.length_us = period_us


Kernel.__abstractmethods__ = frozenset()


def made(first_us: int, kind: Any = Kernel) -> Kernel:
    """A kernel without the methods that are abstract: nothing here calls them."""
    kernel: Kernel = kind(first_us)
    return kernel


def keep(periods: Periods, kernel: Kernel, anchor_us: int | None) -> None:
    if anchor_us is None:
        periods.forget()
    else:
        periods.ask(anchor_us, kernel.now_us + US_PER_S)
    periods.keep()


def lived(kernel: Kernel, periods: Periods, anchor_us: int | None, until_us: int, late: Callable[[], int]) -> int:
    """Time goes by; how often the guard was woken for it."""
    kernel.advance(0)
    keep(periods, kernel, anchor_us)
    looks = 0
    while (due_us := periods.due_us) is not None and due_us < until_us:
        kernel.advance(max(due_us, kernel.now_us) + late())
        keep(periods, kernel, anchor_us)
        looks += 1
    return looks


def off_us(kernel: Kernel, anchor_us: int) -> int:
    late_us = (kernel.next_us - anchor_us) % PERIOD_US
    return min(late_us, PERIOD_US - late_us)


@given(
    first_us=st.integers(1, PERIOD_US),
    anchor_us=st.integers(-(10**12), 10**12),
    delays_us=st.lists(st.integers(0, 400), min_size=1, max_size=50),
)
def test_they_come_to_begin_where_turns_do(first_us: int, anchor_us: int, delays_us: list[int]) -> None:
    kernel = made(first_us)
    periods = Periods(kernel, lambda: _HALF, kernel.clock)
    at = iter(delays_us * 10_000)
    lived(kernel, periods, anchor_us, 10 * US_PER_S, lambda: next(at))
    assert off_us(kernel, anchor_us) <= 1_200
    assert kernel.length_us == PERIOD_US
    assert all(late_us <= 1_500 for late_us, _ in kernel.writes), "the quota is given again when all of it is there"
    assert periods.moves == len(kernel.writes) / 2


def test_where_they_are_right_nothing_is_written_and_it_is_looked_seldom() -> None:
    kernel = made(3_000)
    looks = lived(kernel, Periods(kernel, lambda: _HALF, kernel.clock), 3_000, 100 * US_PER_S, lambda: 50)
    assert kernel.writes == []
    assert looks < 100 / 4 * 35  # every four seconds for a period's length


def test_while_nothing_runs_no_period_is_counted_and_the_search_is_given_up() -> None:
    kernel = made(3_000)
    kernel.busy = False
    looks = lived(kernel, Periods(kernel, lambda: _HALF, kernel.clock), 0, 100 * US_PER_S, lambda: 50)
    assert kernel.writes == []
    assert looks < 100 / 4 * 110


def test_a_longer_period_ends_where_nobody_asks_for_it_any_more() -> None:
    kernel = made(3_000)
    periods = stretched(kernel, lambda: _HALF)
    keep(periods, kernel, None)
    assert (kernel.length_us, periods.due_us) == (PERIOD_US, None)


def test_what_was_asked_for_ends_by_itself() -> None:
    kernel = made(3_000)
    periods = Periods(kernel, lambda: _HALF, kernel.clock)
    assert periods.ask(0, 2_000) == 2_000
    assert periods.ask(0, 1 << 60) == MAX_LEASE_US
    periods.ask(0, 2_000)
    periods.keep()
    due_us = periods.due_us
    assert due_us is not None
    kernel.advance(2_000)
    periods.keep()
    assert periods.due_us is None
    with pytest.raises(Refusal, match="which was"):
        periods.ask(0, 1_999)


def stretched(kernel: Kernel, ceiling: Callable[[], float | None]) -> Periods:
    """In the midst of a move."""
    periods = Periods(kernel, ceiling, kernel.clock)
    while not kernel.writes:
        kernel.advance(kernel.now_us + 300)
        keep(periods, kernel, 0)
    assert kernel.length_us > PERIOD_US
    return periods


@pytest.mark.parametrize("ceiling", [None, 0.01])
def test_a_ceiling_that_the_limiter_has_changed_is_left_to_it(ceiling: float | None) -> None:
    """Little is given in longer periods: the usual one would let more run."""
    kernel = made(3_000)
    now: list[float | None] = [_HALF]
    periods = stretched(kernel, lambda: now[0])
    now[0] = ceiling
    writes = list(kernel.writes)
    keep(periods, kernel, 0)
    assert (kernel.writes, periods.due_us) == (writes, None)


@pytest.mark.parametrize("fails", ["periods", "set_period"])
def test_a_kernel_that_refuses_is_asked_again_later(fails: str) -> None:
    class Refusing(Kernel):
        def periods(self) -> int:
            if fails == "periods":
                raise OSError(5, "no")
            return super().periods()

        def set_period(self, cpus: float, period_us: int) -> None:
            raise OSError(5, "no")

    kernel = made(3_000, Refusing)
    periods = Periods(kernel, lambda: _HALF, kernel.clock)
    looks = lived(kernel, periods, 0, 10 * US_PER_S, lambda: 50)
    assert 5 < looks < 1_000
    keep(periods, kernel, None)


def test_a_beginning_that_was_seen_too_late_is_not_written_at() -> None:
    kernel = made(3_000)
    kernel.slow_us = 1_500
    lived(kernel, Periods(kernel, lambda: _HALF, kernel.clock), 0, 10 * US_PER_S, lambda: 50)
    assert kernel.writes == []


def test_nobody_looks_without_a_ceiling_or_where_nobody_asked() -> None:
    kernel = made(3_000)
    for anchor_us, ceiling in ((None, _HALF), (0, None), (0, 0.01)):  # so little is given in longer periods
        periods = Periods(kernel, lambda: ceiling, kernel.clock)  # noqa: B023
        keep(periods, kernel, anchor_us)
        assert periods.due_us is None
    assert kernel.writes == []


def test_a_kernels_own_periods_are_moved(make_guard: MakeGuard) -> None:
    guard = make_guard(contract={"cpu_ratio": 0.5})
    guard.prepare(1)
    guard.spawn(["sh", "-c", "while :; do :; done"], 1)
    begins_us = wait_for(lambda: beginnings_us(guard), "periods to be counted")
    anchor_us = begins_us[0] + PERIOD_US // 3

    def asked() -> None:
        guard.ask({"do": "periods", "begin_us": anchor_us, "until_us": boottime_us() + 9 * US_PER_S})

    def in_step() -> bool:
        try:
            asked()
        except GuardRefused as late:  # for ten seconds nobody got a CPU here: what was asked for is over
            if "which was" not in str(late):
                raise
            return False
        if not guard.status()["periods_moved"]:
            return False
        found = beginnings_us(guard)
        late_us = [(each - anchor_us + PERIOD_US // 2) % PERIOD_US - PERIOD_US // 2 for each in found]
        return bool(found) and abs(statistics.median(late_us)) < PERIOD_US / 5

    try:
        wait_for(in_step, "periods to begin where they should", 240.0)
    except AssertionError:
        skip_if_busy("a CPU when a period begins")  # the guard is woken too late, again and again, to tell
        raise


def beginnings_us(guard: RealGuard) -> list[int]:
    """When periods have begun, known to half a millisecond; none where too few were counted."""
    stat = next(place / "cpu.stat" for place in places(guard.group) if (place / "cpu.stat").exists())
    found = []
    end_us = boottime_us() + US_PER_S // 5
    with open(stat, "rb", buffering=0) as file:
        before, before_us = -1, 0
        while (now_us := boottime_us()) < end_us:
            fields = dict(line.split() for line in os.pread(file.fileno(), 4096, 0).decode().splitlines())
            count = int(fields["nr_periods"])
            if before >= 0 and count != before and now_us - before_us < 500:
                found.append(now_us)
            before, before_us = count, now_us
            time.sleep(0.0001)
    return found if len(found) > 3 else []
