"""Which jobs are to be submitted when: a log, its shapes and a map from its jobs to programs, on a time scale.

``scale`` multiplies the times between submissions, the jobs' run times (so their work) and their estimates alike: at
0.1 a day of the log is 2.4 hours, and the load is that of the log. The first job comes at 0.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from cosched.apps.play.program_map import Known, ProgramMap
from cosched.errors import BadInput
from cosched.model.time import US_PER_S
from cosched.wire.api import Submission
from cosched.workload import estimates, shapes, speedups, swf
from cosched.workload.estimates import EstimateModel
from cosched.workload.rules import InputRules, TaskRules, Workload, check_numbers, prepare
from cosched.workload.shapes import Line, Work

_MOST_SCALE: Final = 1000.0


class PlaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """How a workload is played; everything that decides what is submitted when.

    ``margin_us`` is added to each estimate, unscaled, since real programs take a little longer now and then, and a
    limit ends them. ``limit``: so many jobs alone, the first ones.
    """

    scale: float = 1.0
    seed: int = 1
    limit: int | None = None
    estimates: str = "user"
    margin_us: int = 10 * US_PER_S
    work: Work = Work.LOGGED
    speed_up: str = "linear"

    def check(self) -> None:
        """Raises :class:`BadInput`, by the command's option, for what cannot be."""
        if not (math.isfinite(self.scale) and 0 < self.scale <= _MOST_SCALE):
            raise BadInput(
                "--scale", f"{self.scale:g}", f"a factor above 0 (0.1: ten times as fast), at most {_MOST_SCALE:g}"
            )
        try:
            told = estimates.parse(self.estimates)
        except BadInput as error:
            raise BadInput("--estimates", error.found, error.expected, nearest=error.nearest) from None
        if told.model is EstimateModel.PREDICTED:
            raise BadInput(
                "--estimates", "predicted", "user, exact, factor:F or tsafrir: a live scheduler predicts none"
            )
        speedups.parse(self.speed_up, "--speed-up")


class Base(NamedTuple):
    """What all submissions share: where jobs work, their variables, their umask."""

    directory: str
    environment: Mapping[str, str]
    umask: int


class PlannedJob(NamedTuple):
    """A job to be submitted ``at_us`` after the first: the log's ``number``, its program, and what the service is told.

    ``tasks`` is the number at which it does its ``work`` in ``run_us``, as far as is known beforehand. ``line`` is what
    the shapes file says of it.
    """

    number: int
    at_us: int
    program: str
    tasks: int
    run_us: int
    work: int
    line: Line | None
    submission: Submission


class Plan(NamedTuple):
    """Jobs in order of their times, and what of the log is not played, by cause."""

    jobs: list[PlannedJob]
    skipped: Mapping[str, int]


def planned(
    log: Path, programs: ProgramMap, shapes_file: Path | None, settings: PlaySettings, procs: int, base: Base
) -> Plan:
    """The jobs of a log as they are to be submitted to a cluster of so many processors. Raises :class:`BadInput`.

    A job of several sizes is counted on at its largest one there. What is too wide is submitted as it is: the service
    says so itself.
    """
    settings.check()
    lines = shapes.read(shapes_file) if shapes_file else {}
    load, sized = _loads(log, lines, settings, procs)
    rng = np.random.default_rng(settings.seed)
    seeds = rng.integers(1, 1 << 31, len(load)).tolist()
    rows = {int(number): row for row, number in enumerate(sized.job_id.tolist())} if sized is not load else {}
    jobs: list[PlannedJob] = []
    for row, number in enumerate(load.identities().tolist()):
        if settings.limit is not None and len(jobs) == settings.limit:
            break
        source, at = (sized, rows[number]) if number in rows else (load, row)
        line = lines.get(number)
        assert load.tasks is not None
        tasks = int(source.procs[at])
        known = Known(number, load.tasks.program[row], int(load.user[row]), tasks, _class_of(line))
        name = programs.of(known)
        run_us = max(1, round(int(source.run_us[at]) * settings.scale))
        limit_us = round(int(source.estimate_us[at]) * settings.scale) + settings.margin_us
        job = PlannedJob(
            number=number,
            at_us=round(int(load.submit_us[row] - load.submit_us[0]) * settings.scale),
            program=name,
            tasks=tasks,
            run_us=run_us,
            work=programs.programs[name].work(run_us, tasks),
            line=line,
            submission=_UNNAMED,
        )
        jobs.append(job._replace(submission=_submission(job, programs, limit_us, seeds[row], base)))
    return Plan(jobs, load.skipped)


_UNNAMED: Final = Submission(script="", directory="/")


def _loads(log: Path, lines: Mapping[int, Line], settings: PlaySettings, procs: int) -> tuple[Workload, Workload]:
    """The workload with all jobs as the log has them, and with those of several sizes at the largest of ``procs``."""
    read = swf.read(log)
    speed_up = speedups.parse(settings.speed_up)
    as_logged = not lines and settings.work is Work.LOGGED and speed_up is None
    wide: dict[int, int] = {}
    if not as_logged:
        check_numbers(read)
        read, wide = shapes.narrowed(read, lines, procs)
    if asking := [line for line in lines.values() if line.asks]:
        expected = "nothing: a program that is really there asks by itself"
        raise BadInput(f"{asking[0].where}: evolve", "requests of an evolving job", expected)
    load = prepare(read, InputRules(), tasks=TaskRules(memory_bytes=0))
    if not len(load):
        skipped = ", ".join(f"{n} {cause}" for cause, n in load.skipped.items()) or "none skipped"
        raise BadInput(str(log), f"no job can be played ({skipped})", "at least one usable job")
    told = estimates.parse(settings.estimates)
    load = estimates.with_estimates(load, told, np.random.default_rng(settings.seed))
    if as_logged:
        return load, load
    sized = shapes.apply(replace(load, procs_total=procs), lines, settings.work, speed_up, wide)
    logged = [wide.get(number, size) for number, size in zip(load.job_id.tolist(), load.procs.tolist(), strict=True)]
    return replace(load, procs=np.array(logged, np.int64)), sized


def _class_of(line: Line | None) -> str:
    return "" if line is None else "long" if line.long else "short"


def _submission(job: PlannedJob, programs: ProgramMap, limit_us: int, seed: int, base: Base) -> Submission:
    """What the service is told of a job, all but its name."""
    program, line = programs.programs[job.program], job.line
    said = {
        "PLAY_JOB": job.number,
        "PLAY_WORK": job.work,
        "PLAY_SECONDS": f"{job.run_us / US_PER_S:.6f}",
        "PLAY_TASKS": job.tasks,
        "PLAY_SEED": seed,
    }
    several = line is not None and (line.sizes != "" or line.least is not None or line.most is not None)
    return Submission(
        script=programs.scripts[job.program],
        arguments=tuple(program.arguments),
        tasks=1 if several else job.tasks,
        sizes=line.sizes or None if line else None,
        min_tasks=line.least if line else None,
        max_tasks=line.most if line else None,
        fold=line.foldable if line else None,
        job_class=_class_of(line) or None,
        time_limit_s=limit_us / US_PER_S,
        memory_bytes=program.memory_bytes,
        kind=program.kind,
        coscheduling=program.coscheduling,
        requeue=program.requeue,
        directory=base.directory,
        environment={**base.environment, **{name: str(value) for name, value in said.items()}},
        umask=base.umask,
    )
