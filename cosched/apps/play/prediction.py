"""What the simulator says of the same submissions on the same nodes, beside what was seen.

Twice: with the run times that the log and its scale say (nothing of the real run goes in but the moments of
submission), and with those that jobs really had, which leaves what scheduling alone makes of them (of a job that was
folded or resized, what that is with all its tasks on CPUs of their own). Nodes are named, with the processors and
memory that the service has of each, and nobody is at the desks. Where the policy has jobs share CPUs, they cost each
other nothing but their shares; else each goes as if alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final, NamedTuple

import msgspec
import numpy as np

from cosched.apps.play.results import PlayedJob
from cosched.apps.play.submissions import PlannedJob
from cosched.errors import BadInput
from cosched.metrics.summary import Summary, per_job, summarise
from cosched.model.node import Node
from cosched.model.time import US_PER_S
from cosched.report.table import Table
from cosched.wire.api import NodeDoc
from cosched.workload import shapes, speedups
from cosched.workload.rules import Tasks, Times, Workload, workload_of
from cosched.workload.schedule import Schedule
from space_scheduler.plugins import resolve
from space_scheduler.progress import Sharing
from space_scheduler.service.launch.sharing import shares_nodes
from space_scheduler.simulator.fitting import fitting
from space_scheduler.simulator.host import Site, simulate

#: The measures that are compared: their names here, and in a summary.
_MEASURES: Final = (
    ("mean wait s", "mean_wait_s"),
    ("mean run s", "mean_execution_s"),
    ("mean response s", "mean_response_s"),
    ("mean slowdown", "mean_bounded_slowdown"),
    ("makespan s", "makespan_s"),
)


class Measure(msgspec.Struct, frozen=True, kw_only=True):
    """A measure as it was seen, as predicted from planned run times and from real ones; ratios are predicted over seen.

    A ratio is None where nothing was seen (a mean wait of 0).
    """

    name: str
    seen: float
    predicted: float
    ratio: float | None
    with_real_times: float
    ratio_with_real_times: float | None


class Prediction(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison of so many ``jobs``, under that policy; ``unfit`` more could never start under it."""

    policy: str
    jobs: int
    unfit: int
    nodes: dict[str, int]
    measures: list[Measure]


class _Ran(NamedTuple):
    """A job that ran: as planned, and as seen."""

    planned: PlannedJob
    seen: PlayedJob


def predicted(
    plan: Sequence[PlannedJob],
    played: Sequence[PlayedJob],
    nodes: Sequence[NodeDoc],
    policy: str,
    *,
    bound_s: float,
    speed_up: str = "linear",
) -> Prediction | None:
    """Hold the simulator's means against those that were seen; None where no job ran.

    Raises :class:`BadInput` for what is no policy, and without nodes.
    """
    chosen = resolve(policy, where="--predict")
    sharing = Sharing() if shares_nodes(chosen) else None  # as the service has it
    site = Site([Node(each.name, each.procs, each.memory_bytes) for each in nodes], sharing=sharing)
    if not site.nodes:
        raise BadInput("--predict", "the service has no nodes", "nodes that have joined")
    ran = [_Ran(planned, seen) for planned, seen in zip(plan, played, strict=True) if seen.ran]
    ran.sort(key=_submitted_s)
    if not ran:
        return None
    whole = _workload(ran, sum(node.procs for node in site.nodes), speed_up)
    load = fitting(whole, [chosen], site)
    if not len(load):
        return None
    kept = [ran[number - 1] for number in load.job_id.tolist()]
    real_us = np.array([max(1, round(time_as_asked_s(each.seen) * US_PER_S)) for each in kept], np.int64)
    found = [simulate(each, chosen, site=site) for each in (load, _with_run_times(load, real_us))]
    return Prediction(
        policy=policy,
        jobs=len(load),
        unfit=len(whole) - len(load),
        nodes={node.name: node.procs for node in site.nodes},
        measures=_compared(_as_seen(kept, load), found, bound_s),
    )


def time_as_asked_s(job: PlayedJob) -> float:
    """How long a job that ran would have run with all tasks that were planned, each on a CPU of its own.

    That is its run time, unless it was folded, resized or started smaller. A job's speed is taken to be linear in its
    processes, and n of them on c CPUs go at 1 / ⌈n/c⌉ (Utrera et al. 2005).
    """
    if job.starts != 1 or not job.held_s or job.start_s is None or job.end_s is None:
        return job.run_s or 0.0
    moments = [job.start_s, *(max(job.start_s, each) for each in job.held_s[1:]), job.end_s]
    if all(each == (job.tasks, job.tasks) for each in zip(job.held_processes, job.held_cpus, strict=True)):
        return job.run_s or 0.0
    speeds = [
        processes / -(-processes // cpus) if cpus else 0.0
        for processes, cpus in zip(job.held_processes, job.held_cpus, strict=True)
    ]
    done = sum(speed * (until - since) for speed, since, until in zip(speeds, moments, moments[1:], strict=False))
    return done / job.tasks


def _workload(ran: Sequence[_Ran], procs: int, speed_up: str) -> Workload:
    """The jobs as they were submitted, numbered from 1, with the run times that were planned."""
    count = len(ran)
    first_s = min(_submitted_s(each) for each in ran)
    load = workload_of(
        "as it was submitted",
        procs,
        np.array([round((_submitted_s(each) - first_s) * US_PER_S) for each in ran], np.int64),
        np.array([each.planned.run_us for each in ran], np.int64),
        np.array([each.planned.tasks for each in ran], np.int64),
        np.array([round(each.seen.limit_s * US_PER_S) for each in ran], np.int64),
        tasks=Tasks(
            np.array([each.planned.submission.memory_bytes or 0 for each in ran], np.int64),
            np.full(count, 1000, np.int64),
            tuple(each.planned.submission.kind or "cpu" for each in ran),
        ),
    )
    lines = {at: each.planned.line for at, each in enumerate(ran, 1) if each.planned.line is not None}
    return shapes.apply(load, lines, speed_up=speedups.parse(speed_up)) if lines else load


def _submitted_s(ran: _Ran) -> float:
    assert ran.seen.submit_time is not None
    return datetime.fromisoformat(ran.seen.submit_time).timestamp()


def _with_run_times(load: Workload, run_us: Times) -> Workload:
    """The same jobs with other run times, in the width that each asks for."""
    made = [
        None if each is None else each._replace(work_us=us * each.shape.speed(procs))
        for each, us, procs in zip(load.shapes, run_us.tolist(), load.procs.tolist(), strict=False)
    ]
    return replace(load, run_us=run_us, shapes=made)


def _as_seen(ran: Sequence[_Ran], load: Workload) -> Schedule:
    """What was seen, as a schedule."""
    start_us = np.array([round((each.seen.wait_s or 0.0) * US_PER_S) for each in ran], np.int64) + load.submit_us
    run_us = np.array([round((each.seen.run_s or 0.0) * US_PER_S) for each in ran], np.int64)
    return Schedule(load, start_us, start_us + run_us, np.full(len(ran), -1, np.int64))


def _compared(seen: Schedule, found: Sequence[Schedule], bound_s: float) -> list[Measure]:
    was, planned, real = (_measures(each, bound_s) for each in (seen, *found))
    return [
        Measure(
            name=name,
            seen=was[key],
            predicted=planned[key],
            ratio=planned[key] / was[key] if was[key] else None,
            with_real_times=real[key],
            ratio_with_real_times=real[key] / was[key] if was[key] else None,
        )
        for name, key in _MEASURES
    ]


def _measures(schedule: Schedule, bound_s: float) -> Mapping[str, float]:
    """The means; slowdown by the time executed, which is all that is known of real jobs."""
    summary: Summary = summarise(schedule, bound_s)
    jobs = per_job(schedule, bound_s)
    slowdown = np.maximum(1.0, jobs.response_s / np.maximum(bound_s, jobs.execution_s))
    return msgspec.structs.asdict(summary) | {"mean_bounded_slowdown": float(slowdown.mean())}


def table(found: Prediction) -> Table:
    """The comparison for people."""
    shown = Table(
        f"The simulator's prediction under {found.policy}: {found.jobs} jobs on {len(found.nodes)} nodes",
        ("measure", "seen", "predicted", "ratio", "with real run times", "ratio "),
    )
    for each in found.measures:
        shown.add(*msgspec.structs.astuple(each))
    if found.unfit:
        shown.notes.append(f"{found.unfit} jobs that ran could never start under {found.policy}: left out of both")
    return shown
