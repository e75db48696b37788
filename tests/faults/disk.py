"""The disk under a journal: what a crash leaves there, when it cannot be written, what damage is noticed.

The journal is real, SQLite on files in memory. A crash leaves the files as they are at that moment, its log included; a
*torn* write leaves a piece of the last transaction, with what was there before behind it, or garbage. While the disk
fails, a write ends in its midst (by the kernel's limit on the size of files, ``EFBIG``: SQLite's disk I/O error) or the
file has no room for another page (SQLite's *full*). Damage is done to a copy: it has to be refused, or what is read
from it has to be what was written.
"""

import resource
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from kit.journals import core_of

from cosched.errors import Failed
from faults.violation import Violation
from faults.world import World
from space_scheduler.machine.rules import MachineRules
from space_scheduler.policy.interface import Policy
from space_scheduler.service.journal.journal import Journal
from space_scheduler.service.journal.records import Facts, JobRecord

_NO_LIMIT_PAGES = 1_073_741_823
#: The main file, the log of what was written last (the third one of SQLite's is made again), and the mark.
_FILES = ("", "-wal", ".lock")
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
        """What may be left when the power fails between these: a piece of the transaction in the log, no mark of it."""
        old, new = before.get("-wal", b""), after.get("-wal", b"")
        if before.get("") != after.get(""):
            return after  # it was whole already: a checkpoint followed it
        old = old.ljust(len(new), b"\0")
        changed = [at for at in range(0, len(new), 512) if old[at : at + 512] != new[at : at + 512]]
        if not changed:
            return after
        cut = self.world.random.randint(changed[0], min(len(new), changed[-1] + 512) - 1)
        cut = max(cut, next(at for at in range(changed[0], len(new)) if old[at] != new[at]))  # synced bytes stay whole
        garbage = self.world.random.randbytes(64) if self.world.random.random() < 0.3 else b""
        found = new[:cut] + garbage + old[cut + len(garbage) :]
        end = cut + len(garbage) if self.world.random.random() < 0.5 else len(new)
        left = {**after, "-wal": found[: max(end, len(before.get("-wal", b"")))]}
        return left | {".lock": before[".lock"]} if ".lock" in before else left

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
        try:
            intact, damaged = Disk(self.world, directory / "intact.db"), Disk(self.world, directory / "damaged.db")
            intact.put(self.read())
            if chance.random() < 0.5:  # all of it in the main file, which has no checksums of its own
                Journal(intact.path).close()
            files = intact.read()
            known = Read(intact.path, policy, rules)
            which = chance.choice([suffix for suffix in files if files[suffix] and suffix != ".lock"])
            damaged.put({**files, which: self._damaged(files[which])})
            try:
                found = Read(damaged.path, policy, rules)
            except Failed as error:
                self.world.say(f"damage is refused: {error}")
                return
        finally:
            shutil.rmtree(directory, ignore_errors=True)
        if problem := found.differs(known, tail_lost=which == "-wal"):
            raise Violation(f"O2: a damaged journal is believed up to event {found.seq} of {known.seq}: {problem}")
        self.world.say(f"a damaged journal is read up to event {found.seq} of {known.seq}")

    def _damaged(self, data: bytes) -> bytes:
        """Cut, overwritten, or with one digit that is another."""
        chance = self.world.random
        at, how = chance.randrange(len(data)), chance.choice(("cut", "overwritten", "digit", "digit"))
        if how == "cut":
            return data[:at]
        if how == "overwritten":
            piece = min(chance.choice((1, 16, 600)), len(data) - at)
            return data[:at] + chance.randbytes(piece) + data[at + piece :]
        digits = [place for place in range(at, min(at + 5000, len(data))) if 0x30 <= data[place] <= 0x39]
        at = chance.choice(digits or [at])
        return data[:at] + bytes([0x30 + (data[at] + chance.randint(1, 9)) % 10]) + data[at + 1 :]


class Read:
    """What a scheduler reads from a journal: its state, and the events after the snapshot that it begins with."""

    def __init__(self, path: Path, policy: Policy, rules: MachineRules) -> None:
        """Raises ``Failed``."""
        journal = Journal(path)
        try:
            core = core_of(journal, policy, rules)
            self.seq = journal.seq
            self.who = journal.cluster_id, journal.runs
            saved = journal.snapshot()
            entries = journal.entries(saved)
            self.events = {each.seq: (each.now_us, each.event, each.note, each.decision) for each in entries}
            self.state = core.state.snapshot()
            self.jobs = core.records
            self.wrong = ""
            try:
                core.state.validate()
            except Exception as error:
                self.wrong = str(error)
        finally:
            journal.close()

    def differs(self, known: "Read", *, tail_lost: bool) -> str:
        """How it is not what was written; empty where it is.

        ``tail_lost``: a transaction without events may be missing, which has facts of jobs.
        """
        if self.wrong:
            return self.wrong
        if self.seq != known.seq:
            return "events are missing"
        jobs, known_jobs = (_without_facts(each.jobs) if tail_lost else each.jobs for each in (self, known))
        if (self.state, jobs) != (known.state, known_jobs):
            return "its state is another"
        (cluster_id, runs), (known_id, known_runs) = self.who, known.who
        if runs != known_runs[: len(runs)] or (runs and cluster_id != known_id):
            return "its starts are others"
        for seq, event in self.events.items():
            if seq in known.events and known.events[seq] != event:
                return f"event {seq} is another"
        return ""


def _without_facts(jobs: Mapping[int, JobRecord]) -> dict[int, JobRecord]:
    return {job_id: msgspec.structs.replace(record, facts=Facts()) for job_id, record in jobs.items()}
