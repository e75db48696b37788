"""A copy of the journal put back: by root in another account's directory, and wherever the power fails meanwhile."""

import errno
import gzip
import os
import pwd
import resource
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kit.accounts import account
from kit.journals import Driven, copied

from cosched.errors import Failed
from space_scheduler.service.journal import backup, copies
from space_scheduler.service.journal.backup import back_up, restore
from space_scheduler.service.journal.journal import Journal
from space_scheduler.service.journal.schema import JournalRefused, JournalUnwritable, Lock, create, marked
from space_scheduler.service.rehearsal import _copy as copy_beside

KEPT = Path(__file__).parents[1] / "kept"
SECRET = b"root:secret"
#: Of the index of latest events, which every reader has made: a journal is longer.
INDEX_BYTES = 32_768


def named(path: Path, name: str) -> Path:
    """A journal that can be told from others by the name of its cluster."""
    create(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        db.execute("INSERT INTO meta VALUES ('cluster_id', ?)", (name,))
    return path


def name_of(path: Path) -> str:
    """Which journal a start finds there; empty: a fresh one."""
    journal = Journal(path)
    try:
        return journal.cluster_id
    finally:
        journal.close()


# --- root in the directory of another account -------------------------------------------------------------------------


@pytest.fixture
def owner() -> Iterator[pwd.struct_passwd]:
    with account() as user:
        yield user


@pytest.fixture
def journal(owner: pwd.struct_passwd) -> Path:
    """The journal of a service of that account."""
    state = Path(owner.pw_dir) / "state"
    state.mkdir(mode=0o700)
    path = named(state / "journal.db", "old")
    for each in (state, path):
        os.chown(each, owner.pw_uid, owner.pw_gid)
    return path


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """What root alone may read and write."""
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o600)
    return path


def test_what_root_puts_back_is_the_accounts(owner: pwd.struct_passwd, journal: Path, tmp_path: Path) -> None:
    """The copy may lie where root alone reads; root is root again afterwards."""
    groups = os.getgroups()
    aside = restore(journal, named(tmp_path / "copy.db", "new"))
    assert (os.geteuid(), os.getegid(), os.getgroups()) == (0, os.getgid(), groups)
    made = list(journal.parent.iterdir())
    assert {(each.stat().st_uid, each.stat().st_gid) for each in made} == {(owner.pw_uid, owner.pw_gid)}
    assert (name_of(journal), name_of(aside)) == ("new", "old")


def test_backup_by_root_leaves_no_file_of_roots_beside_the_journal(
    owner: pwd.struct_passwd, journal: Path, secret: Path, tmp_path: Path
) -> None:
    back_up(journal.parent, tmp_path / "backup")
    assert name_of(tmp_path / "backup" / "journal.db") == "old"
    assert {each.stat().st_uid for each in journal.parent.iterdir()} == {owner.pw_uid}
    (journal.parent / "members.json").symlink_to(secret)
    tmp_path.chmod(0o755)
    with pytest.raises(Failed, match="Permission denied"):
        back_up(journal.parent, tmp_path / "second")
    assert not list(tmp_path.glob("*second*"))


def test_a_link_in_the_locks_place_leads_root_nowhere(journal: Path, secret: Path, tmp_path: Path) -> None:
    journal.with_name("journal.db.lock").symlink_to(secret)
    with pytest.raises(JournalRefused, match=r"journal\.db\.lock cannot be opened"):
        restore(journal, named(tmp_path / "copy.db", "new"))
    assert secret.read_bytes() == SECRET


def test_no_lock_follows_a_link(secret: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    (tmp_path / "journal.db.lock").symlink_to(secret)
    with pytest.raises(JournalRefused, match=r"journal\.db\.lock cannot be opened"):
        Journal(path)
    assert secret.read_bytes() == SECRET


def test_a_link_put_in_the_copys_place_leads_root_nowhere(
    journal: Path, secret: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns the directory may swap what is being made there at any moment."""
    secret.write_bytes(b"")  # as good as a database
    copy = named(tmp_path / "copy.db", "new")
    connect = sqlite3.connect

    def swapped(database: Any, *args: Any, **kwargs: Any) -> sqlite3.Connection:
        if Path(str(database)).name == "journal.db.new":
            Path(database).unlink()
            Path(database).symlink_to(secret)
        connection: sqlite3.Connection = connect(database, *args, **kwargs)
        return connection

    monkeypatch.setattr(sqlite3, "connect", swapped)
    with pytest.raises(JournalUnwritable, match="cannot be put in its place"):
        restore(journal, copy)
    monkeypatch.undo()
    about = secret.stat()
    assert (about.st_uid, about.st_gid, about.st_size) == (0, 0, 0)
    assert name_of(journal) == "old"


# --- cut short --------------------------------------------------------------------------------------------------------


def stopped_cleanly(folder: Path) -> Path:
    return named(folder / "journal.db", "old")


def killed(folder: Path) -> Path:
    """What it was told last is in the file of its latest events alone."""
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    create(elsewhere / "journal.db")
    with closing(sqlite3.connect(elsewhere / "journal.db", isolation_level=None)) as db:
        db.execute("INSERT INTO meta VALUES ('cluster_id', 'old')")
        for each in elsewhere.iterdir():
            shutil.copy(each, folder)
    shutil.rmtree(elsewhere)
    assert (folder / "journal.db-wal").stat().st_size
    return folder / "journal.db"


def cut_before_each_step(folder: Path, cuts: Path, monkeypatch: pytest.MonkeyPatch, work: Callable[[], object]) -> None:
    """Keep the directory as it is before each change of a name in it, and at the end."""

    def keeping(do: Callable[..., object]) -> Callable[..., object]:
        def kept_then_done(*args: Any, **kwargs: Any) -> object:
            shutil.copytree(folder, cuts / str(len(list(cuts.iterdir()))))
            return do(*args, **kwargs)

        return kept_then_done

    cuts.mkdir()
    with monkeypatch.context() as patched:
        for step in ("link", "rename", "replace", "unlink"):
            patched.setattr(os, step, keeping(getattr(os, step)))
        work()
    shutil.copytree(folder, cuts / "end")


def start_finds(path: Path) -> str:
    """Which journal, or that a start refuses what is there; then the backup can be put back once more."""
    try:
        return name_of(path)
    except JournalRefused as refusal:
        words = str(refusal)
    assert "it is gone" in words
    for each in path.parent.glob("*.replaced.*"):
        each.rename(path.with_name(each.name.replace("replaced", "replaced-before")))
    restore(path, path.parents[2] / "copy.db")
    assert name_of(path) == "new"
    return "refused"


@pytest.mark.parametrize(("made", "refused"), [(stopped_cleanly, False), (killed, True)])
def test_a_power_cut_leaves_the_old_or_the_new_or_what_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, made: Callable[[Path], Path], refused: bool
) -> None:
    """Never nothing, in whose place a start would make an empty journal; nor one without its latest events."""
    folder, cuts = tmp_path / "state", tmp_path / "cuts"
    folder.mkdir()
    path, copy = made(folder), named(tmp_path / "copy.db", "new")
    cut_before_each_step(folder, cuts, monkeypatch, lambda: restore(path, copy))
    found = set()
    for cut in cuts.iterdir():
        found.add(start_finds(cut / "journal.db"))
    assert found == {"old", "new"} | ({"refused"} if refused else set())
    assert name_of(cuts / "end" / "journal.db") == "new"


@pytest.mark.parametrize("made", [stopped_cleanly, killed])
def test_what_was_in_its_place_is_whole(tmp_path: Path, made: Callable[[Path], Path]) -> None:
    path = made(tmp_path)
    aside = restore(path, named(tmp_path / "copy.db", "new"))
    assert (name_of(aside), name_of(path)) == ("old", "new")


# --- the numbers of jobs ----------------------------------------------------------------------------------------------


def next_number(path: Path) -> int:
    journal = Journal(path)
    try:
        return journal.next_job_id
    finally:
        journal.close()


def test_numbers_that_the_journal_before_has_given_are_not_given_again(tmp_path: Path) -> None:
    """Nodes still have the output of jobs that had them. So it goes on when another copy is put back later."""
    path = tmp_path / "journal.db"
    path.write_bytes(gzip.decompress((KEPT / "easy-desks.db.gz").read_bytes()))
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        last = db.execute("SELECT max(job_id) FROM jobs").fetchone()[0]
        db.execute("PRAGMA user_version = 99")  # of software that this one does not know
    assert last > 1
    for name in ("first", "second"):
        restore(path, named(tmp_path / f"{name}.db", name)).unlink()
        assert name_of(path) == name
        assert next_number(path) == last + 1


def test_a_journal_that_cannot_be_read_is_replaced_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    path.write_bytes(b"no journal" * 1000)
    restore(path, named(tmp_path / "copy.db", "new"))
    assert (name_of(path), next_number(path)) == ("new", 10_001), "how far its numbers went is not known"


# --- an older copy put in the journal's place by hand -----------------------------------------------------------------


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """A copy of the journal ``state/journal.db`` from before its last events."""
    path = tmp_path / "state" / "journal.db"
    path.parent.mkdir()
    service = Driven(path)
    for _ in range(20):
        service.step()
    copy = copied(path, tmp_path / "copy")
    while service.journal.next_job_id == Journal(copied(copy, tmp_path / "look")).next_job_id:
        service.step()
        shutil.rmtree(tmp_path / "look")
    service.crash()
    return copy


def by_hand(copy: Path, path: Path) -> None:
    for old in path.parent.glob("journal.db*"):
        if not old.name.endswith(".lock"):
            old.unlink()
    for new in copy.parent.iterdir():
        shutil.copy(new, path.parent / new.name)


def test_older_copy_put_back_by_hand_is_refused(older: Path, tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    by_hand(older, path)
    beside = tmp_path / "beside"
    beside.mkdir()
    for _ in range(2):  # a refused start changes nothing
        with pytest.raises(JournalRefused, match=r"an older copy is in its place.*--restore FILE.*--take-over"):
            Journal(path)
        with path.with_name("journal.db.lock").open() as lock, pytest.raises(JournalRefused, match="an older copy"):
            copy_beside(path, beside / "journal.db", marked(lock.fileno()))


def test_restored_journal_never_reuses_a_job_number(older: Path, tmp_path: Path) -> None:
    path = tmp_path / "state" / "journal.db"
    after = next_number(path)
    restore(path, older)
    assert next_number(path) == after
    again = Driven(path)
    again.step()
    again.crash()
    assert next_number(path) >= after


def test_restore_cut_short_before_its_mark_is_refused_and_can_be_done_again(
    older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state" / "journal.db"
    with monkeypatch.context() as cut:
        cut.setattr(Lock, "clear_mark", lambda _: None)
        restore(path, older)
    with pytest.raises(JournalRefused, match="an older copy"):
        Journal(path)
    for aside in path.parent.glob("*.replaced.*"):
        aside.unlink()
    restore(path, older)
    Journal(path).close()


def test_restore_whose_copy_cannot_reach_the_disk_leaves_the_journal_in_place(
    older: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state" / "journal.db"
    wal = path.with_name("journal.db-wal")
    with closing(sqlite3.connect(path)) as holder:  # so that there is a log of latest events, as after a kill
        holder.execute("PRAGMA user_version").fetchall()
        assert wal.exists()
        before = {file.name for file in path.parent.iterdir()}

        def fails(file: Path) -> None:
            if file.name.endswith(".new"):
                raise OSError(errno.EIO, "Input/output error")

        monkeypatch.setattr(copies, "sync", fails)
        monkeypatch.setattr(backup, "sync", fails)
        with pytest.raises(JournalUnwritable, match=r"the backup cannot be put in its place: .*Input/output error"):
            restore(path, older)
        assert {file.name for file in path.parent.iterdir()} == before
    Journal(path).close()


def test_new_journal_starts_after_removal_and_an_empty_copy_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    service = Driven(path)
    empty = tmp_path / "empty.db"
    create(empty)
    service.crash()
    for left in tmp_path.glob("journal.db*"):
        if not left.name.endswith(".lock"):
            left.unlink()
    shutil.copy(empty, path)  # as when all of it was in a log that was lost
    with pytest.raises(JournalRefused, match="an older copy"):
        Journal(path)
    path.unlink()
    orphan = tmp_path / "journal.db-wal"
    orphan.write_bytes(b"x" * 100)
    with pytest.raises(JournalRefused, match="it is gone"):
        Journal(path)
    orphan.unlink()
    shutil.copy(empty, path)
    with pytest.raises(JournalRefused, match="an older copy"):
        Journal(path)
    path.unlink()
    Journal(path).close()


def test_journal_with_torn_latest_events_is_refused_at_its_place(tmp_path: Path) -> None:
    """SQLite drops the damaged end of its log unsaid: what was acknowledged is missed by the mark."""
    path = tmp_path / "journal.db"
    service = Driven(path)
    for _ in range(20):
        service.step()
    copied(path, tmp_path / "crash")
    service.crash()
    shutil.copy(tmp_path / "crash" / "journal.db", path)
    log = (tmp_path / "crash" / "journal.db-wal").read_bytes()
    (tmp_path / "journal.db-wal").write_bytes(log[:-100])
    with pytest.raises(JournalRefused, match="it ends with event"):
        Journal(path)


# --- a full disk ------------------------------------------------------------------------------------------------------


@contextmanager
def no_file_longer_than(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_what_cannot_be_written_is_not_the_backups_fault_and_leaves_nothing(tmp_path: Path) -> None:
    path, copy = stopped_cleanly(tmp_path), named(tmp_path / "copy.db", "new")
    with (
        no_file_longer_than(INDEX_BYTES),
        pytest.raises(JournalUnwritable, match=r"journal\.db: the backup cannot be put in its place"),
    ):
        restore(path, copy)
    assert not list(tmp_path.glob("*.new*"))
    assert name_of(path) == "old"


def test_what_cannot_be_copied_for_a_check_is_not_the_journals_fault(tmp_path: Path) -> None:
    path, beside = stopped_cleanly(tmp_path), tmp_path / "beside"
    beside.mkdir()
    with no_file_longer_than(INDEX_BYTES), pytest.raises(Failed, match="cannot be copied") as found:
        copy_beside(path, beside / "journal.db", None)
    assert not isinstance(found.value, JournalRefused)
    assert not list(beside.iterdir())
