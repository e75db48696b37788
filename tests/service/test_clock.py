"""Core time: never back, whatever the wall clock does; for people, the wall clock's word."""

from datetime import UTC, datetime

import pytest
from kit.journals import HOUR, HandTime
from kit.loads import SECOND

from cosched.model.time import FOREVER_US
from space_scheduler.service.journal.clock import Clock


def test_the_first_start_is_time_zero() -> None:
    time = HandTime()
    clock = Clock(sources=time.sources())
    assert clock.now_us() == 0
    time.pass_by(3 * SECOND)
    assert clock.now_us() == 3 * SECOND


@pytest.mark.parametrize("jump_us", [-HOUR, HOUR])
def test_a_step_of_the_wall_clock_moves_nothing(jump_us: int) -> None:
    time = HandTime()
    clock = Clock(sources=time.sources())
    time.pass_by(SECOND)
    time.wall_us += jump_us
    assert clock.now_us() == SECOND
    again = Clock([clock.anchor], last_us=SECOND, sources=time.sources())
    assert again.now_us() == SECOND


def test_a_restart_within_a_boot_goes_on_where_time_is() -> None:
    time = HandTime()
    first = Clock(sources=time.sources())
    time.pass_by(5 * HOUR)
    assert Clock([first.anchor], last_us=SECOND, sources=time.sources()).now_us() == 5 * HOUR


def test_after_a_reboot_the_wall_clock_says_how_long_it_was_off() -> None:
    time = HandTime()
    first = Clock(sources=time.sources())
    time.boot, time.boottime_us, time.wall_us = "second boot", 4 * SECOND, time.wall_us + 2 * HOUR
    second = Clock([first.anchor], last_us=HOUR, sources=time.sources())
    assert second.now_us() == 2 * HOUR
    time.pass_by(SECOND)
    assert second.now_us() == 2 * HOUR + SECOND


def test_after_a_reboot_with_a_clock_that_went_back_the_journal_is_the_floor() -> None:
    time = HandTime()
    first = Clock(sources=time.sources())
    time.boot, time.boottime_us, time.wall_us = "second boot", 4 * SECOND, 0
    second = Clock([first.anchor], last_us=HOUR, sources=time.sources())
    assert second.now_us() == HOUR


def test_time_never_goes_back_when_the_source_does() -> None:
    time = HandTime()
    clock = Clock(sources=time.sources())
    time.pass_by(10 * SECOND)
    assert clock.now_us() == 10 * SECOND
    time.boottime_us -= 4 * SECOND
    assert clock.now_us() == 10 * SECOND


def test_times_for_people_are_aware_and_by_the_clock_of_their_day() -> None:
    time = HandTime(wall_us=0)  # a clock that nobody had set
    first = Clock(sources=time.sources())
    time.boottime_us += HOUR
    time.wall_us = 1_700_000_000 * SECOND
    second = Clock([first.anchor], last_us=0, sources=time.sources())
    assert second.when(SECOND) == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)
    assert second.when(HOUR + SECOND) == datetime.fromtimestamp(1_700_000_001, UTC)
    assert second.when(HOUR).tzinfo is not None
    with pytest.raises(OverflowError):
        second.when(FOREVER_US)


def test_the_real_sources_move_forwards() -> None:
    clock = Clock()
    first = clock.now_us()
    assert 0 <= first <= clock.now_us()
    assert abs(clock.when(clock.now_us()).timestamp() - datetime.now(UTC).timestamp()) < 5
