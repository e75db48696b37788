"""What the log says of events and decisions, and the standard library's log records on their way into it."""

import logging
import re

from cosched.model.time import seconds
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Instruction, Kill, Resize, SetAside, SharePlan, Start, Tell
from space_scheduler.reasons import Reason
from space_scheduler.service.api.documents import When, promised
from space_scheduler.service.journal.records import Committed
from space_scheduler.service.log import Log


def tell(log: Log, when: When, committed: Committed) -> None:
    """Every event but the core's own clockwork and who is at which desk, and every decision with its reason."""
    event = committed.event
    if not isinstance(event, ev.Boundary | ev.TimerDue | ev.OwnerCame | ev.OwnerLeft):
        fields = _of_event(event)
        log.of(_subject(fields), "info", _words(event), seq=committed.seq, **fields, **_ends(committed))
    for instruction in committed.instructions:
        if isinstance(instruction, SetAside):
            log.warn("job set aside by the pass", job=instruction.job_id, why=instruction.problem)
        else:
            _decision(log, instruction, when)


def _words(event: ev.Event) -> str:
    """``JobSubmitted`` is ``job submitted``."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(event).__name__).lower()


def _of_event(event: ev.Event) -> dict[str, object]:
    if isinstance(event, ev.JobSubmitted):
        job = event.job
        return {
            "job": job.id,
            "procs": job.procs,
            "limit_s": seconds(job.estimate_us),
            "memory_bytes": job.memory_bytes,
        }
    if isinstance(event, ev.NodeJoined):
        node = event.node
        return {"node": node.name, "procs": node.procs, "memory_bytes": node.memory_bytes}
    if isinstance(event, ev.LaunchFailed):
        return {"job": event.job_id, "nodes": list(event.nodes)}
    if isinstance(event, ev.JobEnded):
        return {"job": event.job_id, "outcome": event.outcome.value}
    fields: dict[str, object] = {}
    for key, name in (("job_id", "job"), ("name", "node"), ("procs", "procs"), ("reason", "why"), ("node", "node")):
        if value := getattr(event, key, None):
            fields[name] = value
    return fields


def _ends(committed: Committed) -> dict[str, object]:
    notes = {step.note for _, step in committed.transitions if step.note}
    return {"note": "; ".join(sorted(notes))} if notes else {}


def _decision(log: Log, instruction: Instruction, when: When) -> None:
    if isinstance(instruction, Start):
        nodes = {share.node: share.tasks for share in instruction.allocation.nodes}
        found = ("start", instruction.reason, {"job": instruction.job.id, "nodes": nodes})
    elif isinstance(instruction, Resize):
        old, new = instruction.old, instruction.new
        procs = {"procs": new.procs, "procs_before": old.procs, "processes": new.processes}
        found = ("resize", instruction.reason, {"job": instruction.job_id, **procs})
    elif isinstance(instruction, SharePlan):
        found = ("turns", instruction.reason, {"of_jobs": [each.job_id for each in instruction.turns]})
    elif isinstance(instruction, Kill):
        found = ("kill", instruction.reason, {"job": instruction.job_id})
    elif isinstance(instruction, Tell):
        start = promised(when, instruction.promised_us)
        found = ("promise", instruction.reason, {"job": instruction.job_id, "start": start})
    else:
        return
    words, reason, fields = found
    log.of(
        _subject(fields), "info", words, **_why(reason, when) | fields
    )  # a reason may have numbers of the same names


def _subject(fields: dict[str, object]) -> str:
    """The job or the node that a line is of."""
    return str(fields.get("job") or fields.get("node") or "")


def _why(reason: Reason, when: When) -> dict[str, object]:
    fields: dict[str, object] = {"reason": reason.why.name.lower()}
    for name, value in reason.numbers.items():
        if name.endswith("_us"):
            fields[name[:-3]] = promised(when, value)
        else:
            fields[name] = value
    if reason.node:
        fields["at_node"] = reason.node
    return fields


class Bridge(logging.Handler):
    """Takes in what libraries say. Peers can cause some of it, so each message has its bounded rate."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """One record, with where it went wrong if it says so."""
        error = record.exc_info[1] if record.exc_info else None
        why = f"{type(error).__name__}: {error}" if error else ""
        own = record.name.startswith("space_scheduler")
        if own and error is not None:
            self._log.fault(record.getMessage(), error)
        elif own:
            self._log.warn(record.getMessage())
        else:
            self._log.peer(record.name, str(record.msg)[:200], said=record.getMessage()[:500], why=why[:500])
