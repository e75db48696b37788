"""What a user does and when is drawn from the seed; sessions come from a day's profile or a recorded trace."""

from itertools import pairwise, takewhile
from pathlib import Path

import msgspec
import pytest
from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.snapshots import Snapshot

from local_load.profile import INTERACTIVE_CALLS, Day, Distribution, built_in, find
from local_load.schedule import Act, Session, acts, always, by_day, recorded


def first(name: str, seed: int, until_s: float) -> list[Act]:
    return list(takewhile(lambda act: act.at_s < until_s, acts(find(name), seed)))


@pytest.mark.parametrize("name", built_in())
def test_the_same_seed_gives_the_same_schedule(name: str) -> None:
    assert first(name, 7, 600) == first(name, 7, 600)
    assert first(name, 7, 600) != first(name, 8, 600)


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", built_in())
def test_bursts_and_messages_add_up_to_the_targets(name: str, seed: int) -> None:
    profile = find(name)
    done = first(name, seed, 300)
    assert done == sorted(done, key=lambda act: act.at_s)
    sums = {kind: sum(act.amount for act in done if act.kind == kind) / 300 for kind in ("burst", "message")}
    assert sums["burst"] == pytest.approx(profile.cpu_share, rel=0.07)
    assert sums["message"] == pytest.approx(profile.network_bytes_per_s, rel=0.05)
    assert max(act.amount for act in done if act.kind == "burst") < 6


def test_bursts_and_interaction_alternate_and_interaction_is_of_several_kinds() -> None:
    done = [act for act in first("xwindows", 2, 1200) if act.kind != "message"]
    bursts = [i for i, act in enumerate(done) if act.kind == "burst"]
    assert len(bursts) > 100
    assert all(after - before > 1 for before, after in pairwise(bursts))
    keys = [act for act in done if act.kind == "key"]
    assert 1 < len(keys) / 1200 < 8  # a second: as people type
    assert {call for key in keys for call in key.calls} == set(find("xwindows").calls) <= set(INTERACTIVE_CALLS)
    assert {key.transfer_bytes for key in keys} == {4 << 10, 64 << 10, 1 << 20}


def test_a_user_without_targets_only_types() -> None:
    profile = msgspec.structs.replace(find("xwindows"), cpu_share=0.0, network_bytes_per_s=0.0)
    done = list(takewhile(lambda act: act.at_s < 300, acts(profile, 1)))
    assert {act.kind for act in done} == {"key"}


def test_sessions_of_a_day_are_where_its_profile_has_them() -> None:
    day = find("xwindows").day
    assert day is not None
    week = list(by_day(day, 1, 8.0, 7 * 86_400))
    assert week == list(by_day(day, 1, 8.0, 7 * 86_400))
    assert week != list(by_day(day, 2, 8.0, 7 * 86_400))
    assert len(week) > 10
    assert all(before.end_s <= after.begin_s for before, after in pairwise(week))
    hours = {int(8 + session.begin_s / 3600) % 24 for session in week}
    assert hours <= {hour for hour, rate in enumerate(day.arrivals_per_h) if rate}


def test_arrivals_are_as_many_as_the_profile_says() -> None:
    short = Distribution(kind="constant", mean=1.0)
    day = Day(arrivals_per_h=[2.0] * 24, stay_s=short)
    count = sum(1 for _ in by_day(day, 5, 0.0, 500 * 3600))
    assert count == pytest.approx(1000, rel=0.1)  # a Poisson count of 1000 has a deviation of 32


def test_somebody_who_is_always_there() -> None:
    assert list(always(30)) == [Session(0, 30)]


def trace(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text)
    return path


def test_a_recorded_trace_gives_its_sessions(tmp_path: Path) -> None:
    path = trace(
        tmp_path,
        "at_s,presence,node\n0,away,a\n0,present,b\n5,present,a\n7,unknown,a\n9.5,away,a\n9.5,away,b\n20,present,a\n"
        "30,present,a\n",
    )
    assert recorded(path, "a") == [Session(5, 9.5), Session(20, 30)]
    assert recorded(path, "b") == [Session(0, 9.5)]
    assert recorded(path, "c") == []


def test_a_trace_that_cannot_be_is_refused_by_its_line(snapshot: Snapshot, cosched: Call) -> None:  # noqa: F811
    snapshot.replay(cosched)
