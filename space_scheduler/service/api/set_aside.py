"""Nodes, jobs, launches and policies that are set aside, as one list: by what, since when, and what brings each back.

The list is a value made from what the service publishes (its view) and from what nodes said last. Each source of it is
a function in :data:`_SOURCES`. Operators are told all; a user, what the API tells everybody of service and nodes, and
jobs of the user's own (:func:`for_caller`).
"""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import msgspec

from cosched.config.cluster import ClusterConfig
from cosched.model.job import JobState
from cosched.wire.api import SetAsideDoc
from cosched.wire.messages import EXPIRED, NO_GUARD, NO_ROOM
from space_scheduler.eligibility.set_aside import AGAIN
from space_scheduler.reasons import Why
from space_scheduler.service.access.callers import Caller
from space_scheduler.service.api.documents import When, iso
from space_scheduler.service.api.stalled import stalled_on
from space_scheduler.service.journal.records import View
from space_scheduler.service.launch.nodes import ASLEEP, CLOSED, NodeBook, NodeEntry
from space_scheduler.service.launch.owners import PAUSED, STALLED, by_scheduler, public_reason

#: Kinds whose rows everybody may have, as of ``/v1/cluster`` and ``/v1/nodes``; others are for operators and the user.
_PUBLIC: Final = frozenset({"service", "policy", "node"})
_BY: Final = "by "


class Known(NamedTuple):
    """What the list is made from. ``policy``: the name of the one in force; ``when``: a core time by the wall clock."""

    view: View
    book: NodeBook
    config: ClusterConfig
    policy: str
    when: When


def set_aside(known: Known) -> list[SetAsideDoc]:
    """The whole list, by kind, the jobs in the order of their numbers."""
    return [row for source in _SOURCES for row in source(known)]


def for_caller(caller: Caller, rows: list[SetAsideDoc]) -> list[SetAsideDoc]:
    """What that caller may have of the list."""
    if caller.operator:
        return rows
    return [
        msgspec.structs.replace(each, what=public_reason(each.what)) if each.kind == "node" else each
        for each in rows
        if each.kind in _PUBLIC or caller.may_change(each.user)
    ]


def _service(known: Known) -> Iterator[SetAsideDoc]:
    """The whole service, while its journal cannot be written: since the last event that is in it."""
    if not known.view.accepting:
        yield SetAsideDoc(
            kind="service",
            name=known.config.name,
            what=known.view.problem,
            by="journal",
            since=iso(known.when, known.view.now_us),
            back=f"the journal can be written ({known.config.state}): it is tried again by itself",
        )


def _policy(known: Known) -> Iterator[SetAsideDoc]:
    """A policy that fails as a whole: since the last pass that did not."""
    if known.view.accepting and known.view.problem:
        yield SetAsideDoc(
            kind="policy",
            name=known.policy,
            what=known.view.problem,
            by="policy",
            since=iso(known.when, known.view.decided_us),
            back="it is tried again by itself; 'cosched policy NAME' chooses another",
        )


class _Out(NamedTuple):
    """Who or what keeps a node out of service, and what brings it back (``{name}``: the node's)."""

    by: str
    back: str


#: By what the reason of a drained node begins with.
_OUT: Final = {
    PAUSED: _Out("owner", "its owner lets parallel work go on there ('cosched desk resume')"),
    CLOSED: _Out("owner", "its owner's hours begin"),
    ASLEEP: _Out("machine", "the machine is awake"),
    NO_GUARD: _Out("guard", "its guard answers"),
    STALLED: _Out("file system", "the file system answers"),
    NO_ROOM: _Out("disk", "there is room on it again"),
    EXPIRED: _Out("certificate", "'cosched node renew {name}'"),
}
_BY_SCHEDULER: Final = _Out("scheduler", "'cosched node resume {name}', when its fault is mended")
_BY_OPERATOR: Final = _Out("operator", "'cosched node resume {name}'")
_LOST: Final = _Out("scheduler", "its agent is heard again")
_REFUSED: Final = _Out("scheduler", "its agent calls as one that may join: 'cosched doctor' on the node")


def _nodes(known: Known) -> Iterator[SetAsideDoc]:
    """Nodes on which nothing starts: drained, lost, or refused."""
    holding = {share.node for each in known.view.jobs.values() if each.allocation for share in each.allocation.nodes}
    for entry in known.book.members(holding):
        if (found := _out(entry)) is not None:
            what, (by, back) = found
            since_us = known.view.out_since_us.get(entry.name)
            yield SetAsideDoc(
                kind="node",
                name=entry.name,
                what=what,
                by=by,
                since=None if since_us is None else iso(known.when, since_us),
                back=back.format(name=entry.name),
            )


def _out(entry: NodeEntry) -> tuple[str, _Out] | None:
    """Why nothing starts on a node, and who or what keeps it out; None where jobs may start, or it never was here."""
    if entry.drained:
        ordered = _BY_SCHEDULER if by_scheduler(entry.reason) else _BY_OPERATOR
        known = next((out for prefix, out in _OUT.items() if entry.reason.startswith(prefix)), ordered)
        return entry.reason or "drained", known
    if entry.refused:
        return f"refused: {entry.refused}", _REFUSED
    return ("lost", _LOST) if entry.known and entry.size is None else None


def _banned(known: Known) -> Iterator[SetAsideDoc]:
    """Users whose jobs an owner does not take (``explain`` names the desks to them, too)."""
    for entry in known.book:
        for user in entry.word.bans:
            yield SetAsideDoc(
                kind="user",
                name=user,
                user=user,
                what=f"jobs of {user} are not taken on {entry.name}",
                by="owner",
                back=f"its owner takes them again ('cosched desk allow {user}' there)",
            )


def _launches(known: Known) -> Iterator[SetAsideDoc]:
    """Jobs whose launch has failed, and which wait to be tried elsewhere."""
    for record in known.view.jobs.values():
        step = record.history[-1] if record.history else None
        reason = step.reason if step is not None and step.state is JobState.QUEUED else None
        if step is not None and reason is not None and reason.why is Why.LAUNCH_RETRIED:
            numbers = reason.numbers
            what = f"launch {numbers['failed_launches']} of {numbers['launch_retries'] + 1} failed"
            yield SetAsideDoc(
                kind="launch",
                name=str(record.id),
                user=record.user,
                what=f"{what}: {step.note}" if step.note else what,
                by=reason.node or "",
                since=iso(known.when, step.now_us),
                back="it is tried on other nodes when it can start there: 'cosched explain' says when",
            )


def _stalled(known: Known) -> Iterator[SetAsideDoc]:
    """What is left of jobs on nodes and cannot be ended."""
    for each in stalled_on(known.book, own=lambda user: True):
        first = each.processes[0].text if each.processes else "its processes hear no signal"
        yield SetAsideDoc(
            kind="job",
            name=str(each.job_id),
            user=each.user,
            what=f"cannot be ended on {each.node}: {first}",
            by=each.node,
            since=each.since,
            back=f"it ends when {each.ends_when}",
        )


def _held(known: Known) -> Iterator[SetAsideDoc]:
    """Jobs that are held by their user or an operator."""
    for record in known.view.jobs.values():
        if record.kept_back is Why.HELD:
            step = record.history[-1]
            yield SetAsideDoc(
                kind="job",
                name=str(record.id),
                user=record.user,
                what="held",
                by=step.note.removeprefix(_BY) if step.note.startswith(_BY) else record.user,
                since=iso(known.when, step.now_us),
                back=f"'cosched release {record.id}'",
            )


def _failing(known: Known) -> Iterator[SetAsideDoc]:
    """Jobs with which passes fail, and which these leave out."""
    for job_id, each in known.view.aside.items():
        record = known.view.jobs.get(job_id)
        yield SetAsideDoc(
            kind="job",
            name=str(job_id),
            user="" if record is None else record.user,
            what=f"the pass fails with it: {each.problem}",
            by="policy",
            since=iso(known.when, each.since_us),
            back=AGAIN,
        )


#: Each gives the rows of one kind of thing that is set aside.
_SOURCES: Final[tuple[Callable[[Known], Iterator[SetAsideDoc]], ...]] = (
    _service, _policy, _nodes, _banned, _launches, _stalled, _failing, _held,
)  # fmt: skip
