"""What the presets of presence mean at which moment."""

import pytest

from cosched.model.presets import DAYS, PRESETS, Habit, Hours, habit, hours_of

OFFICE = hours_of("08:00-20:00", ["mon", "tue", "wed", "thu", "fri"])
MON, FRI, SAT = 0, 4, 5
NOON, NIGHT = 12 * 60, 23 * 60


@pytest.mark.parametrize(
    ("preset", "weekday", "minute", "expected"),
    [
        ("desktop", MON, NOON, Habit(300.0)),
        ("desktop", MON, NIGHT, Habit(300.0)),
        ("desktop-hours", MON, NOON, Habit(300.0, expected=True)),
        ("desktop-hours", MON, NIGHT, Habit(60.0)),
        ("desktop-hours", SAT, NOON, Habit(60.0)),
        ("lab-night", MON, NOON, Habit(300.0)),
        ("lab-night", FRI, NIGHT, Habit(15.0, forgotten_sessions=True)),
        ("lab-night", SAT, NOON, Habit(15.0, forgotten_sessions=True)),
        ("dedicated", MON, NOON, Habit(0.0, watched=False)),
    ],
)
def test_a_preset_at_a_moment(preset: str, weekday: int, minute: int, expected: Habit) -> None:
    assert habit(preset, OFFICE, weekday, minute) == expected


@pytest.mark.parametrize("preset", PRESETS[:3])
def test_a_quiet_time_of_ones_own_replaces_the_presets(preset: str) -> None:
    for minute in (NOON, NIGHT):
        assert habit(preset, OFFICE, MON, minute, 7.0).away_after_s == 7.0


def test_hours_are_half_open_and_of_their_days_only() -> None:
    inside = [(day, minute) for day in range(7) for minute in range(24 * 60) if OFFICE.include(day, minute)]
    assert len(inside) == 5 * 12 * 60
    assert inside[0] == (0, 8 * 60)
    assert inside[-1] == (4, 20 * 60 - 1)


def test_hours_over_midnight_belong_to_the_day_on_which_they_begin() -> None:
    night = hours_of("22:00-06:00", ["fri"])
    assert night == Hours(22 * 60, 6 * 60, frozenset({4}))
    assert not night.include(FRI, 5 * 60)
    assert night.include(FRI, 22 * 60)
    assert night.include(SAT, 5 * 60)
    assert not night.include(SAT, 22 * 60)
    assert hours_of("00:00-24:00", DAYS).include(SAT, 24 * 60 - 1)


@pytest.mark.parametrize(
    ("span", "days", "complaint"),
    [
        ("8-20", ["mon"], "a time such as 08:00, not '8'"),
        ("08:00", ["mon"], "two times such as 08:00-20:00"),
        ("08:00-25:00", ["mon"], "a time from 00:00 to 24:00, not '25:00'"),
        ("08:61-20:00", ["mon"], "a time from 00:00 to 24:00, not '08:61'"),
        ("00:00-24:00x", ["mon"], "a time such as 08:00, not '24:00x'"),
        ("08:00-08:00", ["mon"], "two different times"),
        ("08:00-20:00", ["monday"], "not 'monday'"),
    ],
)
def test_hours_that_are_none_are_refused(span: str, days: list[str], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        hours_of(span, days)
