"""Journals of earlier code replay to the same decisions, and a service starts on them (``tests/kept/README.md``)."""

import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest
from kit.journals import SCRIPT, core_of

from cosched.model.job import Job, JobState
from cosched.model.node import Node
from space_scheduler.machine import events as ev
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.plugins import resolve
from space_scheduler.replay import replay
from space_scheduler.service.journal.backup import restore
from space_scheduler.service.journal.journal import Journal
from space_scheduler.service.journal.reading import Reader, Saved
from space_scheduler.service.journal.recovery import Recorded
from space_scheduler.service.journal.schema import VERSION, JournalRefused, Lock, checksum, connect, format_of

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
    "easy-desks": Kept("easy", 267, 86, 74, 2),
}
#: Those whose decisions are of a format that knew starts alone.
OF_STARTS = tuple(name for name in JOURNALS if name != "easy-desks")


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
        core = core_of(journal, resolve(JOURNALS[name].policy), rules)
        core.state.validate()
        alive = set(core.records)
        core.take_in(ev.TimerDue(), journal.last_us + 1)
        core.take_in(ev.Boundary(), journal.last_us + 1)
        core.state.validate()
        core.commit()
        assert set(core.records) == alive
    finally:
        journal.close()


@pytest.mark.parametrize("name", OF_STARTS)
def test_what_a_service_adds_replays_with_what_was_there(tmp_path: Path, name: str) -> None:
    """Decisions of two formats in one journal: those of before have starts alone, those of now have changes."""
    path = unpacked(name, tmp_path)
    journal, policy = Journal(path), JOURNALS[name].policy
    rules, at_us = journal.runs[-1].rules, journal.last_us + 1
    try:
        journal.begin_run(journal.runs[-1].anchor, "this one", policy, None, rules)
        core = core_of(journal, resolve(policy), rules)
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
        journal = Reader(db, path)
        runs = journal.read_runs()
        seqs = [seq for (seq,) in db.execute("SELECT seq FROM snapshots ORDER BY seq")]
        found = []
        for seq in [None, *seqs]:
            saved = None if seq is None else snapshot_at(path, seq)
            recorded = Recorded(path, saved, runs)
            for entry in journal.entries(saved):
                recorded.apply(entry)
            found.append(msgspec.json.encode(without_moments_of_nodes(recorded.snapshot(runs[-1].rules))))
    assert len(found) == 1 + JOURNALS[name].snapshots
    assert len(set(found)) == 1


def without_moments_of_nodes(saved: SavedState) -> SavedState:
    """Snapshots of these journals do not say since when a node is in service, drained or lost; their events do."""
    nodes = None if saved.nodes is None else tuple(msgspec.structs.replace(each, since_us=None) for each in saved.nodes)
    return msgspec.structs.replace(saved, nodes=nodes)


def snapshot_at(path: Path, seq: int) -> Saved | None:
    with closing(sqlite3.connect(":memory:")) as db:
        with closing(sqlite3.connect(path)) as source:
            source.backup(db)
        db.execute("DELETE FROM snapshots WHERE seq != ?", (seq,))
        return Reader(db, path).snapshot()


def test_what_owners_have_said_is_of_the_last_format_before_it_had_a_number_of_its_own(tmp_path: Path) -> None:
    """Older software calls such a journal damaged; it is converted, and a copy is kept, like every older one."""
    path = unpacked("easy-desks", tmp_path)
    assert format_of(path) == 3
    with closing(sqlite3.connect(path)) as db:
        events = [event for (event,) in db.execute("SELECT event FROM events")]
    assert any('"JobSentAway"' in event for event in events)
    assert any('"bans":[' in event for event in events)


@pytest.mark.parametrize("change", [("JobEnded", "JobVanished"), ("completed", "evaporated")])
def test_what_this_software_does_not_know_is_called_newer_and_not_damaged(
    tmp_path: Path, change: tuple[str, str]
) -> None:
    """Of all rows the checksums agree, so what is there is what was written."""
    path = unpacked("easy-desks", tmp_path)
    Journal(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("DELETE FROM snapshots")
        rewritten(db, *change)
        db.commit()
    with pytest.raises(JournalRefused, match="of a newer format"):
        replay(path)


def rewritten(db: sqlite3.Connection, known: str, unknown: str) -> None:
    """As newer software would have written it: another word, and the checksums that go with it."""
    chain = 0
    rows = db.execute("SELECT seq, now_us, event, note, decision FROM events LEFT JOIN decisions USING (seq)")
    for seq, now_us, was, note, decision in rows.fetchall():
        of_it = "SELECT instruction FROM instructions WHERE seq = ? ORDER BY n"
        texts = [text for (text,) in db.execute(of_it, (seq,))]
        event = was.replace(known, unknown)
        chain = checksum(seq, now_us, event, note, decision, *texts, start=chain)
        db.execute("UPDATE events SET event = ?, checksum = ? WHERE seq = ?", (event, chain, seq))


@pytest.mark.parametrize("name", JOURNALS)
def test_what_is_converted_is_kept_and_can_be_put_back(tmp_path: Path, name: str) -> None:
    path = unpacked(name, tmp_path)
    with closing(sqlite3.connect(path)) as db:
        older = db.execute("PRAGMA user_version").fetchone()[0]
        before = list(db.iterdump())
    assert older == format_of(path) < VERSION
    Journal(path).close()
    assert format_of(path) == VERSION
    (kept,) = tmp_path.glob(f"journal.db.format{older}.*")
    assert kept.stat().st_mode & 0o777 == 0o600
    with closing(sqlite3.connect(kept)) as db:
        assert list(db.iterdump()) == before
        assert db.execute("PRAGMA user_version").fetchone() == (older,)
    Journal(path).close()
    assert list(tmp_path.glob("journal.db.format*")) == [kept], "only where something is converted"

    holder = Lock(path)
    with pytest.raises(JournalRefused, match="another scheduler"):
        restore(path, kept)
    holder.close()
    (tmp_path / "no-journal").write_text("hello, this is no journal at all, however long it is")
    with pytest.raises(JournalRefused, match="no journal"):
        restore(path, tmp_path / "no-journal")
    assert format_of(path) == VERSION
    aside = restore(path, kept)
    assert (format_of(path), format_of(aside)) == (older, VERSION)
    found = replay(path)
    assert found.agrees, str(found.difference)
    assert found.passes == JOURNALS[name].passes


def test_a_check_says_that_a_start_converts_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from cosched.apps.cli.main import main  # noqa: PLC0415

    path = unpacked("3dbf-light-lab", tmp_path)
    older, before = format_of(path), path.read_bytes()
    settings = tmp_path / "cluster.yaml"
    settings.write_text(
        f"name: lab\nstate: {tmp_path}\npolicy: 3dbf-light\nlisten: {{socket: {tmp_path}/s.sock}}\n"
        "contract: {mpl: 2}\nplace: spread\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["scheduler", "--config", str(settings), "--check"])
    out, err = capsys.readouterr()
    assert (ended.value.code or 0) == 0, err
    words = f"it is of format {older}: a start keeps a copy of it beside it and brings it to format {VERSION}"
    assert words in out
    assert path.read_bytes() == before
    assert not list(tmp_path.glob("journal.db.format*"))
