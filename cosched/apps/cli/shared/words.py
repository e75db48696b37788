"""Words for people of what the service answers: times, places, shapes, how a job ended and its exit status."""

import os
from datetime import UTC, datetime
from typing import Final

import msgspec

from cosched.client.client import Client
from cosched.model.job import TERMINAL, JobState
from cosched.model.time import humanised, us
from cosched.wire.api import JobDoc, LimitedDoc, PausedDoc, ShapeDoc, ShareDoc, StalledDoc, WhyDoc

#: Exit statuses of ``--wait`` and ``wait`` that say how the job ended, not its own.
_ENDS: Final = {
    JobState.COMPLETED: 0,
    JobState.TIMED_OUT: 124,  # as timeout(1) has it
    JobState.NODE_LOST: 125,
    JobState.LAUNCH_FAILED: 126,
    JobState.CANCELLED: 130,
}
#: From so many days ahead a weekday's name is ambiguous.
_WEEK: Final = 7


def ended(job: JobDoc) -> bool:
    """Whether the job has reached its last state."""
    return job.state in TERMINAL


def exit_status(job: JobDoc) -> int:
    """The exit status that stands for how a job ended: its own, 128 + signal, or one of the end's (see the guide)."""
    if job.state in _ENDS:
        return _ENDS[JobState(job.state)]
    return job.exit_status or (128 + job.signal if job.signal else 1)


def outcome(job: JobDoc) -> str:
    """The state, with how it ended: ``failed (exit status 3)``."""
    how = f"signal {job.signal}" if job.signal else f"exit status {job.exit_status}" if job.exit_status else ""
    return f"{job.state} ({how})" if how and job.state == JobState.FAILED else job.state


def _moment(time: str) -> datetime | None:
    """The moment in local time; None for what is none."""
    try:
        return datetime.fromisoformat(time).astimezone()
    except (ValueError, OverflowError):
        return None


def local(time: str | None) -> str:
    """A moment for people: local time with its offset, to the second."""
    moment = _moment(time or "")
    return moment.isoformat(" ", "seconds") if moment else time or ""


def clock(time: str | None) -> str:
    """A moment in a list, local time: the clock alone where it is today, with the weekday within the next six days, the
    date alone where it is later, both where it is past. One that is to come has 10 characters at most.
    """
    if (moment := _moment(time or "")) is None:
        return time or ""
    days = (moment.date() - datetime.now(UTC).astimezone().date()).days
    if days < 0:
        return moment.strftime("%Y-%m-%d %H:%M")
    return moment.strftime("%H:%M:%S" if not days else "%a %H:%M" if days < _WEEK else "%Y-%m-%d")


def ago(time: str | None) -> str:
    """How long ago a moment was, for people."""
    if (moment := _moment(time or "")) is None:
        return time or "never"
    seconds = max(0.0, (datetime.now(UTC) - moment).total_seconds())
    return "now" if seconds < 2 else f"{lasting(round(seconds))} ago"


def lasting(duration_s: float | None) -> str:
    """A duration for people; nothing for None."""
    if duration_s is None:
        return ""
    return humanised(us(round(duration_s, 2) if duration_s < 60 else round(duration_s)))


def places(shares: list[ShareDoc]) -> str:
    """A job's nodes with its tasks on each: ``n1 (2), n2``; one task is not said."""
    return ", ".join(f"{share.name} ({share.tasks})" if share.tasks > 1 else share.name for share in shares)


def held(job: JobDoc) -> str:
    """What a job runs as that has not one CPU for each task, or was given another shape; nothing for any other job."""
    last = job.changes[-1] if job.changes else None
    if last is None and job.cpus in (None, job.tasks):
        return ""
    since, why = (last.time, because(last.reason)) if last else (job.start_time, "")
    on = "no CPU" if not job.cpus else f"{job.cpus} CPU{'s' if job.cpus > 1 else ''}"
    told = f"{job.tasks} process{'es' if job.tasks > 1 else ''} on {on} since {local(since)}"
    return f"{told}: {why}" if why else told


def sizes(shape: ShapeDoc) -> str:
    """The numbers of tasks that a job could have: ``1 to 8``, or ``1, 2, 4, 8``, of many the first ones and the last.

    Nothing where it could have one alone.
    """
    if shape.min_tasks == shape.max_tasks:
        return ""
    if not shape.sizes:
        return f"{shape.min_tasks} to {shape.max_tasks}"
    told = [str(each) for each in shape.sizes]
    return ", ".join(told if len(told) <= 8 else [*told[:6], "…", told[-1]])


def in_components(shape: ShapeDoc | None) -> str:
    """How a job is divided over clusters: ``components 2+2``, or ``at most 4 components``; nothing where it is not."""
    if shape is None or not shape.most_components:
        return ""
    if shape.components:
        return f"components {'+'.join(map(str, shape.components))}"
    return f"at most {shape.most_components} components, chosen when it starts"


def _since(time: str | None) -> str:
    return f" since {clock(time)}" if time else ""


def pauses(found: list[PausedDoc]) -> list[str]:
    """What is to be said of the pauses of a job, one for each node."""
    limits = {True: "its limit does not run meanwhile", False: "its limit runs on"}
    return [f"paused by the owner of {each.node}{_since(each.since)}; {limits[each.limit_stands]}" for each in found]


def limits(found: list[LimitedDoc]) -> list[str]:
    """What is to be said of the ceilings that slow a job down, one for each node."""
    return [
        f"limited on {each.node}{_since(each.since).removesuffix(':00')}, at most {each.cpus:.3g} CPU" for each in found
    ]


def stalls(found: list[StalledDoc]) -> list[str]:
    """What is to be said of what cannot be ended, one for each attempt on each node."""
    left = ("; ".join(process.text for process in each.processes) or "processes are left" for each in found)
    return [
        f"cannot be ended on {each.node}: {what}, since {clock(each.since)}; it ends when {each.ends_when}"
        for each, what in zip(found, left, strict=True)
    ]


def because(reason: WhyDoc | None) -> str:
    """A reason for people; nothing for None."""
    return reason.text if reason else ""


def with_present_reason(client: Client, job: JobDoc) -> JobDoc:
    """A job that waits, with the reason of the last pass for it: its document has that of its last step."""
    if job.state != JobState.QUEUED:
        return job
    found = client.explain(job.job_id)
    if found.state != job.state:  # it has gone on meanwhile
        return job
    return msgspec.structs.replace(job, reason=found.reason)


def this_user() -> str:
    """The name of the user who calls, as the service would say it over a Unix socket."""
    import pwd  # noqa: PLC0415 (few verbs ask)

    uid = os.geteuid()
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"uid {uid}"
