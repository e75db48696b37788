"""The API's documents, made from the journal's records: what a user may see of a job."""

from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Final

from msgspec import structs

from cosched.model.effort import total
from cosched.model.job import JobState
from cosched.model.time import FOREVER_US, seconds
from cosched.model.width import Components, Flexible, Range
from cosched.wire.api import (
    ASKED,
    EffortDoc,
    Explanation,
    HeldDoc,
    JobDoc,
    OnNodeDoc,
    ShapeDoc,
    ShareDoc,
    Step,
    WhyDoc,
)
from space_scheduler.eligibility.set_aside import AGAIN, SetAside
from space_scheduler.machine.explain import promise_to_come
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.core.sizing import NOT_RESHAPED
from space_scheduler.service.journal.records import Explained, JobRecord, Transition

_WORK: Final = "{procs} of its {present_processes} processes work"
#: Numbers of reasons of jobs that change shape, and how they are said together.
_TOGETHER: Final = (
    (("blocking_job",), "waits for job {blocking_job}"),
    (("waiting_job",), "job {waiting_job} waits for it"),
    (("before_procs", "procs", "present_processes"), f"{_WORK}, {{before_procs}} before"),
    (("minimum_procs", "procs", "present_processes"), f"{_WORK}, {{minimum_procs}} at least"),
    (("processes", "procs"), "{processes} processes on {procs} processors"),
    (("processes",), "{processes} processes"),
    (("before_procs", "procs"), "{procs} processors, {before_procs} before"),
    (("minimum_procs", "procs"), "{procs} processors, {minimum_procs} at least"),
    (("asked_procs", "given_procs"), "asked for {asked_procs:+d} processes, given {given_procs:+d}"),
)
#: Fields of a job's document that are filled from the core's job alone, as the submission declares it.
_ASKED: Final = [(name, each) for name, each in ASKED if each.job and name in {*JobDoc.__struct_fields__} - {"tasks"}]
When = Callable[[int], datetime]


def why_doc(reason: Reason, when: When) -> WhyDoc:
    """A reason: its name as programs know it, and its words with the numbers for people."""
    return WhyDoc(reason.why.name.lower(), worded(reason, when), dict(reason.numbers))


def worded(reason: Reason, when: When) -> str:
    """For people. A number of the core whose name ends with ``_us`` is a moment: it is told by the wall clock."""
    told, left = [f"node={reason.node}"] if reason.node else [], dict(reason.numbers)
    for names, words in _TOGETHER:
        if all(name in left for name in names):
            told.append(words.format(**left))
            left = {name: value for name, value in left.items() if name not in names}
    for name, value in left.items():
        told.append(f"{name[:-3]}={promised(when, value) or 'never'}" if name.endswith("_us") else f"{name}={value}")
    return f"{reason.why.value} ({', '.join(told)})" if told else reason.why.value


def job_doc(
    record: JobRecord,
    when: When,
    now_us: int,
    *,
    own: bool,
    present: Reason | None = None,
    reshaping: bool = False,
    aside: SetAside | None = None,
) -> JobDoc:
    """A job. ``own``: for its user or an operator; others do not see where it works, what it wrote and how it failed.

    ``present``: why it is in its state now, where that is more than the reason of its last step. ``reshaping``: the
    policy gives jobs other shapes. ``aside``: the pass has set the job aside.
    """
    submission, facts, held = record.submission, record.facts, record.allocation
    reason = present or (record.history[-1].reason if record.history else None)
    why = why_doc(reason, when) if reason else None
    if aside is not None:
        why = with_problem(why_doc(aside.reason, when), aside.problem if own else "")
    start_us, end_us = record.start_us, record.end_us
    wait_end_us = start_us if start_us is not None else end_us if end_us is not None else now_us
    run_end_us = end_us if end_us is not None else now_us
    how = facts.exit
    return JobDoc(
        **{name: each.from_job(getattr(record.job, each.job)) for name, each in _ASKED},
        job_id=record.id,
        name=submission.name,
        user=record.user,
        state=record.state.value,
        reason=why,
        tasks=submission.tasks if held is None else held.processes,
        cpus=None if held is None else held.procs,
        shape=shape_doc(record, reshaping=reshaping),
        changes=[
            HeldDoc(iso(when, each.now_us), each.processes, each.procs, why_doc(each.reason, when))
            for each in record.reshaped
        ],
        kind_from=("declared" if submission.kind else "measured") if record.job.kind else "",
        effort=_effort(record),
        directory=submission.directory if own else "",
        output=(facts.output or record.output) if own else None,
        error=(facts.error or record.error) if own else None,
        nodes=[ShareDoc(share.node, share.tasks, share.procs) for share in held.nodes] if held else [],
        submit_time=iso(when, record.submit_us),
        start_time=iso(when, start_us) if start_us is not None else None,
        end_time=iso(when, end_us) if end_us is not None else None,
        wait_s=seconds(max(0, wait_end_us - record.submit_us)),
        run_s=seconds(max(0, run_end_us - start_us)) if start_us is not None else None,
        turnaround_s=seconds(end_us - record.submit_us) if end_us is not None else None,
        cpu_s=seconds(sum(facts.cpu_us.values())) if facts.cpu_us is not None else None,
        promised_start=promised(when, promise_to_come(record.promised_us, now_us))
        if record.state is JobState.QUEUED
        else None,
        exit_status=how.status if how else None,
        signal=how.signal if how else None,
        failure=facts.failure if own else None,
        history=[_step(each, when, own=own) for each in record.history],
    )


def shape_doc(record: JobRecord, *, reshaping: bool) -> ShapeDoc | None:
    """What a job says of its shape, and what becomes of that; None where it says nothing."""
    submission, shape, tasks = record.submission, record.job.shape, record.job.procs
    components = list(shape.procs) if isinstance(shape, Components) else []
    most_components = shape.most if isinstance(shape, Flexible) else len(components)
    if most_components:
        return ShapeDoc(
            min_tasks=tasks,
            max_tasks=tasks,
            fold=submission.fold,
            job_class=submission.job_class,
            note="",
            components=components,
            most_components=most_components,
        )
    if not isinstance(shape, Range):
        if submission.fold is None and submission.job_class is None:
            return None
        shape = Range(tasks, tasks)
    several = f"of its sizes it has {tasks}, the largest that could ever start here, and keeps it: "
    return ShapeDoc(
        min_tasks=shape.least,
        max_tasks=shape.most,
        sizes=list(shape.sizes),
        malleable=shape.malleable,
        evolve=shape.ask_more,
        fold=submission.fold,
        job_class=submission.job_class,
        note="" if reshaping else (several if submission.several_sizes else "") + NOT_RESHAPED,
    )


def _effort(record: JobRecord) -> EffortDoc | None:
    """What was measured of an ended job, where that is anything."""
    found = total(record.facts.efforts)
    if not found.ran_us:
        return None
    seen_s = seconds(found.ran_us + found.asleep_us)
    return EffortDoc(
        found.orientation,
        seconds(found.ran_us),
        round(found.communication, 4),
        round(found.arrivals / seen_s, 1),
        round(found.received_bytes / seen_s, 1),
    )


def _step(transition: Transition, when: When, *, own: bool) -> Step:
    reason = why_doc(transition.reason, when) if transition.reason else None
    note = (transition.note or transition.cause) if own else ""
    return Step(iso(when, transition.now_us), transition.state.value, reason, note)


def explanation(record: JobRecord, explained: Explained, when: When, *, own: bool, reshaping: bool) -> Explanation:
    """Why a job is in the state it is in. ``own``: as :func:`job_doc` has it; others do not see the step's note."""
    reason, note, cause = explained.reason, explained.note if own else "", explained.cause
    text = note or cause or explained.state.value
    document = why_doc(reason, when) if reason else WhyDoc(explained.state.value.replace(" ", "_"), text)
    if reason is not None and reason.why is Why.SET_ASIDE:
        document, cause = with_problem(document, note), f"{cause}; {AGAIN}"
    elif note and reason:
        cause = f"{cause}: {note}" if cause else note
    return Explanation(
        record.id,
        explained.state.value,
        document,
        iso(when, explained.decided_us),
        cause,
        promised(when, explained.promised_us),
        shape=shape_doc(record, reshaping=reshaping),
        nodes=[
            OnNodeDoc(
                each.node,
                each.tasks,
                each.limit.value if each.limit else "",
                each.rank,
                each.used_memory_bytes,
                each.used_tasks,
                each.used_cpu_permille / 1000,
            )
            for each in explained.nodes
        ],
    )


def with_problem(why: WhyDoc, problem: str) -> WhyDoc:
    """Why a job is set aside, with the error that it causes, where the reader may know it."""
    return structs.replace(why, text=f"{why.text}: {problem}") if problem else why


def iso(when: When, core_us: int) -> str:
    """A moment in ISO 8601, local time with its offset, to the millisecond."""
    return when(core_us).isoformat(timespec="milliseconds")


def promised(when: When, core_us: int | None) -> str | None:
    """A promised start, where one can be promised."""
    with suppress(OverflowError):
        if core_us is not None and core_us < FOREVER_US:
            return iso(when, core_us)
    return None
