"""The journal: what it refuses, what a torn or damaged one becomes. Never silently wrong."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import datetime, tzinfo
from pathlib import Path

import msgspec
import pytest
from kit.journals import Driven, Raiser, copied, core_of, recovered, state_bytes
from kit.needs import ROOT
from kit.waiting import BOUND_S

from cosched.errors import Failed, NeedsRepair
from space_scheduler.machine.rules import MachineRules
from space_scheduler.service.core.journalled import JournalledCore
from space_scheduler.service.journal import schema
from space_scheduler.service.journal.jobs import history, look_up
from space_scheduler.service.journal.journal import Journal
from space_scheduler.service.journal.schema import JournalRefused, JournalUnwritable, connect


def driven(path: Path, steps: int = 60, **settings: object) -> Driven:
    made = Driven(path, **settings)  # type: ignore[arg-type]
    for _ in range(steps):
        made.step()
    return made


def test_cluster_epoch_and_instance(tmp_path: Path) -> None:
    first = Driven(tmp_path / "journal.db")
    cluster, run = first.journal.cluster_id, first.run
    first.crash()
    again = Driven(tmp_path / "journal.db")
    assert again.journal.cluster_id == cluster != ""
    assert (run.epoch, again.run.epoch) == (1, 2)
    assert run.instance != again.run.instance
    again.crash()
    assert (tmp_path / "journal.db").stat().st_mode & 0o777 == 0o600


def test_two_schedulers_cannot_have_one_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    code = "import sys; from pathlib import Path; from space_scheduler.service.journal.journal import Journal; Journal(Path(sys.argv[1])); print('has it', flush=True); sys.stdin.read()"  # noqa: E501
    other = subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "has it\n"
        with pytest.raises(JournalRefused, match=f"another scheduler \\(process {other.pid}\\)"):
            Journal(path)
    finally:
        other.kill()
        other.communicate(timeout=BOUND_S)
    Journal(path).close()  # who dies lets go


def test_what_is_no_journal_is_refused(tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.db"
    with closing(sqlite3.connect(foreign)) as db:
        db.execute("CREATE TABLE addresses (name)")
        db.commit()
    text = tmp_path / "text.db"
    text.write_text("Dear diary,\n" * 100)
    empty = tmp_path / "empty.db"
    empty.touch()
    for path, what in ((foreign, "not a journal of cosched"), (text, "no journal"), (empty, "it is empty")):
        before = path.read_bytes()
        with pytest.raises(JournalRefused, match=what):
            Journal(path)
        assert path.read_bytes() == before
    with pytest.raises(JournalRefused, match="no directory"):
        Journal(tmp_path / "nowhere" / "journal.db")
    (tmp_path / "lost.db-wal").write_bytes(b"x" * 100)
    with pytest.raises(JournalRefused, match=r"lost\.db-wal is still there"):
        Journal(tmp_path / "lost.db")


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    Journal(path).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute(f"PRAGMA user_version={schema.VERSION + 1}")
    words = f"its format is {schema.VERSION + 1}, this software knows up to {schema.VERSION}"
    with pytest.raises(JournalRefused, match=words):
        Journal(path)


def of_format_1(path: Path) -> Path:
    """A journal of the software of format 1 (20 steps of ``Driven``, seed 2), with its table ``launches``."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript((Path(__file__).parent / "journals" / "format_1.sql").read_text(encoding="utf-8"))
        db.execute("PRAGMA journal_mode=WAL")
    return path


def tables_and_format(path: Path) -> tuple[set[str], int]:
    with closing(sqlite3.connect(path)) as db:
        names = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        return names, db.execute("PRAGMA user_version").fetchone()[0]


def test_a_journal_of_format_1_opens_goes_on_and_has_no_launches_any_more(tmp_path: Path) -> None:
    path = of_format_1(tmp_path / "journal.db")
    assert tables_and_format(path)[0] - tables_and_format(made_now(tmp_path))[0] == {"launches"}
    made = Driven(path, seed=3, accepted={1, 2, 3, 4, 5})
    assert made.run.epoch == 2
    jobs = {number: record.state.value for number, record in made.core.records.items()}
    assert jobs == {2: "ending", 3: "running", 4: "starting", 5: "starting"}
    assert {state.value: count for state, count in made.core.ended.items()} == {"cancelled": 1}
    for _ in range(30):
        made.step()
    assert len(made.accepted) > 5
    made.crash()
    assert tables_and_format(path) == tables_and_format(made_now(tmp_path))
    core = recovered(path)
    assert isinstance(core, JournalledCore)
    assert state_bytes(core.state) == made.known[made.journal.seq]


def made_now(directory: Path) -> Path:
    path = directory / "now.db"
    Journal(path).close()
    return path


def test_who_only_reads_a_journal_of_format_1_leaves_it_so(tmp_path: Path) -> None:
    path = of_format_1(tmp_path / "journal.db")
    before = path.read_bytes()
    running, cancelled = look_up(path, 3), history(path, 10, None, None)
    assert running is not None
    assert [step.state.value for step in running.history] == ["queued", "starting", "running"]
    assert [(record.id, record.state.value) for record in cancelled] == [(1, "cancelled")]
    assert path.read_bytes() == before


def test_a_journal_of_format_1_that_cannot_be_written_stays_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_BUSY_S", 0.1)
    path = of_format_1(tmp_path / "journal.db")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(
            JournalUnwritable, match=f"cannot be brought to format {schema.VERSION}: database is locked"
        ):
            Journal(path)
    assert tables_and_format(path)[1] == 1
    Driven(path).crash()


def test_a_conversion_that_fails_again_and_again_leaves_one_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schema, "_BUSY_S", 0.1)
    path, copies = of_format_1(tmp_path / "journal.db"), f"journal.db.format1.{'?' * len('20261126T061500Z')}"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for day in range(3):
            monkeypatch.setattr(schema, "datetime", on_day(day))
            with pytest.raises(JournalUnwritable, match="cannot be brought"):
                Journal(path)
            assert len(list(tmp_path.glob("journal.db.format1*"))) == 1
    with monkeypatch.context() as cut:
        cut.setattr(schema, "_name_copies", lambda path: None)  # a power cut just before
        Journal(path).close()
    Journal(path).close()
    (kept,) = tmp_path.glob("journal.db.format1*")
    assert list(tmp_path.glob(copies)) == [kept]
    assert tables_and_format(kept)[1] == 1


def on_day(day: int) -> type[datetime]:
    class Someday(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Someday":
            return cls(2026, 11, 20 + day, tzinfo=tz)

    return Someday


def test_a_crash_while_it_is_made_leaves_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    (tmp_path / "journal.db.new").write_bytes(b"half of one")
    Journal(path).close()
    assert not (tmp_path / "journal.db.new").exists()


def test_what_was_written_comes_back(tmp_path: Path) -> None:
    made = driven(tmp_path / "journal.db", 150)
    made.crash()
    core = recovered(made.path)
    assert isinstance(core, JournalledCore)
    assert state_bytes(core.state) == made.known[made.journal.seq]
    assert core.records == made.core.records
    assert core.ended == made.core.ended
    assert sum(core.ended.values()) + len(core.records) == len(made.accepted)
    assert core.timer_us == made.core.timer_us


def test_cut_anywhere_it_is_what_it_was_at_a_commit(tmp_path: Path) -> None:
    made = driven(tmp_path / "journal.db", 50)
    torn = copied(made.path, tmp_path / "torn")
    made.crash()
    wal = torn.with_name("journal.db-wal")
    whole, main = wal.read_bytes(), torn.read_bytes()
    sizes = [known.wal_bytes for known in made.commits]
    chance = random.Random(1)
    cuts = {
        0,
        31,
        32,
        *(size + by for size in sizes[::9] for by in (-1, 0, 1)),
        *chance.choices(range(len(whole)), k=40),
    }
    for cut in sorted(cuts):
        torn.write_bytes(main)
        wal.write_bytes(whole[:cut])
        expected = [known for known in made.commits if known.wal_bytes <= cut]
        core = recovered(torn)
        assert isinstance(core, JournalledCore), core
        assert core.journal.seq == (expected[-1].seq if expected else 0)
        if expected:
            assert state_bytes(core.state) == expected[-1].state
            assert core.records == expected[-1].records


def test_a_torn_log_of_changes_is_a_prefix_too(tmp_path: Path) -> None:
    made = driven(tmp_path / "journal.db", 30)
    torn = copied(made.path, tmp_path / "torn")
    made.crash()
    wal = torn.with_name("journal.db-wal")
    whole, main = wal.read_bytes(), torn.read_bytes()
    chance = random.Random(2)
    for _ in range(40):
        at = chance.randrange(len(whole))
        torn.write_bytes(main)
        wal.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :])
        core = recovered(torn)
        assert isinstance(core, JournalledCore), core
        assert core.journal.seq == 0 or state_bytes(core.state) == made.known[core.journal.seq]


def test_a_damaged_main_file_is_refused_or_harmless(tmp_path: Path) -> None:
    made = driven(tmp_path / "journal.db", 120)
    made.crash()  # the last connection moves everything into the main file
    whole = made.path.read_bytes()
    assert not made.path.with_name("journal.db-wal").exists()
    chance = random.Random(3)
    refused, statuses = 0, []
    for _ in range(80):
        at = chance.randrange(len(whole))
        made.path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :])
        core = recovered(made.path)
        if isinstance(core, Failed):
            refused += 1
            assert "journal" in str(core)
            statuses.append(core.status)
        else:  # nothing that is read back: free space, an ended job, the list of starts' spare bytes
            assert state_bytes(core.state) == made.known[made.journal.seq]
            assert core.records == made.core.records
    assert refused >= 20
    assert set(statuses) == {NeedsRepair.status}


@pytest.mark.parametrize("index", ["transitions_of_job", "jobs_alive", "jobs_ended"])
def test_a_damaged_index_hides_nothing(tmp_path: Path, index: str) -> None:
    """Rows have checksums, what finds them has none: a job's steps would be fewer, and nobody would know."""
    made = driven(tmp_path / "journal.db", 120)
    made.crash()
    with closing(sqlite3.connect(made.path)) as db:
        (size,) = db.execute("PRAGMA page_size").fetchone()
        (page,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)).fetchone()
    whole = made.path.read_bytes()
    used = [at for at in range((page - 1) * size + 8, page * size) if whole[at]]
    chance, refused = random.Random(4), 0
    for at in chance.sample(used, min(60, len(used))):
        made.path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :])
        core = recovered(made.path)
        if isinstance(core, Failed):
            refused += 1
        else:
            assert core.records == made.core.records
    assert refused, "no damage was noticed"


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal that a crash has left."""
    made = driven(tmp_path_factory.mktemp("crashed") / "journal.db", 150)
    made.crash()
    return made.path


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE runs SET run = replace(run, '\"epoch\":1', '\"epoch\":7') WHERE epoch = 1",
        "UPDATE runs SET run = replace(run, '\"wall_us\":1', '\"wall_us\":2') WHERE epoch = 1",
        "UPDATE meta SET value = 'another' WHERE name = 'cluster_id'",
        "UPDATE events SET event = replace(event, 'JobSubmitted', 'JobSubmittee')",
        "UPDATE events SET now_us = now_us + 1 WHERE seq = 9",
        "UPDATE events SET note = 'x' WHERE seq = 9",
        "DELETE FROM events WHERE seq = 9",
        "DELETE FROM events WHERE seq = 1",
        "DELETE FROM decisions WHERE seq = (SELECT min(seq) FROM decisions)",
        "UPDATE decisions SET decision = replace(decision, 'bee', 'cat')",
        "DELETE FROM instructions WHERE seq = (SELECT min(seq) FROM instructions)",
        "UPDATE instructions SET instruction = replace(instruction, 'bee', 'cat')",
        "UPDATE jobs SET user = 'eve' WHERE ended IS NULL",
        "UPDATE jobs SET state = 'held' WHERE ended IS NULL",
        "UPDATE jobs SET submission = replace(submission, 'true', 'reboot') WHERE ended IS NULL",
        "UPDATE transitions SET state = 'running' WHERE job_id IN (SELECT job_id FROM jobs WHERE ended IS NULL)",
        "DELETE FROM jobs WHERE ended IS NULL",
        "UPDATE transitions SET cause = CAST(cause AS BLOB)",
        "UPDATE jobs SET user = CAST(user AS BLOB) WHERE ended IS NULL",
        "UPDATE events SET note = CAST(note AS BLOB) WHERE seq = 9",
        "UPDATE jobs SET ended = NULL",
        "UPDATE jobs SET state = '^Tiled' WHERE ended IS NOT NULL",
        "UPDATE runs SET run = 'x'",
    ],
)
def test_rows_that_are_not_what_was_written_are_refused(crashed: Path, tmp_path: Path, damage: str) -> None:
    path = copied(crashed, tmp_path / "damaged")
    with closing(sqlite3.connect(path)) as db:
        assert db.execute(damage).rowcount > 0
        db.commit()
    refused = recovered(path)
    assert isinstance(refused, JournalRefused), damage
    assert str(path) in str(refused)


def test_a_damaged_snapshot_is_refused(tmp_path: Path) -> None:
    made = driven(tmp_path / "journal.db", 40)
    made.core.save_if_due(now=True)
    made.crash()
    with closing(sqlite3.connect(made.path)) as db:
        db.execute("UPDATE snapshots SET now_us = now_us + 1")
        db.commit()
    refused = recovered(made.path)
    assert isinstance(refused, JournalRefused)
    assert "the snapshot at event" in str(refused)


def test_snapshots_let_old_events_go_and_nothing_else(tmp_path: Path) -> None:
    made = driven(tmp_path / "journal.db", 250, snapshot_every=20, keep_events=40)
    made.crash()
    with closing(connect(made.path, write=False)) as db:
        first, last = db.execute("SELECT min(seq), max(seq) FROM events").fetchone()
        snapshots = [row[0] for row in db.execute("SELECT seq FROM snapshots ORDER BY seq")]
        decided = db.execute("SELECT min(seq) FROM decisions").fetchone()[0]
        jobs = db.execute("SELECT count(*) FROM jobs").fetchone()[0]
    assert last == made.journal.seq > 200
    assert first == snapshots[0] + 1 <= last - 40
    assert first > last - 100
    assert decided >= first
    assert jobs == len(made.accepted)
    core = recovered(made.path)
    assert isinstance(core, JournalledCore)
    assert core.rebuilt.events < 40
    assert state_bytes(core.state) == made.known[last]
    assert core.records == made.core.records


def test_numbers_of_jobs_are_never_used_again(tmp_path: Path) -> None:
    made = driven(tmp_path / "journal.db", 60, snapshot_every=10, keep_events=10)
    for _ in range(3):
        made.crash()
        made.open()
        for _ in range(40):
            made.step()  # asserts that a number is new
    made.crash()
    assert made.accepted == set(range(1, len(made.accepted) + 1))


def test_who_has_been_killed_within_a_commit_is_found_at_a_commit(tmp_path: Path) -> None:
    made = driven(tmp_path / "journal.db", 20)
    before = made.journal.seq
    made.time.pass_by(1)
    child = os.fork()
    if child == 0:
        try:
            made.journal._db.execute("BEGIN IMMEDIATE")
            made.journal._db.execute("DELETE FROM events")
        finally:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    torn = copied(made.path, tmp_path / "torn")
    made.crash()
    core = recovered(torn)
    assert isinstance(core, JournalledCore)
    assert core.journal.seq == before


def test_a_journal_can_be_read_while_it_is_written(tmp_path: Path) -> None:
    made = driven(tmp_path / "journal.db", 20)
    with closing(connect(made.path, write=False)) as db:
        before = db.execute("SELECT count(*) FROM events").fetchone()[0]
        made.step()
        assert db.execute("SELECT count(*) FROM events").fetchone()[0] >= before
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            db.execute("DELETE FROM events")
    made.crash()


def test_an_upgrade_of_the_rules_keeps_the_state(tmp_path: Path) -> None:
    made = driven(tmp_path / "journal.db", 60)
    made.crash()
    journal = Journal(made.path)
    core = core_of(journal, Raiser(), MachineRules(kill_at_limit=False))
    journal.close()
    assert msgspec.json.encode(core.state.snapshot().jobs) == msgspec.json.encode(made.core.state.snapshot().jobs)
    shutil.rmtree(tmp_path)


def test_every_transaction_is_synced(tmp_path: Path) -> None:
    """With ``synchronous=NORMAL`` or ``OFF`` a crash of the machine takes back what users and agents were told."""
    made = driven(tmp_path / "journal.db", 5)
    db = made.journal._db
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,), "2 is FULL: the log is synced at every commit"
    made.crash()


_FIVE_TRANSACTIONS = """
import os, sys
from pathlib import Path
sys.path.insert(0, "tests")
from kit.journals import SCRIPT, Driven
from cosched.model.job import Job
made = Driven(Path(sys.argv[1]))
for _ in range(5):
    made.time.pass_by(1000)
    made.core.submit(Job(0, 1, 1000, 0), SCRIPT, "ann", made.clock.now_us())
    os.write(1, b"begin\\n")
    made.core.commit()
    os.write(1, b"written\\n")
"""


@pytest.mark.system("strace")
def test_the_disk_has_a_transaction_when_it_is_acknowledged(tmp_path: Path) -> None:
    """Seen in the kernel's calls: the last thing before the acknowledgement is a sync of what was appended."""
    trace = tmp_path / "trace"
    traced = ["strace", "-y", "-o", str(trace), "-e", "trace=write,pwrite64,fsync,fdatasync"]
    command = [*traced, sys.executable, "-c", _FIVE_TRANSACTIONS, str(tmp_path / "journal.db")]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=BOUND_S, check=False)
    if "ptrace" in ran.stderr and not trace.read_text().count("write("):
        pytest.skip(f"needs to trace a child: {ran.stderr.strip()}")
    assert ran.returncode == 0, ran.stderr
    parts = trace.read_text().split('"begin\\n"')[1:]
    assert len(parts) == 5
    for part in parts:
        of_log = [
            line.split("(")[0] for line in part.split('"written\\n"')[0].splitlines() if "journal.db-wal>" in line
        ]
        assert "pwrite64" in of_log, part
        assert of_log[-1] in ("fdatasync", "fsync"), of_log
