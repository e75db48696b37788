"""Where a journal has the name of a user, and what takes its place when that user is forgotten.

Whole jobs go, and whole stretches of events up to a snapshot, as with every retention: no event is written anew. What
stays is cleaned: snapshots (programs that were learnt of the user's jobs, causes, the words of a pause) and the steps
of other users' jobs (the operator that ordered them).
"""

import re
import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from space_scheduler.machine.snapshot import SavedState
from space_scheduler.service.journal.reading import Saved
from space_scheduler.service.journal.schema import checksum

#: In place of the name. No account has it.
FORGOTTEN: Final = "(forgotten)"
#: Of a journal's ``meta``: rows were deleted whose bytes may still be in the file.
OVERWRITE_DUE: Final = "overwrite due"
#: What follows a name: a program's digest (``api.submissions.program``), or the words of a pause (``desk.pause``).
_FOLLOWS: Final = r"(?=:[0-9a-f]{16}\b| has paused parallel work)"
_NAMED: Final = re.compile(rf'\Aby (\S+)\Z|(?<![^\s"])([^\s":]+){_FOLLOWS}')
#: What stands where names do, and is none.
_NO_NAMES: Final = frozenset({"itself", "somebody", FORGOTTEN, ""})
_json: Final = msgspec.json.Encoder()
Commands = list[tuple[str, list[tuple[Any, ...]]]]


class Removed(NamedTuple):
    """What was removed: jobs, and events (all up to ``last_seq``; 0: none). ``steps`` of others' jobs were cleaned."""

    jobs: int
    steps: int
    events: int
    last_seq: int


class Left(NamedTuple):
    """Where others wrote the name: jobs by number, in their scripts or results, and nodes, in the words of a drain."""

    jobs: list[int]
    nodes: list[str]


class Name:
    """A user's name in the journal's texts."""

    def __init__(self, user: str) -> None:
        """``user`` is not empty."""
        self.user = user
        spelled = "|".join({re.escape(user), re.escape(_json.encode(user).decode()[1:-1])})
        self._word = re.compile(rf"(?<![\w-])(?:{spelled})(?![\w-])")
        self._told = re.compile(rf'(?<![^\s"])(?:{spelled}){_FOLLOWS}')

    def stands_in(self, text: str) -> bool:
        """Whether the name is a word of the text, whoever wrote it there."""
        return self._word.search(text) is not None

    def replaced(self, text: str) -> str:
        """A note, a cause or a JSON text without the name where the software writes it."""
        return f"by {FORGOTTEN}" if text == f"by {self.user}" else self._told.sub(FORGOTTEN, text)

    def cleaned(self, saved: Saved) -> Saved:
        """A snapshot without the name, and without what was learnt of the user's programs."""
        programs = tuple(each for each in saved.state.programs if not each[0].startswith(f"{self.user}:"))
        text = self.replaced(_json.encode(msgspec.structs.replace(saved.state, programs=programs)).decode())
        return msgspec.structs.replace(saved, state=msgspec.json.decode(text, type=SavedState))


def users(db: sqlite3.Connection, snapshots: Iterable[Saved]) -> set[str]:
    """The names of the users that a journal knows."""
    found = {row[0] for row in db.execute("SELECT DISTINCT user FROM jobs")}
    for text in _texts(db, snapshots):
        found.update(by or other for by, other in _NAMED.findall(text))
    return found - _NO_NAMES


def _texts(db: sqlite3.Connection, snapshots: Iterable[Saved]) -> Iterator[str]:
    texts = db.execute(
        "SELECT note FROM transitions UNION SELECT note FROM events"
        " UNION SELECT event FROM events WHERE event LIKE '%has paused%' OR event LIKE '%\"program\"%'"
    )
    yield from (row[0] for row in texts)
    yield from (_json.encode(each.state).decode() for each in snapshots)


def last_event(db: sqlite3.Connection, name: Name) -> int:
    """The last event of a user's jobs, or that has the name, or of which a decision has it; 0: there is none."""
    db.create_function("names", 1, name.stands_in, deterministic=True)
    query = (
        "SELECT max(seq) FROM (SELECT max(seq) AS seq FROM events WHERE names(event) OR names(note)"
        " UNION ALL SELECT max(seq) FROM decisions WHERE names(decision)"
        " UNION ALL SELECT max(seq) FROM instructions WHERE names(instruction)"
        " UNION ALL SELECT max(seq) FROM transitions WHERE job_id IN (SELECT job_id FROM jobs WHERE user = ?))"
    )
    return int(db.execute(query, (name.user,)).fetchone()[0] or 0)


def steps_cleaned(db: sqlite3.Connection, name: Name) -> list[tuple[Any, ...]]:
    """The steps of other users' jobs that have the name: note, cause and checksum without it, and the step's number."""
    rows = db.execute(
        "SELECT id, seq, job_id, now_us, was, state, reason, cause, note FROM transitions"
        " WHERE job_id NOT IN (SELECT job_id FROM jobs WHERE user = ?)",
        (name.user,),
    )
    found = []
    for step, *row, cause, note in rows:
        clean = name.replaced(cause), name.replaced(note)
        if clean != (cause, note):
            found.append((*clean, checksum(*row, *clean), step))
    return found


def left(db: sqlite3.Connection, name: Name, last: Saved | None) -> Left:
    """Where the name still is, because others wrote it or a word is spelled like it."""
    db.create_function("names", 1, name.stands_in, deterministic=True)
    rows = db.execute(
        "SELECT job_id FROM jobs WHERE names(submission) OR names(record)"
        " UNION SELECT job_id FROM transitions WHERE names(note) OR names(cause) ORDER BY job_id"
    )
    nodes = last.state.nodes or () if last is not None else ()
    return Left([row[0] for row in rows], [each.node.name for each in nodes if name.stands_in(each.reason)])
