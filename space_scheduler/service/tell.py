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
        fields, notes = _of_event(event), {step.note for _, step in committed.transitions if step.note}
        ends = {"note": "; ".join(sorted(notes))} if notes else {}
        log.of(_subject(fields), "info", _words(event), seq=committed.seq, **fields, **ends)
    for instruction in committed.instructions:
        if isinstance(instruction, SetAside):
            log.warn("job set aside by the pass", job=instruction.job_id, why=instruction.problem)
        else:
            _decision(log, instruction, when)


def _words(event: ev.Event) -> str:
    """``JobSubmitted`` is ``job submitted``."""
    return re.sub(r"(?<!^)(?=[A-Z])", " ", type(event).__name__).lower()


def _of_event(event: ev.Event) -> dict[str, object]:
    match event:
        case ev.JobSubmitted(job):
            limit_s, memory_bytes = seconds(job.estimate_us), job.memory_bytes
            return {"job": job.id, "procs": job.procs, "limit_s": limit_s, "memory_bytes": memory_bytes}
        case ev.NodeJoined(node):
            return {"node": node.name, "procs": node.procs, "memory_bytes": node.memory_bytes}
        case ev.LaunchFailed(job_id, nodes):
            return {"job": job_id, "nodes": list(nodes)}
        case ev.JobEnded(job_id, outcome):
            return {"job": job_id, "outcome": outcome.value}
    names = (("job_id", "job"), ("name", "node"), ("procs", "procs"), ("reason", "why"), ("node", "node"))
    return {name: value for key, name in names if (value := getattr(event, key, None))}


def _decision(log: Log, instruction: Instruction, when: When) -> None:
    match instruction:
        case Start(job, allocation, _, _, reason):
            words, fields = "start", {"job": job.id, "nodes": {each.node: each.tasks for each in allocation.nodes}}
        case Resize(job_id, old, new, _, reason):
            words = "resize"
            fields = {"job": job_id, "procs": new.procs, "procs_before": old.procs, "processes": new.processes}
        case SharePlan(turns, _, reason):
            words, fields = "turns", {"of_jobs": [each.job_id for each in turns]}
        case Kill(job_id, _, reason):
            words, fields = "kill", {"job": job_id}
        case Tell(job_id, promised_us, _, reason):
            words, fields = "promise", {"job": job_id, "start": promised(when, promised_us)}
        case _:
            return
    # a reason may have numbers of the same names
    log.of(_subject(fields), "info", words, **_why(reason, when) | fields)


def _subject(fields: dict[str, object]) -> str:
    """The job or the node that a line is of."""
    return str(fields.get("job") or fields.get("node") or "")


def _why(reason: Reason, when: When) -> dict[str, object]:
    numbers = {
        name.removesuffix("_us"): promised(when, value) if name.endswith("_us") else value
        for name, value in reason.numbers.items()
    }
    at_node = {"at_node": reason.node} if reason.node else {}
    return {"reason": reason.why.name.lower(), **numbers, **at_node}


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
