"""What the agent knows of each attempt at a job on this node, kept in ``state/attempts`` over its own restarts.

Not forced to disk: when the machine goes down so do the jobs, and a record that is torn then is dropped, saying so.
"""

import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from cosched.wire.messages import Exit, GroupEnded, GroupReport, Prepare, Prepared, ProgramEnded, Refused, Started
from node_agent.service.files import key

_log = logging.getLogger("cosched.agent")
Answer = Prepared | Started | Refused


class Attempt(msgspec.Struct):
    """One attempt. ``prepare`` is None for one that was never prepared here, or that only the guard knew of.

    ``answers``: what was answered to each order, by its number; ``asked_kill_us``: the grace of a Kill that was obeyed;
    ``elsewhere``: where the user has the script's output, by stream, if not in the spool.
    """

    job_id: int
    attempt: int
    boot_id: str
    cluster_id: str
    prepare: Prepare | None = None
    last_order: int = 0
    answers: dict[int, Answer] = {}
    elsewhere: dict[str, str] = {}
    commands: int = 0
    ran: bool = False
    exit: Exit | None = None
    error_tail: bytes = b""
    asked_kill_us: int | None = None
    empty: GroupEnded | None = None
    ended: GroupEnded | None = None
    forgotten: bool = False

    @property
    def key(self) -> str:
        """Its name in paths and logs."""
        return key(self.job_id, self.attempt)

    @property
    def open(self) -> bool:
        """Whether commands may be born here."""
        return self.prepare is not None and self.asked_kill_us is None and not self.forgotten

    def report(self, boot_id: str) -> GroupReport:
        """What a scheduler is told when the agent joins, in this boot of the machine."""
        state = "ended" if self.ended else "running" if self.ran else "prepared"
        return GroupReport(self.job_id, self.attempt, state, self.last_order, self.exit, self.boot_id != boot_id)

    def events(self) -> list[ProgramEnded | GroupEnded]:
        """What has happened and is not acknowledged (by Forget)."""
        if self.forgotten:
            return []
        program = [ProgramEnded(self.job_id, self.attempt, self.exit, self.error_tail)] if self.exit else []
        return [*program, *([self.ended] if self.ended else [])]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Attempt)


class Attempts:
    """All attempts, in memory and in files."""

    def __init__(self, directory: Path, boot_id: str) -> None:
        self._directory = directory
        self.boot_id = boot_id
        self._known: dict[tuple[int, int], Attempt] = {}
        self._unwritten: dict[tuple[int, int], Attempt] = {}
        self._problem = ""
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in sorted(directory.iterdir()):
            if path.name.startswith("."):
                continue  # being written when the agent was killed
            try:
                found = _decoder.decode(path.read_bytes())
            except msgspec.DecodeError as error:
                _log.warning("%s is dropped: %s", path, error)
                path.unlink()
                continue
            self._known[found.job_id, found.attempt] = found

    def __iter__(self) -> Iterator[Attempt]:
        return iter(list(self._known.values()))

    def get(self, job_id: int, attempt: int) -> Attempt | None:
        """The attempt, if it is known."""
        return self._known.get((job_id, attempt))

    def new(self, job_id: int, attempt: int, cluster_id: str) -> Attempt:
        """An attempt that was not known yet."""
        made = Attempt(job_id, attempt, self.boot_id, cluster_id)
        self._known[job_id, attempt] = made
        return made

    @property
    def problem(self) -> str:
        """Why what has changed could not be written down, the last time; empty where it could."""
        return self._problem if self._unwritten else ""

    def keep(self, attempt: Attempt) -> None:
        """Write down what has changed. Where that is not possible now (a full disk), it is known and written later."""
        path = self._directory / attempt.key
        temporary = self._directory / f".{attempt.key}"
        try:
            temporary.write_bytes(_encoder.encode(attempt))
            os.replace(temporary, path)
        except OSError as error:
            if not self._unwritten:
                _log.error("records cannot be written: %s: %s", path, error.strerror)
            self._problem = f"records cannot be written: {error.strerror}"
            self._unwritten[attempt.job_id, attempt.attempt] = attempt
            return
        if self._unwritten.pop((attempt.job_id, attempt.attempt), None) and not self._unwritten:
            _log.warning("records can be written again")

    def keep_again(self) -> None:
        """Try what could not be written."""
        for attempt in list(self._unwritten.values()):
            self.keep(attempt)
            if (attempt.job_id, attempt.attempt) in self._unwritten:
                return

    def drop(self, attempt: Attempt) -> None:
        """Know nothing of it any more."""
        self._known.pop((attempt.job_id, attempt.attempt), None)
        self._unwritten.pop((attempt.job_id, attempt.attempt), None)
        (self._directory / attempt.key).unlink(missing_ok=True)
