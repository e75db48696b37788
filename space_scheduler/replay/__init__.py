"""One core: the events of a live journal, decided again by the simulator's host, give the same instructions.

Where recovery applies recorded decisions, a replay asks the policy. The simulator's host (``simulator.host.drive``) has
a fresh core live through the recorded events with their times and batch boundaries, as it has one live through a
simulated machine; the answers are compared with the journal's instructions, in order, byte for byte. That holds for one
version of the code, which the journal names for every start of the service.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Final

import msgspec

from cosched.errors import Failed
from cosched.model.time import plain_seconds
from space_scheduler.machine.events import Event
from space_scheduler.machine.instructions import Instruction
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve, rules
from space_scheduler.policy.interface import Policy
from space_scheduler.service.core.journalled import RESUMED, caused
from space_scheduler.service.journal.reading import Entry, Reader, Run, Saved, text_of
from space_scheduler.service.journal.recovery import Recorded
from space_scheduler.service.journal.schema import JournalRefused, connect, readable
from space_scheduler.simulator.host import drive

_CONTEXT: Final = 5


class Difference(msgspec.Struct, frozen=True):
    """The first instruction that came out otherwise: the ``n``-th of the event ``seq``; None: there was none.

    ``before`` are the last events until then, in words, the one that differs included.
    """

    seq: int
    now_us: int
    event: str
    n: int
    recorded: str | None
    replayed: str | None
    before: tuple[str, ...]

    def __str__(self) -> str:
        lines = "\n  ".join(self.before)
        return (
            f"event {self.seq} ({self.event}) at {plain_seconds(self.now_us)} s, instruction {self.n}:\n"
            f"  the journal has {self.recorded or 'none'}\n  the replay has  {self.replayed or 'none'}\n"
            f"after\n  {lines}"
        )


class Replay(msgspec.Struct, frozen=True, kw_only=True):
    """How far the replay agrees. ``software`` are the versions that wrote what was replayed, oldest first.

    ``first_seq`` is the first event that was replayed: 1, or the first that the journal still has.
    """

    first_seq: int
    events: int
    passes: int
    instructions: int
    software: tuple[str, ...]
    policies: tuple[str, ...]
    difference: Difference | None

    @property
    def agrees(self) -> bool:
        """Whether every instruction came out as recorded."""
        return self.difference is None


def replay(path: Path, policy_of: Callable[[Run], Policy] | None = None) -> Replay:
    """Replay a journal, also that of a service that runs. ``policy_of`` gives another policy than the recorded name.

    Raises ``JournalRefused`` for a journal that is none or is damaged, and ``BadInput`` for a policy that is not here.
    """
    policy_of = policy_of or _named
    with readable(path), closing(connect(path, write=False)) as db:
        db.execute("BEGIN")  # one state of a journal that grows
        journal = Reader(db, path)
        runs, saved = journal.read_runs(), journal.snapshot(first=True)
        first = db.execute("SELECT min(seq) FROM events").fetchone()[0]
        if first == 1:
            saved = None
        if first is None or not runs:
            raise Failed(f"journal {path}: it has no events to replay")
        return _Replay(path, runs, saved, policy_of).over(journal.entries(saved))


def _named(run: Run) -> Policy:
    return resolve(run.policy, run.order)


class _Replay:
    def __init__(
        self, path: Path, runs: tuple[Run, ...], saved: Saved | None, policy_of: Callable[[Run], Policy]
    ) -> None:
        self.path = path
        self.policy_of = policy_of
        self.saved = saved
        first_seq = saved.seq + 1 if saved else 1
        self.all_runs = runs
        at = max(at for at, run in enumerate(runs) if run.first_seq <= first_seq)
        self.runs = runs[at:]
        self.run, *self.coming = self.runs
        self.parts = 0
        self.events = self.passes = self.instructions = 0
        self.last: deque[str] = deque(maxlen=_CONTEXT)

    def over(self, entries: Iterable[Entry]) -> Replay:
        """Take in all entries, to the end or to the first difference."""
        recorded = Recorded(self.path, self.saved, self.all_runs)
        difference = None
        try:
            for _, part in groupby(entries, self._part):
                # as a service that starts: it goes on from what is recorded
                asked = rules(self.run.eligibility)
                state = recorded.state(self.policy_of(self.run), self.run.rules, asked)
                self._live_through(state, _Lived(part, recorded))
        except _Differs as found:
            difference = found.difference
        replayed = self.runs[: len(self.runs) - len(self.coming)]
        return Replay(
            first_seq=self.saved.seq + 1 if self.saved else 1,
            events=self.events,
            passes=self.passes,
            instructions=self.instructions,
            software=tuple(dict.fromkeys(run.software for run in replayed)),
            policies=tuple(dict.fromkeys(run.policy for run in replayed)),
            difference=difference,
        )

    def _part(self, entry: Entry) -> int:
        """Which part an entry is of: one begins with each start of the service, and where it built its state again."""
        if entry.note == RESUMED or (self.coming and self.coming[0].first_seq <= entry.seq):
            self.parts += 1
        while self.coming and self.coming[0].first_seq <= entry.seq:
            self.run = self.coming.pop(0)
        return self.parts

    def _live_through(self, state: SchedulerState, lived: "_Lived") -> None:
        """Decide about one part, and compare."""

        def compare(_now_us: int, _event: Event, instructions: list[Instruction]) -> None:
            self._compare(lived.entry, [text_of(each) for each in instructions])

        try:
            drive(state, lived, compare)
        except (_Differs, JournalRefused):
            raise
        except (Failed, ValueError, KeyError, RuntimeError) as error:
            self._compare(lived.entry, [*lived.entry.instructions, f"an error: {error}".encode()])

    def _compare(self, entry: Entry, texts: list[bytes]) -> None:
        event = caused(entry.event)
        self.last.append(f"{entry.seq} at {plain_seconds(entry.now_us)} s: {event}")
        for n in range(max(len(texts), len(entry.instructions))):
            was = entry.instructions[n] if n < len(entry.instructions) else None
            now = texts[n] if n < len(texts) else None
            if was != now:
                raise _Differs(Difference(entry.seq, entry.now_us, event, n, _told(was), _told(now), tuple(self.last)))
        self.events += 1
        self.instructions += len(texts)
        self.passes += entry.decision is not None


class _Lived:
    """The world as the journal has it: what happened, whatever the core says now. ``entry`` is what happens."""

    entry: Entry

    def __init__(self, entries: Iterable[Entry], recorded: Recorded) -> None:
        self.entries = entries
        self.recorded = recorded

    def happenings(self) -> Iterator[tuple[int, Event]]:
        for entry in self.entries:
            self.entry = entry
            yield entry.now_us, entry.event
            self.recorded.apply(entry)

    def carry_out(self, instructions: list[Instruction], now_us: int) -> tuple[()]:
        return ()


class _Differs(Exception):
    def __init__(self, difference: Difference) -> None:
        super().__init__(str(difference))
        self.difference = difference


def _told(text: bytes | None) -> str | None:
    return None if text is None else text.decode()
