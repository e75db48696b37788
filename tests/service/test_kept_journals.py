"""Journals of earlier code replay to the same decisions, and a service starts on them (``tests/kept/README.md``)."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from kit.journals import SCRIPT

from cosched.model.job import Job, JobState
from cosched.model.node import Node
from space_scheduler.machine import events as ev
from space_scheduler.plugins import resolve
from space_scheduler.replay import replay
from space_scheduler.service.core.journalled import JournalledCore
from space_scheduler.service.journal.journal import Journal
from space_scheduler.service.journal.reading import Saved, read_entries, read_runs, read_snapshot
from space_scheduler.service.journal.recovery import Recorded
from space_scheduler.service.journal.schema import VERSION, connect

KEPT = Path(__file__).parents[1] / "kept"


class Kept(NamedTuple):
    policy: str
    events: int
    passes: int
    instructions: int
    snapshots: int


JOURNALS = {
    "conservative-counted": Kept("conservative", 225, 75, 98, 2),
    "3dbf-hard-named": Kept("3dbf-hard", 278, 92, 102, 3),
    "3dbf-light-lab": Kept("3dbf-light", 55, 26, 18, 0),
}


def unpacked(name: str, folder: Path) -> Path:
    path = folder / "journal.db"
    path.write_bytes(gzip.decompress((KEPT / f"{name}.db.gz").read_bytes()))
    return path


@pytest.mark.parametrize("name", JOURNALS)
def test_it_replays_to_the_same_decisions(tmp_path: Path, name: str) -> None:
    kept, found = JOURNALS[name], replay(unpacked(name, tmp_path))
    assert found.agrees, str(found.difference)
    assert found.policies == (kept.policy,)
    assert (found.first_seq, found.events, found.passes) == (1, kept.events, kept.passes)
    assert found.instructions == kept.instructions


@pytest.mark.parametrize("name", JOURNALS)
def test_another_policy_would_be_found_out(tmp_path: Path, name: str) -> None:
    assert not replay(unpacked(name, tmp_path), lambda run: resolve("bestfit")).agrees


@pytest.mark.parametrize("name", JOURNALS)
def test_a_service_starts_on_it(tmp_path: Path, name: str) -> None:
    journal = Journal(unpacked(name, tmp_path))
    try:
        rules = journal.runs[-1].rules
        core = JournalledCore(journal, resolve(JOURNALS[name].policy), rules)
        core.state.validate()
        alive = set(core.records)
        core.take_in(ev.TimerDue(), journal.last_us + 1)
        core.take_in(ev.Boundary(), journal.last_us + 1)
        core.state.validate()
        core.commit()
        assert set(core.records) == alive
    finally:
        journal.close()


@pytest.mark.parametrize("name", JOURNALS)
def test_what_a_service_adds_replays_with_what_was_there(tmp_path: Path, name: str) -> None:
    """Decisions of two formats in one journal: those of before have starts alone, those of now have changes."""
    path = unpacked(name, tmp_path)
    journal, policy = Journal(path), JOURNALS[name].policy
    rules, at_us = journal.runs[-1].rules, journal.last_us + 1
    try:
        journal.begin_run(journal.runs[-1].anchor, "this one", policy, None, rules)
        core = JournalledCore(journal, resolve(policy), rules)
        core.take_in(ev.NodeJoined(Node("zebra", 64, 64 << 30)) if core.state.nodes() else ev.NodesJoined(64), at_us)
        number = core.submit(Job(0, 1, 60_000_000, at_us), SCRIPT, "ada", at_us, hold=False)
        core.decide(at_us)
        assert core.state.records[number].state is JobState.STARTING
        core.commit()
    finally:
        journal.close()
    with closing(sqlite3.connect(path)) as db:
        texts = [text for (text,) in db.execute("SELECT decision FROM decisions ORDER BY seq")]
        assert db.execute("PRAGMA user_version").fetchone() == (VERSION,)
    assert any('"starts":[{"job_id"' in text for text in texts[:-1])
    assert '"changes":[{"change":"start","job_id":' in texts[-1]
    found = replay(path)
    assert found.agrees, str(found.difference)
    assert found.passes > JOURNALS[name].passes


@pytest.mark.parametrize("name", JOURNALS)
def test_all_ways_to_recover_lead_to_one_state(tmp_path: Path, name: str) -> None:
    """From its first event, and from each snapshot, under the rules of its last start."""
    path = unpacked(name, tmp_path)
    with closing(connect(path, write=False)) as db:
        runs = read_runs(db, path)
        seqs = [seq for (seq,) in db.execute("SELECT seq FROM snapshots ORDER BY seq")]
        found = []
        for seq in [None, *seqs]:
            saved = None if seq is None else snapshot_at(path, seq)
            recorded = Recorded(path, saved, runs)
            for entry in read_entries(db, path, saved):
                recorded.apply(entry)
            found.append(msgspec.json.encode(recorded.snapshot(runs[-1].rules)))
    assert len(found) == 1 + JOURNALS[name].snapshots
    assert len(set(found)) == 1


def snapshot_at(path: Path, seq: int) -> Saved | None:
    with closing(sqlite3.connect(":memory:")) as db:
        with closing(sqlite3.connect(path)) as source:
            source.backup(db)
        db.execute("DELETE FROM snapshots WHERE seq != ?", (seq,))
        return read_snapshot(db, path, "DESC")
