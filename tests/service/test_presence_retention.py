"""Who was at which desk is in the journal's events for as long as the settings say, and nowhere for longer."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from kit.drive import policy_named
from kit.journals import Driven, HandTime, state_bytes
from kit.loads import SECOND
from kit.waiting import wait_for

from cosched.config.cluster import cluster_config
from cosched.errors import BadInput
from cosched.model.node import Node, Owner
from space_scheduler.machine import events as ev
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.core.journalled import JournalledCore, Settings, caused
from space_scheduler.service.journal.schema import connect

HOUR = 3600 * SECOND
KEEP = 24 * HOUR


def visits(path: Path) -> list[tuple[int, str]]:
    """When the journal says that somebody came or went, oldest first."""
    with closing(connect(path, write=False)) as db:
        rows: list[tuple[int, str]] = db.execute(
            "SELECT now_us, event FROM events WHERE event LIKE '%Owner%' ORDER BY seq"
        ).fetchall()
    return rows


def visited(made: Driven) -> None:
    """Somebody comes to a desk and leaves it an hour later."""
    for event in (ev.OwnerCame("ant", Owner(250)), ev.OwnerLeft("ant")):
        made.time.pass_by(HOUR)
        made.core.take_in(event, made.clock.now_us())
        made.commit()


def test_visits_are_kept_for_a_day_and_no_longer_than_a_quarter_more(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", keep_us=KEEP)
    for _ in range(60):
        visited(made)
        now_us = made.clock.now_us()
        (oldest_us, _), *_ = visits(made.path)
        assert now_us - oldest_us <= KEEP + KEEP // 4 + 2 * HOUR
    assert made.clock.now_us() - visits(made.path)[0][0] >= KEEP - 2 * HOUR, "a day of them is there, for a replay"
    made.crash()
    before = state_bytes(made.core.state)
    made.open()
    assert isinstance(made.core, JournalledCore)
    assert state_bytes(made.core.state) == before


def test_on_a_cluster_where_nothing_more_happens_they_are_dropped_too(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", keep_us=KEEP)
    for _ in range(3):
        visited(made)
    left_us = made.clock.now_us()
    while made.clock.now_us() < left_us + KEEP - HOUR:
        made.time.pass_by(HOUR)
        made.core.save_if_due(made.clock.now_us())
    assert visits(made.path), "a day of them is there, for a replay"
    made.time.pass_by(KEEP // 4 + HOUR)
    made.core.save_if_due(made.clock.now_us())
    assert visits(made.path) == []
    assert made.core.save_us is None, "nothing is left to be dropped"
    before = state_bytes(made.core.state)
    made.crash()
    made.open()
    assert state_bytes(made.core.state) == before
    visited(made)
    assert len(visits(made.path)) == 2
    made.crash()


async def test_a_service_to_which_nothing_happens_wakes_for_it(tmp_path: Path) -> None:
    time = HandTime()
    host = CoreHost(
        Settings(tmp_path / "journal.db", policy_named("fcfs"), "fcfs", keep_us=KEEP, sources=time.sources())
    )
    await host.start()
    try:
        await host.post(ev.NodeJoined(Node("ant", 4, 8 << 30)))
        await host.post(ev.OwnerCame("ant", Owner(250)))

        def dropped_an_hour_later() -> bool:
            time.pass_by(HOUR)
            host.wake()
            return not visits(host.path)

        await asyncio.to_thread(wait_for, dropped_an_hour_later, "a journal without visits")
    finally:
        await host.close()


def test_nothing_of_them_is_left_between_the_rows(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", keep_us=KEEP)
    for _ in range(200):
        visited(made)
    made.time.pass_by(2 * KEEP)
    for _ in range(2):
        made.core.save_if_due(made.clock.now_us())
    assert visits(made.path) == []
    made.crash()
    assert b"OwnerCame" not in made.path.read_bytes()


def test_one_that_is_started_anew_each_hour_drops_them_too(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", keep_us=KEEP)
    for _ in range(40):
        visited(made)
        made.crash()
        made.open()
    assert made.clock.now_us() - visits(made.path)[0][0] <= KEEP + KEEP // 4 + 4 * HOUR


def test_without_the_setting_they_stay(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db")
    for _ in range(40):
        visited(made)
    assert len(visits(made.path)) == 80
    made.crash()


def test_nothing_is_dropped_beyond_a_snapshot_that_a_replay_can_begin_at(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", keep_us=KEEP)
    for _ in range(60):
        visited(made)
    made.crash()
    with closing(sqlite3.connect(made.path)) as db:
        first = db.execute("SELECT min(seq) FROM events").fetchone()[0]
        assert db.execute("SELECT min(seq) FROM snapshots").fetchone()[0] == first - 1


def test_the_story_of_a_job_names_no_desk_to_which_somebody_came() -> None:
    assert caused(ev.OwnerCame("desk3", Owner(250))) == "OwnerCame"
    assert caused(ev.OwnerLeft("desk3")) == "OwnerLeft"
    assert caused(ev.NodeLost("desk3")) == "NodeLost node desk3"


@pytest.mark.parametrize("keep", ["59min", "0s", "forever"])
def test_a_time_that_cannot_be_is_refused(keep: str) -> None:
    with pytest.raises(BadInput) as refused:
        cluster_config({"name": "c", "monitoring": {"keep_presence": keep}}, "cluster.yaml")
    assert "monitoring.keep_presence" in str(refused.value)
