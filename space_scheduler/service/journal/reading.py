"""A journal's rows as values, each checked before it is believed. For any connection, also one that only reads."""

import re
import sqlite3
import zlib
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

import msgspec

from space_scheduler.machine.decision import Decision, decoded
from space_scheduler.machine.events import AnyEvent
from space_scheduler.machine.instructions import Instruction
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.service.journal.clock import Anchor
from space_scheduler.service.journal.records import Transition
from space_scheduler.service.journal.schema import JournalRefused, agrees, checksum, refused

_event: Final = msgspec.json.Decoder(AnyEvent)
_SEAL: Final = re.compile(r',"checksum":([0-9]+)}$')


class Chosen(msgspec.Struct, frozen=True):
    """A policy that an operator chose while the service ran, what holds under it, and from which event on."""

    first_seq: int
    policy: str
    order: str | None
    rules: MachineRules


class Run(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One start of the service: who it was, when, by which software and policy; its events begin with ``first_seq``.

    Read, it is a stretch of events under one policy: where others were ``chosen`` later, each is a run of its own.
    """

    epoch: int
    instance: str
    software: str
    anchor: Anchor
    policy: str
    order: str | None = None
    rules: MachineRules = MachineRules()
    first_seq: int = 1
    chosen: tuple[Chosen, ...] = ()
    eligibility: tuple[str, ...] = ()  # names of rules

    def parts(self) -> "tuple[Run, ...]":
        """One for each policy."""
        first = msgspec.structs.replace(self, chosen=())
        return (first, *(first.under(each) for each in self.chosen))

    def under(self, chosen: Chosen) -> "Run":
        """The same start, under another policy."""
        return msgspec.structs.replace(
            self, policy=chosen.policy, order=chosen.order, rules=chosen.rules, first_seq=chosen.first_seq
        )


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An event and what followed from it. ``instructions`` are JSON texts, as the replay compares them.

    ``transitions`` are (job id, the state before or "", the step).
    """

    seq: int
    now_us: int
    event: AnyEvent
    note: str = ""
    decision: Decision | None = None
    instructions: tuple[bytes, ...] = ()
    transitions: tuple[tuple[int, str, Transition], ...] = ()


class Saved(msgspec.Struct, frozen=True):
    """The core's state after the event ``seq``; ``chain`` is the checksum to go on from."""

    seq: int
    now_us: int
    chain: int
    state: SavedState


def text_of(instruction: Instruction) -> bytes:
    """An instruction as the journal has it."""
    return msgspec.json.encode(instruction)


def _read_run(text: str) -> Run:
    """A start; where nodes are shared and no edition of the rules is named, it is the first."""
    run, replace = msgspec.json.decode(text, type=Run), msgspec.structs.replace
    if '"edition":' in text:
        return run

    def first(rules: MachineRules) -> MachineRules:
        return rules if rules.sharing is None else replace(rules, edition=1)

    chosen = tuple(replace(each, rules=first(each.rules)) for each in run.chosen)
    return replace(run, rules=first(run.rules), chosen=chosen)


def sealed(run: Run, cluster_id: str) -> str:
    """A start as the journal has it: with a checksum, over the cluster's id too, as its last field.

    Rules are read from it, so a digit that is another would be believed. Older software leaves the field out of
    account, and its own rows have none.
    """
    body = msgspec.json.encode(run).decode()
    return f'{body[:-1]},"checksum":{checksum(cluster_id, body)}}}'


def _unsealed(text: str, cluster_id: str) -> str:
    """The start without its checksum. Raises ValueError where it is not the one that was written."""
    found = _SEAL.search(text)
    if found is None:
        return text
    body = text[: found.start()] + "}"
    if checksum(cluster_id, body) != int(found[1]):
        raise ValueError("a start does not agree with its checksum")
    return body


class Reader:
    """Reads a journal's rows as values, over a connection that is open, also one that only reads."""

    def __init__(self, db: sqlite3.Connection, path: Path) -> None:
        """``path``: where the journal is, for what is said of it."""
        self._db = db
        self.path = path

    def read_runs(self) -> tuple[Run, ...]:
        """The starts of the service, oldest first, and under each the policies that were chosen.

        Raises :class:`JournalRefused` where one is damaged, or the cluster's id is.
        """
        try:
            named = self._db.execute("SELECT value FROM meta WHERE name = 'cluster_id'").fetchone()
            texts = self._db.execute("SELECT run FROM runs ORDER BY epoch")
            runs = [_read_run(_unsealed(text, named[0] if named else "")) for (text,) in texts]
        except msgspec.ValidationError as error:
            raise refused(self.path, error) from None
        except (msgspec.DecodeError, sqlite3.DatabaseError, ValueError) as error:
            raise JournalRefused(f"journal {self.path}: its list of starts is damaged: {error}") from None
        return tuple(part for run in runs for part in run.parts())

    def snapshot(self, *, first: bool = False) -> Saved | None:
        """The last snapshot, or the first, or None. Raises :class:`JournalRefused` where it is damaged."""
        return next(self._snapshots(f"ORDER BY seq {'ASC' if first else 'DESC'} LIMIT 1"), None)

    def snapshots(self, first_seq: int) -> Iterator[Saved]:
        """All snapshots from that event on, in order. Raises :class:`JournalRefused`."""
        return self._snapshots(f"WHERE seq >= {first_seq} ORDER BY seq")

    def _snapshots(self, which: str) -> Iterator[Saved]:
        rows = self._db.execute(f"SELECT seq, now_us, chain, state, checksum FROM snapshots {which}")
        for seq, now_us, chain, blob, expected in rows:
            if not isinstance(blob, bytes) or checksum(seq, now_us, chain, blob) != expected:
                raise JournalRefused(f"journal {self.path}: the snapshot at event {seq} is damaged")
            try:
                yield Saved(seq, now_us, chain, msgspec.json.decode(zlib.decompress(blob), type=SavedState))
            except msgspec.DecodeError as error:
                raise JournalRefused(
                    f"journal {self.path}: the snapshot at event {seq} is of a newer format: {error}"
                ) from None

    def entries(self, after: Saved | None) -> Iterator[Entry]:
        """All events after a snapshot (None: from the first), in order, as a stream; transitions are left out.

        Raises :class:`JournalRefused` where one is damaged or missing.
        """
        seq, chain, now_us = (after.seq, after.chain, after.now_us) if after else (0, 0, 0)
        instructions = self._db.execute(
            "SELECT seq, instruction FROM instructions WHERE seq > ? ORDER BY seq, n", (seq,)
        )
        texts_of = ((each, [text for _, text in rows]) for each, rows in groupby(instructions, itemgetter(0)))
        upcoming = next(texts_of, None)
        rows = self._db.execute(
            "SELECT seq, now_us, event, note, checksum, decision FROM events LEFT JOIN decisions USING (seq)"
            " WHERE seq > ? ORDER BY seq",
            (seq,),
        )
        for found, at_us, event, note, expected, decision in rows:
            texts = upcoming[1] if upcoming and upcoming[0] == found else []
            if texts:
                upcoming = next(texts_of, None)
            whole = agrees(expected, found, at_us, event, note, decision, *texts, start=chain)
            if found != seq + 1 or not whole or at_us < now_us:
                raise JournalRefused(
                    f"journal {self.path}: damaged after event {seq}: event {found} is not what was written"
                )
            seq, now_us, chain = found, at_us, expected
            try:
                yield Entry(
                    seq=seq,
                    now_us=now_us,
                    event=_event.decode(event),
                    note=note,
                    decision=decoded(decision) if decision is not None else None,
                    instructions=tuple(text.encode() for text in texts),
                )
            except msgspec.DecodeError as error:
                raise JournalRefused(f"journal {self.path}: event {seq} is of a newer format: {error}") from None
        if upcoming:
            raise JournalRefused(f"journal {self.path}: event {upcoming[0]} is missing, its instructions are there")
