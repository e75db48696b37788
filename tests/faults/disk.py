"""The disk under a journal: what a crash leaves there, when it cannot be written, what damage is noticed.

The journal is real, SQLite on files in memory. A crash leaves the files as they are at that moment, its log included; a
*torn* write leaves a piece of the last transaction, with what was there before behind it, or garbage. While the disk
fails, a write ends in its midst (by the kernel's limit on the size of files, ``EFBIG``: SQLite's disk I/O error) or the
file has no room for another page (SQLite's *full*). Damage is done to a copy: it has to be refused, or what is read from it has to be
the beginning of what was written.
"""

import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cosched.errors import Failed
from faults.violation import Violation
from faults.world import World
from space_scheduler.machine.rules import MachineRules
from space_scheduler.policy.interface import Policy
from space_scheduler.service.core.journalled import JournalledCore
from space_scheduler.service.journal.journal import Journal

_NO_LIMIT_PAGES = 1_073_741_823
#: The main file and the log of what was written last; the third one of SQLite's is made again.
_FILES = ("", "-wal")
Files = dict[str, bytes]


class Disk:
    """What is under the journal at ``path``."""

    def __init__(self, world: World, path: Path) -> None:
        self.world = world
        self.path = path
        self._fails = ""
        self._fails_until_us = 0
        self._full = False
        self.failed_us = 0  # for how long in all

    # what a crash leaves

    def _file(self, suffix: str) -> Path:
        return self.path.with_name(self.path.name + suffix)

    def read(self) -> Files:
        """The files as they are."""
        return {suffix: self._file(suffix).read_bytes() for suffix in _FILES if self._file(suffix).exists()}

    def put(self, files: Files) -> None:
        """Have them be so. Nobody may have them open."""
        for suffix in _FILES:
            if suffix in files:
                self._file(suffix).write_bytes(files[suffix])
            else:
                self._file(suffix).unlink(missing_ok=True)
        self._file("-shm").unlink(missing_ok=True)

    def crash(self, journal: Journal) -> None:
        """Whoever has the journal is killed: what is written is left as it is."""
        files = self.read()
        journal.close()
        self.put(files)

    def torn(self, before: Files, after: Files) -> Files:
        """What may be left when the power fails between these: a piece of the transaction, in the log."""
        old, new = before.get("-wal", b""), after.get("-wal", b"")
        if before.get("") != after.get(""):
            return after  # it was whole already: a checkpoint followed it
        old = old.ljust(len(new), b"\0")
        changed = [at for at in range(0, len(new), 512) if old[at : at + 512] != new[at : at + 512]]
        if not changed:
            return after
        cut = self.world.random.randint(changed[0], min(len(new), changed[-1] + 512) - 1)
        garbage = self.world.random.randbytes(64) if self.world.random.random() < 0.3 else b""
        found = new[:cut] + garbage + old[cut + len(garbage) :]
        end = cut + len(garbage) if self.world.random.random() < 0.5 else len(new)
        return {**after, "-wal": found[: max(end, len(before.get("-wal", b"")))]}

    # when it cannot be written

    def fail(self, how: str, for_us: int) -> None:
        """Fail for so long: ``torn`` or ``full``."""
        self._fails, self._fails_until_us = how, self.world.now_us + for_us
        self.failed_us += for_us

    @contextmanager
    def writing(self, journal: Journal | None = None) -> Iterator[None]:
        """What is written meanwhile is written to this disk."""
        fails = self._fails if self.world.now_us < self._fails_until_us else ""
        if journal is not None and (fails == "full") != self._full:
            self._full = fails == "full"
            database: Any = journal._db
            pages = database.execute("PRAGMA page_count").fetchone()[0] if self._full else _NO_LIMIT_PAGES
            database.execute(f"PRAGMA max_page_count={pages}")
        if fails != "torn":
            yield
            return
        log = self._file("-wal")
        size = log.stat().st_size if log.exists() else 0
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + self.world.random.choice((0, 1, 100, 4096, 5000)), before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    def is_anew(self) -> None:
        """Somebody else has the journal open from now on."""
        self._full = False

    # damage

    def judge_damage(self, policy: Policy, rules: MachineRules) -> None:
        """Damage a copy of the files that a crash has left. Raises :class:`Violation` (O2)."""
        chance = self.world.random
        directory = self.path.with_name("damaged")
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir()
        intact, damaged = Disk(self.world, directory / "intact.db"), Disk(self.world, directory / "damaged.db")
        files = self.read()
        intact.put(files)
        known = _chains(intact.path)
        which = chance.choice([suffix for suffix in files if files[suffix]])
        data = bytearray(files[which])
        at = chance.randrange(len(data))
        if chance.random() < 0.5:
            del data[at:]
        else:
            piece = chance.choice((1, 16, 600))
            data[at : at + piece] = chance.randbytes(len(data[at : at + piece]))
        damaged.put({**files, which: bytes(data)})
        try:
            seq, chain, problem = _recovered(damaged.path, policy, rules)
        except Failed as error:
            self.world.say(f"damage is refused: {error}")
            return
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        if problem or known.get(seq) != chain:
            raise Violation(f"O2: a damaged journal is believed up to event {seq}: {problem or 'it was never so'}")
        self.world.say(f"a damaged journal is read up to event {seq} of {max(known)}")


def _chains(path: Path) -> dict[int, int]:
    """The checksum of each event, of the journal as it was written."""
    journal = Journal(path)
    try:
        return {0: 0, journal.seq: journal.chain, **dict(journal._db.execute("SELECT seq, checksum FROM events"))}
    finally:
        journal.close()


def _recovered(path: Path, policy: Policy, rules: MachineRules) -> tuple[int, int, str]:
    """Up to which event a journal is read, its checksum, and what is wrong with the state. Raises ``Failed``."""
    journal = Journal(path)
    try:
        core = JournalledCore(journal, policy, rules)
        try:
            core.state.validate()
        except Exception as error:
            return journal.seq, journal.chain, str(error)
        return journal.seq, journal.chain, ""
    finally:
        journal.close()
