"""What came of a play: a row for each job, Parquet, and means by class and program."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from cosched.apps.play.play_log import Held, Part, PlayLog
from cosched.apps.play.submissions import PlannedJob
from cosched.metrics.summary import BOUND_S
from cosched.model.job import JobState
from cosched.model.time import US_PER_S
from cosched.report.table import Table, write_parquet
from cosched.wire.api import JobDoc

#: Of jobs that the service has not: refused, not submitted yet, once there but no more; and of one that has not ended.
REFUSED: Final = "refused"
NOT_SUBMITTED: Final = "not submitted"
FORGOTTEN: Final = "unknown"
SUBMITTED: Final = "submitted"
#: The service tells the last so many changes of a job.
_MOST_TOLD: Final = 100
#: Ends of jobs that ran as they were meant to, be it too long.
_RAN: Final = frozenset({JobState.COMPLETED.value, JobState.FAILED.value, JobState.TIMED_OUT.value})


class PlayedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the log and what came of it. Times are seconds since the schedule's beginning, of the service's clock.

    ``job_id`` is the log's number, ``number`` the service's; ``due_s`` the time in the schedule and ``late_s`` by how
    much later it was submitted, in the ``part``-th call of the command. ``planned_run_s`` is what the log and the scale
    say of its run time, ``limit_s`` its estimate and limit. ``starts``: how often it was started. ``nodes`` has its
    processes by node at last; ``held_*`` what it held from when on, processes and CPUs, and why. ``slowdown`` is
    bounded: response over run time, where that is at least ten seconds of the log.
    """

    job_id: int
    number: int | None = None
    program: str
    job_class: str
    tasks: int
    work: int
    planned_run_s: float
    limit_s: float
    part: int | None = None
    due_s: float
    late_s: float | None = None
    submit_s: float | None = None
    start_s: float | None = None
    end_s: float | None = None
    state: str
    why: str = ""
    exit_status: int | None = None
    signal: int | None = None
    starts: int = 0
    wait_s: float | None = None
    run_s: float | None = None
    response_s: float | None = None
    slowdown: float | None = None
    cpu_s: float | None = None
    nodes: dict[str, int] = {}
    held_s: list[float] = []
    held_processes: list[int] = []
    held_cpus: list[int] = []
    held_why: list[str] = []
    submit_time: str | None = None
    start_time: str | None = None
    end_time: str | None = None

    @property
    def ran(self) -> bool:
        """Whether it started and came to an end of its own, or of its limit."""
        return self.state in _RAN and self.run_s is not None


def rows(plan: Sequence[PlannedJob], log: PlayLog, bound_s: float) -> list[PlayedJob]:
    """A row for each job of the plan, by what the log says; ``bound_s`` as for a bounded slowdown."""
    return [_row(job, log, bound_s) for job in plan]


def bound(scale: float) -> float:
    """The bound of a bounded slowdown in seconds here: that of the simulator, ten seconds of the log."""
    return BOUND_S * scale


def _row(planned: PlannedJob, log: PlayLog, bound_s: float) -> PlayedJob:
    number = planned.number
    line = planned.line
    row = PlayedJob(
        job_id=number,
        program=planned.program,
        job_class="" if line is None else "long" if line.long else "short",
        tasks=planned.tasks,
        work=planned.work,
        planned_run_s=planned.run_us / US_PER_S,
        limit_s=planned.submission.time_limit_s or 0.0,
        due_s=planned.at_us / US_PER_S,
        state=NOT_SUBMITTED,
    )
    if refused := log.refused.get(number):
        return msgspec.structs.replace(row, state=REFUSED, why=refused.why, part=refused.part, late_s=refused.late_s)
    taken = log.submitted.get(number)
    if taken is None:
        return row
    row = msgspec.structs.replace(
        row, number=taken.job_id, part=taken.part, late_s=taken.late_s, state=SUBMITTED, submit_s=taken.at_s
    )
    ended = log.ended.get(number)
    if ended is None:
        return row
    if ended.job is None:
        return msgspec.structs.replace(row, state=FORGOTTEN, why="the service does not know it any more")
    return _ended(row, ended.job, log.parts[taken.part - 1], log.held.get(number, []), bound_s)


def _ended(row: PlayedJob, job: JobDoc, part: Part, held: Sequence[Held], bound_s: float) -> PlayedJob:
    """The row of a job that has ended."""
    response_s, holdings = job.turnaround_s, _holdings(held, job, part)
    slowdown = None
    if job.start_time and job.run_s is not None and response_s is not None:
        slowdown = max(1.0, response_s / max(bound_s, job.run_s))
    why = job.failure.message if job.failure else job.reason.text if job.reason else ""
    return msgspec.structs.replace(
        row,
        state=job.state,
        why="" if job.state == JobState.COMPLETED else why,
        exit_status=job.exit_status,
        signal=job.signal,
        starts=sum(step.state == JobState.STARTING for step in job.history),
        submit_s=_time_s(part, job.submit_time),
        start_s=_time_s(part, job.start_time),
        end_s=_time_s(part, job.end_time),
        wait_s=job.wait_s,
        run_s=job.run_s,
        response_s=response_s,
        slowdown=slowdown,
        cpu_s=job.cpu_s,
        nodes=next((each.nodes for each in reversed(held) if each.nodes), {}),
        held_s=[each.at_s for each in holdings],
        held_processes=[each.processes for each in holdings],
        held_cpus=[each.cpus for each in holdings],
        held_why=[each.why for each in holdings],
        submit_time=job.submit_time,
        start_time=job.start_time,
        end_time=job.end_time,
    )


class Holding(NamedTuple):
    """What a job holds from a time of the schedule on, and why."""

    at_s: float
    processes: int
    cpus: int
    why: str


def _holdings(seen: Sequence[Held], job: JobDoc, part: Part) -> list[Holding]:
    """What a job held over time: as the service tells it, or as it was seen where that is not all of it.

    The service tells of the last start, and of no more than so many changes.
    """
    starts = [step for step in job.history if step.state == JobState.STARTING]
    if not seen or not starts:
        return []
    began_s, why = _time_s(part, starts[0].time) or 0.0, starts[0].reason
    first, numbers = seen[0], why.numbers if why else {}
    told = "processes" in numbers and "procs" in numbers
    processes, cpus = (numbers["processes"], numbers["procs"]) if told else (first.processes, first.cpus)
    begun = Holding(began_s, processes, cpus, why.why if why else "")
    if len(starts) > 1 or len(job.changes) >= _MOST_TOLD:
        later = seen[1:]
        return [
            begun,
            *(Holding(round(each.wall_s - part.began_s, 3), each.processes, each.cpus, "") for each in later),
        ]
    return [
        begun,
        *(
            Holding(_time_s(part, each.time) or 0.0, each.tasks, each.cpus, each.reason.why if each.reason else "")
            for each in job.changes
        ),
    ]


def _time_s(part: Part, moment: str | None) -> float | None:
    return None if moment is None else round(part.time_s(moment), 3)


#: The columns of the file whose values may all be missing, or that are lists: what they are of.
_INTEGERS: Final = frozenset({"job_id", "number", "tasks", "work", "part", "exit_status", "signal", "starts"})
_LISTS: Final = {"held_s": "double", "held_processes": "int64", "held_cpus": "int64", "held_why": "string"}
_TEXTS: Final = frozenset({"program", "job_class", "state", "why", "nodes", "submit_time", "start_time", "end_time"})


def write(jobs: Sequence[PlayedJob], path: Path) -> None:
    """Write the rows as Parquet, a column for each field; ``nodes`` as text, ``node1:2,node2:2``."""
    names = [field.name for field in msgspec.structs.fields(PlayedJob)]
    columns = {name: [getattr(job, name) for job in jobs] for name in names}
    columns["nodes"] = [",".join(f"{node}:{tasks}" for node, tasks in job.nodes.items()) for job in jobs]
    write_parquet(path, columns, {name: _kind(name) for name in names})


def _kind(name: str) -> str:
    if name in _LISTS:
        return f"list<{_LISTS[name]}>"
    return "int64" if name in _INTEGERS else "string" if name in _TEXTS else "double"


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """Means of some jobs of a play, of those that ran; ``refused`` and ``others`` (cancelled, lost, …) did not.

    ``work`` is that of jobs that completed, in their programs' units.
    """

    jobs: int
    ran: int
    refused: int
    others: int
    wait_s: float | None = None
    run_s: float | None = None
    response_s: float | None = None
    slowdown: float | None = None
    work: int = 0


def means(jobs: Sequence[PlayedJob]) -> Means:
    """The means of these jobs."""
    ran = [job for job in jobs if job.ran]
    refused = sum(job.state == REFUSED for job in jobs)

    def mean(values: Iterable[float | None]) -> float | None:
        there = [value for value in values if value is not None]
        return float(np.mean(there)) if there else None

    return Means(
        jobs=len(jobs),
        ran=len(ran),
        refused=refused,
        others=len(jobs) - len(ran) - refused,
        wait_s=mean(job.wait_s for job in ran),
        run_s=mean(job.run_s for job in ran),
        response_s=mean(job.response_s for job in ran),
        slowdown=mean(job.slowdown for job in ran),
        work=sum(job.work for job in ran if job.state == JobState.COMPLETED),
    )


def grouped(jobs: Sequence[PlayedJob]) -> dict[str, Means]:
    """The means of all, of each class where jobs have one, and of each program where there are several."""
    groups: dict[str, list[PlayedJob]] = defaultdict(list)
    for job in jobs:
        if job.job_class:
            groups[f"class {job.job_class}"].append(job)
    programs = sorted({job.program for job in jobs})
    for name in programs if len(programs) > 1 else []:
        groups[f"program {name}"] = [job for job in jobs if job.program == name]
    return {"all": means(jobs), **{name: means(groups[name]) for name in sorted(groups)}}


def table(groups: dict[str, Means], bound_s: float) -> Table:
    """The means for people, a line for each group."""
    shown = Table(
        "What was seen: means over the jobs that ran",
        ("jobs", "number", "ran", "refused", "others", "wait s", "run s", "response s", "slowdown", "work"),
    )
    for name, each in groups.items():
        shown.add(name, *msgspec.structs.astuple(each))
    shown.notes.append(
        f"slowdown: mean of max(1, response / max(run time, {bound_s:g} s)); work in the programs' units"
    )
    return shown


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """How far submissions were behind their schedule, in seconds; ``late_jobs``: how many more than one."""

    late_jobs: int
    mean_s: float
    most_s: float


def lateness(jobs: Sequence[PlayedJob]) -> Lateness:
    """By how much the jobs that were submitted, or refused, were late."""
    late = [job.late_s for job in jobs if job.late_s is not None] or [0.0]
    return Lateness(late_jobs=sum(each > 1 for each in late), mean_s=float(np.mean(late)), most_s=max(late))
