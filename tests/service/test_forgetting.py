"""A user is forgotten: no byte of the state directory has the name, and the journal recovers and replays without it.

The journals are real ones, of a core that lived with that user among others; a crash is a copy of the files before one
of the steps.
"""

import gzip
import os
import shutil
import sqlite3
import zlib
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.journals import SCRIPT, Driven, core_of, recovered
from kit.loads import SECOND

from cosched.config.cluster import ClusterConfig, cluster_config
from cosched.errors import BadInput, Failed
from cosched.model.job import Job, JobState
from space_scheduler.machine import events as ev
from space_scheduler.plugins import resolve
from space_scheduler.replay import replay
from space_scheduler.service.access.members import Members
from space_scheduler.service.access.tokens import Tokens
from space_scheduler.service.core.journalled import JournalledCore
from space_scheduler.service.forgetting import forget
from space_scheduler.service.journal import schema
from space_scheduler.service.journal.forgetting import FORGOTTEN
from space_scheduler.service.journal.jobs import history, look_up
from space_scheduler.service.journal.journal import Journal
from space_scheduler.service.journal.schema import JournalRefused, JournalUnwritable, connect

KEPT = Path(__file__).parents[1] / "kept"
ADA = "adalovelace"
PROGRAM = f"{ADA}:0123456789abcdef"
SECRET = "ada's password"
MINE = msgspec.structs.replace(
    SCRIPT, script="#!/bin/sh\n" + f"# {SECRET}\n" * 500, directory=f"/srv/{ADA}", environment={"K": SECRET}
)


def config(state: Path) -> ClusterConfig:
    return cluster_config({"name": "c", "state": str(state)}, "cluster.yaml")


def submitted(made: Driven, submitter: str, **fields: Any) -> int:
    job = Job(0, 1, 60 * SECOND, 0, memory_bytes=1 << 28, **fields)
    job_id = made.core.submit(job, MINE if submitter == ADA else SCRIPT, submitter, made.clock.now_us())
    made.commit()
    return job_id


def took_in(made: Driven, event: ev.Event, note: str = "") -> None:
    made.time.pass_by(SECOND)
    made.core.take_in(event, made.clock.now_us(), note=note)
    made.core.decide(made.clock.now_us())
    made.commit()


def lived(state: Path, **settings: Any) -> Driven:
    """A journal in which ada ran jobs, held one of bob's, paused a desk and had a program measured; and documents."""
    state.mkdir()
    made = Driven(state / "journal.db", **settings)
    for _ in range(20):
        made.step()
    held = submitted(made, "bob")
    for _ in range(5):
        job_id = submitted(made, ADA, user=1001, program=PROGRAM)
        took_in(made, ev.ProgramMeasured(PROGRAM, "comm"))
        took_in(made, ev.JobCancelled(job_id), f"by {ADA}")
    took_in(made, ev.JobHeld(held), f"by {ADA}")
    took_in(made, ev.NodeDrained("ant", f"paused: {ADA} has paused parallel work at this desk"))
    Tokens(state / "tokens.json").create(ADA, "laptop", 3600)
    Tokens(state / "tokens.json").create("bob", "laptop", 3600)
    Members(state / "members.json", []).revoke("user", ADA, ["0a"])
    return made


def texts(path: Path) -> Iterator[bytes]:
    """The bytes of a file; of a journal's snapshots unpacked, too."""
    yield path.read_bytes()
    if path.name == "journal.db":
        with closing(sqlite3.connect(path)) as db:
            yield from (zlib.decompress(row[0]) for row in db.execute("SELECT state FROM snapshots"))


def naming(state: Path, *words: str) -> list[str]:
    """The files of a state directory that have one of these words."""
    found = {
        each.name for each in state.iterdir() for text in texts(each) if any(word.encode() in text for word in words)
    }
    return sorted(found)


def test_forgotten_name_is_in_no_byte_of_the_state_directory(tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = lived(state)
    made.core.save_if_due(now=True)
    made.crash()
    assert naming(state, ADA, SECRET) == ["journal.db", "members.json", "tokens.json"]
    told = forget(config(state), "cluster.yaml", ADA)
    assert naming(state, ADA, SECRET) == []
    with closing(sqlite3.connect(made.path)) as db:
        # deleted cells are overwritten, but pages that SQLite rearranges keep remains: only a new file has none
        assert db.execute("PRAGMA freelist_count").fetchone() == (0,)
    assert told[0].endswith(": 5")
    assert [each.user for each in Tokens(state / "tokens.json").all()] == ["bob"]
    revocations = Members(state / "members.json", []).revocations()
    assert revocations == {"0a": ("user", FORGOTTEN)}, "it stays revoked"


def test_forgetting_leaves_state_numbers_and_other_stories_as_they_were(tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = lived(state)
    before, ended, next_id = made.core.records.copy(), made.core.ended.copy(), made.journal.next_job_id
    others = [each for each in history(made.path, 1000, None, None) if each.user != ADA]
    queue = made.core.state.snapshot()
    made.crash()
    forget(config(state), "cluster.yaml", ADA)
    assert history(made.path, 1000, None, None) == others
    made.open()
    assert (made.core.ended, made.journal.next_job_id) == (ended, next_id)
    held = [each for each in made.core.records.values() if each.history[-1].note == f"by {FORGOTTEN}"]
    assert len(held) == 1
    assert held[0].user == "bob"
    assert {job_id: (each.state, each.job) for job_id, each in made.core.records.items()} == {
        job_id: (each.state, each.job) for job_id, each in before.items()
    }
    now = made.core.state.snapshot()
    assert (now.programs, now.jobs) == ((), queue.jobs)
    assert now.nodes is not None
    assert [each.reason for each in now.nodes if each.drained and "paused" in each.reason] == [
        f"paused: {FORGOTTEN} has paused parallel work at this desk"
    ]
    for _ in range(30):
        made.step()
    made.crash()
    found = replay(made.path)
    assert found.agrees, str(found.difference)
    assert found.first_seq > 1
    assert found.events


def test_events_after_the_next_snapshot_stay_and_replay(tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = lived(state)
    made.core.save_if_due(now=True)
    last = made.journal.seq
    for _ in range(30):
        made.step()
    made.crash()
    forget(config(state), "cluster.yaml", ADA)
    found = replay(made.path)
    assert found.agrees, str(found.difference)
    assert (found.first_seq, found.events) == (last + 1, made.journal.seq - last)


def test_user_with_an_unfinished_job_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = lived(state)
    job_id = submitted(made, ADA)
    made.crash()
    before = {each.name: each.read_bytes() for each in state.iterdir() if not each.name.endswith(".lock")}
    with pytest.raises(Failed, match=rf"not ended: {job_id}; nothing has changed.*cosched cancel"):
        forget(config(state), "cluster.yaml", ADA)
    assert {each.name: each.read_bytes() for each in state.iterdir() if not each.name.endswith(".lock")} == before


def test_running_scheduler_or_missing_journal_is_refused(tmp_path: Path) -> None:
    made = lived(tmp_path / "state")
    with pytest.raises(JournalRefused, match="another scheduler"):
        forget(config(tmp_path / "state"), "cluster.yaml", ADA)
    made.crash()
    (tmp_path / "empty").mkdir()
    with pytest.raises(JournalRefused, match="no such file"):
        forget(config(tmp_path / "empty"), "cluster.yaml", ADA)
    assert list((tmp_path / "empty").iterdir()) == []


HOSTILE = ["", "..", "a\nb", "%", "the node", "itself", FORGOTTEN, "\udcff", "'; DROP TABLE jobs; --", "x" * 100_000]


def test_unknown_and_hostile_names_are_refused_with_the_nearest(tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = lived(state)
    took_in(made, ev.NodeDrained("bee", "dust"), "by the node")
    made.crash()
    before = naming(state, ADA)
    for name in HOSTILE:
        with pytest.raises(BadInput) as refused:
            forget(config(state), "cluster.yaml", name)
        assert len(str(refused.value)) < 300
        assert str(refused.value).isprintable()
    with pytest.raises(BadInput, match=f"did you mean '{ADA}'"):
        forget(config(state), "cluster.yaml", "adalovelac")
    assert naming(state, ADA) == before


def test_name_of_an_operator_without_jobs_is_known(tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = lived(state)
    took_in(made, ev.NodeDrained("bee", "dust"), "by gracehopper")
    made.crash()
    assert naming(state, "gracehopper")
    forget(config(state), "cluster.yaml", "gracehopper")
    assert naming(state, "gracehopper") == []


def test_name_in_texts_of_other_users_is_kept_and_reported(tmp_path: Path) -> None:
    state = tmp_path / "state"
    made = lived(state)
    theirs = msgspec.structs.replace(SCRIPT, script=f"#!/bin/sh\ncat /srv/{ADA}/data\n")
    job_id = made.core.submit(Job(0, 1, SECOND, 0), theirs, "bob", made.clock.now_us())
    took_in(made, ev.NodeDrained("bee", f"{ADA} has it open"))
    made.crash()
    schema.create(state / "journal.db.replaced.20260101T000000Z")
    shutil.copytree(state, tmp_path / "state.0.1.0.20260101T000000Z")
    told = "\n".join(forget(config(state), "cluster.yaml", ADA))
    assert f"in their texts: {job_id}:" in told
    assert "cosched node resume bee" in told
    assert f"rm -r {state}/journal.db.replaced.20260101T000000Z" in told
    assert f"rm -r {state}.0.1.0.20260101T000000Z" in told, "of an upgrade by the role"
    assert look_up(made.path, job_id) is not None


# --- cut short --------------------------------------------------------------------------------------------------------


def test_crash_at_any_step_leaves_before_or_after_and_another_run_completes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state, cuts = tmp_path / "state", tmp_path / "cuts"
    lived(state).crash()
    cuts.mkdir()

    def keep(_statement: str = "") -> None:
        shutil.copytree(state, cuts / str(len(list(cuts.iterdir()))))

    replace = os.replace

    def kept_and_replaced(*arguments: Any, **named: Any) -> None:
        keep()
        replace(*arguments, **named)

    def watched(path: Path, *, write: bool) -> sqlite3.Connection:
        connection = connect(path, write=write)
        connection.set_trace_callback(lambda sql: keep() if sql.split(" ")[0] in WRITES else None)
        return connection

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", kept_and_replaced)
        patched.setattr("space_scheduler.service.journal.journal.connect", watched)
        forget(config(state), "cluster.yaml", ADA)
    keep()
    whole = []
    for cut in cuts.iterdir():
        assert isinstance(recovered(cut / "journal.db", resolve("conservative")), JournalledCore)
        whole.append(len(history(cut / "journal.db", 1000, ADA, None)))
        try:
            forget(config(cut), "cluster.yaml", ADA)
        except BadInput:
            assert naming(cut, ADA, SECRET) == [], "it had been completed"
        assert naming(cut, ADA, SECRET) == []
        journal = Journal(cut / "journal.db")
        assert not journal.overwrite_due
        journal.close()
    assert set(whole) == {0, 5}, "all of the jobs or none"
    assert len(whole) > 10


WRITES = frozenset({"BEGIN", "DELETE", "UPDATE", "INSERT", "COMMIT", "VACUUM", "PRAGMA"})


def test_open_reader_blocks_overwrite_and_repeating_the_command_completes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    lived(state).crash()
    monkeypatch.setattr(schema, "_BUSY_S", 0.01)
    with closing(connect(state / "journal.db", write=False)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        with pytest.raises(JournalUnwritable, match="another process reads it"):
            forget(config(state), "cluster.yaml", ADA)
    assert "completed" in forget(config(state), "cluster.yaml", ADA)[0]
    assert naming(state, ADA, SECRET) == []


# --- journals of earlier code -----------------------------------------------------------------------------------------


def test_older_live_journal_is_converted_and_recovers_without_its_user(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(gzip.decompress((KEPT / "3dbf-light-lab.db.gz").read_bytes()))
    told = forget(config(tmp_path), "cluster.yaml", "root")
    assert f"rm -r {path}.format1." in "\n".join(told)
    assert not [text for text in texts(path) if b"root:" in text or b"by root" in text]
    journal = Journal(path)
    core = core_of(journal, resolve("3dbf-light"), journal.runs[-1].rules)
    core.state.validate()
    assert core.ended == {JobState.COMPLETED: 4, JobState.CANCELLED: 1, JobState.FAILED: 1}
    assert (journal.users(), journal.next_job_id) == (set(), 7)
    journal.close()


# --- the command ------------------------------------------------------------------------------------------------------


def test_command_forgets_and_ends_with_the_status_of_its_error(tmp_path: Path, cosched: Call) -> None:  # noqa: F811
    state, settings = tmp_path / "state", tmp_path / "cluster.yaml"
    lived(state).crash()
    listen = {"socket": str(tmp_path / "s")}
    settings.write_text(yaml.safe_dump({"name": "c", "state": str(state), "listen": listen, "operators": [ADA]}))
    unknown = cosched("scheduler", "--config", str(settings), "--forget", "adalovelac")
    assert (unknown.status, f"did you mean '{ADA}'?" in unknown.err) == (2, True)
    done = cosched("scheduler", "--config", str(settings), "--forget", ADA)
    assert (done.status, done.err) == (0, "")
    assert "tokens removed, which open nothing any more: 1" in done.out
    assert f"operators in {settings}" in done.out
    assert naming(state, ADA, SECRET) == []
    again = cosched("scheduler", "--config", str(settings), "--forget", ADA)
    assert again.status == 2
