"""Presence and contract: pure decisions, with the clock as an argument."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosched.linux.presence_reading import Reading
from cosched.model.node import Presence
from cosched.model.presets import Habit
from node_agent.policy.contract import Arm, Relax, Watched, decided, judged, unwatched

S = 1_000_000
MINUTE = Habit(60.0)
NOBODY = float("inf")


def test_a_fresh_agent_does_not_know_who_is_there_until_it_has_looked_for_long_enough() -> None:
    fresh = unwatched(100 * S)
    idle = [Reading("terminals", NOBODY)]
    assert judged(fresh, idle, 159 * S, MINUTE).presence is Presence.UNKNOWN
    assert judged(fresh, idle, 160 * S, MINUTE).presence is Presence.AWAY


def test_the_first_sign_counts_at_once_and_the_last_for_as_long_as_was_set() -> None:
    away = Watched(Presence.AWAY, "terminals", 0, "terminals")
    came = judged(away, [Reading("terminals", 0.1), Reading("sessions", NOBODY)], 1000 * S, MINUTE)
    assert came == Watched(Presence.PRESENT, "terminals", 1000 * S - S // 10, "terminals")
    still = judged(came, [Reading("terminals", NOBODY)], 1059 * S, MINUTE)
    assert still.presence is Presence.PRESENT
    assert judged(still, [Reading("terminals", NOBODY)], 1060 * S, MINUTE).presence is Presence.AWAY


def test_the_most_recent_sign_of_all_sources_is_the_one_that_counts() -> None:
    before = unwatched(0)
    readings = [
        Reading("terminals", 30.0),
        Reading("processes", 5.0),
        Reading("sessions", 200.0),
    ]
    assert judged(before, readings, 1000 * S, MINUTE)[:2] == (Presence.PRESENT, "processes")


@pytest.mark.parametrize(
    ("readings", "source"),
    [
        ([], "no source of presence"),
        ([Reading("terminals", None), Reading("sessions", None)], "no source of presence"),
        (
            [Reading("terminals", None, "/dev/pts: denied"), Reading("sessions", NOBODY)],
            "terminals: /dev/pts: denied",
        ),
        (
            [Reading("terminals", NOBODY), Reading("sessions", None, "utmp: denied")],
            "sessions: utmp: denied",
        ),
    ],
)
def test_a_source_that_fails_or_none_at_all_leaves_it_unknown_by_name(readings: list[Reading], source: str) -> None:
    found = judged(unwatched(0), readings, 1000 * S, MINUTE)
    assert found[:2] == (Presence.UNKNOWN, source)
    assert isinstance(decided(found.presence, 1000 * S, 10 * S, 1000 * S, 3 * S), Arm)


def test_a_source_that_fails_takes_nothing_from_one_that_sees_somebody() -> None:
    readings = [Reading("terminals", None, "denied"), Reading("processes", 0.0)]
    assert judged(unwatched(0), readings, 1000 * S, MINUTE).presence is Presence.PRESENT


def test_relaxed_for_a_few_looks_only_and_never_past_the_lease() -> None:
    assert decided(Presence.AWAY, 100 * S, 10 * S, 101 * S, 3 * S) == Relax(104 * S)
    assert decided(Presence.AWAY, 100 * S, 10 * S, 109 * S, 3 * S) == Relax(110 * S)
    assert decided(Presence.AWAY, 100 * S, 10 * S, 110 * S, 3 * S) == Arm("the scheduler has not been heard for 10 s")
    assert decided(Presence.AWAY, None, 10 * S, 110 * S, 3 * S) == Arm("no scheduler has been heard yet")


_readings = st.lists(
    st.builds(
        Reading,
        st.sampled_from(["terminals", "sessions", "processes"]),
        st.none() | st.floats(allow_nan=False),
        st.sampled_from(["", "broken"]),
    ),
    max_size=4,
)


@given(st.lists(st.tuples(_readings, st.integers(0, 100 * S)), max_size=12))
def test_nobody_is_away_before_he_was_unseen_for_long_enough(looks: list[tuple[list[Reading], int]]) -> None:
    """Whatever the sources say: away only where something watches, nothing failed, and the last sign is old."""
    now_us, watched = 0, unwatched(0)
    for readings, later_us in looks:
        now_us += later_us
        watched = judged(watched, readings, now_us, MINUTE)
        signs = [
            now_us - watched.last_sign_us,
            *(s.idle_s * S for s in readings if s.idle_s is not None and not s.error),
        ]
        if watched.presence is Presence.AWAY:
            assert min(signs) >= 60 * S - 1
            assert not any(reading.error for reading in readings)
            assert any(reading.idle_s is not None for reading in readings)
        elif watched.presence is Presence.PRESENT:
            assert min(signs) < 60 * S
        answer = decided(watched.presence, now_us, 10 * S, now_us, 3 * S)
        assert isinstance(answer, Relax) == (watched.presence is Presence.AWAY)


def test_in_working_hours_somebody_counts_as_there_whatever_is_seen() -> None:
    at_work = Habit(60.0, expected=True)
    for readings in ([Reading("terminals", NOBODY)], [], [Reading("terminals", None, "denied")]):
        assert judged(unwatched(0), readings, 1000 * S, at_work)[:2] == (Presence.PRESENT, "working hours")
    assert judged(unwatched(0), [Reading("terminals", 1.0)], 1000 * S, at_work)[:2] == (
        Presence.PRESENT,
        "terminals",
    )


def test_nobody_is_ever_at_a_dedicated_desk() -> None:
    nobodys = Habit(0.0, watched=False)
    assert judged(unwatched(0), [], 0, nobodys)[:2] == (Presence.AWAY, "dedicated")
    assert judged(unwatched(0), [Reading("terminals", 0.0)], S, nobodys).presence is Presence.AWAY
