"""The profile against an array with one entry per microsecond."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from space_scheduler.profile import Profile

END = 80  # everything changes before this; the array's last entry stands for the rest of time


class Change(NamedTuple):
    start: int
    length: int
    delta: int


changes = st.builds(Change, st.integers(0, 40), st.integers(0, 20), st.integers(-4, 4))
change_lists = st.lists(changes, max_size=12)


def built(free_procs: int, made: list[Change]) -> tuple[Profile, list[int]]:
    """The profile after these changes, and the array."""
    profile, array = Profile(0, free_procs), [free_procs] * (END + 1)
    for start, length, delta in made:
        profile.change(start, start + length, delta)
        for time in range(start, start + length):
            array[time] += delta
    return profile, array


def first_hole(array: list[int], procs: int, length: int, after: int) -> int:
    """The earliest start from ``after`` on, by trying each; the machine is free of changes at the end."""
    start = after
    while any(free < procs for free in array[start : start + length] or array[-1:]):
        start += 1
    return start


@given(st.integers(0, 8), change_lists)
def test_it_is_the_array_in_runs_and_undone_changes_leave_it_as_it_was(free_procs: int, made: list[Change]) -> None:
    profile, array = built(free_procs, made)
    assert [profile.free_at(time) for time in range(END)] == array[:END]
    assert profile.lowest() == min(array)
    assert profile.times == sorted(set(profile.times))
    assert len(profile.times) == len(profile.free) <= 2 * len(made) + 1, "no change at a rim is kept twice"
    runs = [(time, free) for time, free in enumerate(array) if time == 0 or array[time - 1] != free]
    assert profile.normal() == runs
    other = profile.copy()
    for start, length, delta in reversed(made):
        other.change(start, start + length, -delta)
    assert other.normal() == [(0, free_procs)]
    assert profile.normal() == runs, "a copy is independent"


@given(change_lists, st.integers(1, 8), st.integers(1, 20), st.integers(0, 50), st.integers(0, 90))
def test_earliest_and_no_further_than_it_is_asked_to_look(
    made: list[Change], procs: int, length: int, after: int, until: int
) -> None:
    profile, array = built(8, made)
    until, hole = max(until, after), first_hole(array, procs, length, after)
    assert profile.earliest(procs, length, after) == hole
    assert profile.earliest(procs, length, after, until) == min(until, hole)


def test_earliest_of_a_job_that_never_fits() -> None:
    profile = Profile.of_running(0, 1, [(10, 1, 2)])
    assert profile.earliest(3, 5, 0) == 10
    with pytest.raises(ValueError, match="4 processors are never free together: 3 at the end"):
        profile.earliest(4, 5, 0)


@given(change_lists, st.integers(0, 50), change_lists)
def test_the_steps_lead_another_profile_to_the_same(made: list[Change], now: int, more: list[Change]) -> None:
    profile, _ = built(8, made)
    other, profile.steps = profile.copy(), []
    profile.advance(now)
    for start, length, delta in more:
        profile.change(now + start, now + start + length, delta)
    for step in profile.steps:
        other.take_step(step)
    assert (other.times, other.free) == (profile.times, profile.free)


@given(change_lists, st.integers(1, 8), st.integers(1, 20), st.integers(0, 50), st.integers(0, 50) | st.just(0))
def test_earlier_is_taking_out_and_placing_again(
    made: list[Change], procs: int, length: int, start: int, searched_from: int
) -> None:
    profile, array = built(8, [*made, Change(start, length, -procs)])
    before = profile.normal()
    array[start : start + length] = [free + procs for free in array[start : start + length]]
    fits_where_it_is = all(free >= procs for free in array[start : start + length])
    if fits_where_it_is:  # else it holds what is not there, and no answer is right
        searched_from = min(searched_from, start)
        hole = first_hole(array, procs, length, searched_from)
        assert profile.earlier(procs, length, start, searched_from) == hole
    assert profile.normal() == before


@given(change_lists, st.integers(1, 8), st.integers(1, 20), st.integers(0, 50), st.integers(0, 50))
def test_moving_up_is_giving_and_taking(made: list[Change], procs: int, length: int, start: int, earlier: int) -> None:
    earlier = min(earlier, start)
    profile, _ = built(8, [*made, Change(start, length, -procs)])
    plain = profile.copy()
    profile.move_up(start, earlier, length, procs)
    plain.change(start, start + length, procs)
    plain.change(earlier, earlier + length, -procs)
    assert profile.normal() == plain.normal()


@given(st.integers(0, 8), change_lists, st.integers(0, 50))
def test_advance_forgets_the_past_alone(free_procs: int, made: list[Change], now: int) -> None:
    profile, array = built(free_procs, made)
    profile.advance(now)
    assert profile.times[0] == now
    assert [profile.free_at(time) for time in range(now, END)] == array[now:END]


@given(st.integers(0, 8), st.lists(st.tuples(st.integers(1, 20), st.integers(1, 4)), max_size=8))
def test_of_running(free_procs: int, running: list[tuple[int, int]]) -> None:
    ends = sorted((end, job_id, procs) for job_id, (end, procs) in enumerate(running))
    profile = Profile.of_running(0, free_procs, ends)
    for time in range(25):
        assert profile.free_at(time) == free_procs + sum(procs for end, procs in running if end <= time)


def test_a_change_of_no_length_changes_nothing() -> None:
    profile = Profile(0, 4)
    profile.change(5, 5, -1)
    profile.change(7, 3, -1)
    assert profile.normal() == [(0, 4)]
