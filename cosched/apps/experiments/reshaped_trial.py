"""One real run of a workload of jobs that change shape: a lab under a policy, MPI programs of fixed work, verified.

The workload is that of the paper's generator, on the lab's few processors. A job's work follows from its time there and
from what its program does alone in a second on all processors, measured on the same lab (:func:`rates`). A lab has more
processors than this machine has CPUs: all of them together are as fast as those are, so that is what a load is of, and
a job on few of them is faster while the others are idle.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import msgspec
import numpy as np

from cosched import programs
from cosched.apps.experiments.attempts import Say
from cosched.apps.experiments.interference import InterferenceWatch
from cosched.apps.experiments.jobs import Cannot, Jobs
from cosched.apps.experiments.trials import Planned, TrialRecord, lab
from cosched.apps.lab.lab import Lab
from cosched.apps.play import prediction, results, session
from cosched.apps.play.play_log import PlayLog
from cosched.apps.play.player import Player
from cosched.apps.play.prediction import Measure
from cosched.apps.play.program_map import ProgramMap
from cosched.apps.play.results import PlayedJob
from cosched.apps.play.submissions import Base, PlannedJob, PlaySettings, planned
from cosched.client.client import Client
from cosched.errors import Failed
from cosched.model.job import JobState
from cosched.model.time import US_PER_S, us
from cosched.wire.api import JobDoc
from cosched.workload import shapes, swf
from cosched.workload.generators.registry import generate_shaped
from space_scheduler.reasons import Why

#: No job is to be ended by its limit: the machine may have other work.
_MARGIN_US: Final = 180 * US_PER_S
_PATIENCE_S: Final = 60.0
#: Why a job waits again that BFA has ended.
_ABORTED: Final = Why.ABORTED.name.lower()
_LOG, _SHAPES, _MAP, _RECORD = "log.swf", "shapes.csv", "map.yaml", "play.jsonl"


class Arm(NamedTuple):
    """What is compared: a policy, and whether jobs have all of their sizes or one."""

    name: str
    policy: str
    shaped: bool = True


class Experiment(NamedTuple):
    """A paper's experiment: its lab, its workload, its program, and what is compared in it.

    ``jobs`` of a workload, ``scale``: seconds of ours for one of the paper's. ``probe``: units of work by which its
    speed is measured. ``program`` gives the command line of a rank, from a directory that all nodes see.
    """

    paper: str
    nodes: int
    cpus: int
    jobs: int
    scale: float
    model: str
    parameters: Mapping[str, object]
    probe: int
    program: Callable[[Path], str]
    arms: tuple[Arm, ...]

    @property
    def procs(self) -> int:
        """Processors of the lab."""
        return self.nodes * self.cpus

    def told(self) -> dict[str, object]:
        """What must be the same in all trials that are held against each other."""
        return {
            "nodes": self.nodes,
            "cpus": self.cpus,
            "jobs": self.jobs,
            "scale": self.scale,
            "model": self.model,
            "parameters": dict(self.parameters),
            "arms": {arm.name: arm.policy for arm in self.arms},
        }


class Alone(NamedTuple):
    """A program alone on all processors: units of work in a second, and seconds of a start."""

    rate: float
    start_s: float


class Trial(TrialRecord, frozen=True, kw_only=True):
    """A workload as it ran under an arm. ``verified``: so many jobs had a right answer, by their own check.

    ``digests``: of answers, by the log's number of the job, where a program tells it. ``aborts``: how often a job was
    ended by the policy to wait again. ``took_s``: all of it. ``measures``: the simulator's prediction.
    """

    paper: str
    arm: str
    seed: int
    procs: int
    alone: Alone
    jobs: list[PlayedJob]
    verified: int
    digests: dict[str, str]
    measures: list[Measure]
    aborts: int = 0
    took_s: float

    @property
    def planned(self) -> Planned:
        """See :class:`TrialRecord`."""
        return Planned(self.paper, self.seed, (self.arm,))


def molecules(_: Path) -> str:
    """A rank of the malleable molecular dynamics program: a unit of work is a step."""
    return shlex.join([sys.executable, "-P", "-m", "cosched.programs.malleable", "molecules", "--size", "500", "--json"]
                      ) + " --steps $PLAY_WORK"  # fmt: skip


def conjugate_gradients(directory: Path) -> str:
    """A rank of CG in C, compiled there: a unit of work is a problem. Raises :class:`Cannot` without a compiler."""
    compiler = shutil.which("mpicc", path=os.path.dirname(sys.executable) + ":" + os.environ.get("PATH", ""))
    if compiler is None:
        raise Cannot("no mpicc: the programs of this experiment are in C, for the MPI whose mpirun they have")
    program, source = directory / "cg", Path(programs.__file__).parent / "c" / "cg_mpi.c"
    argv = [compiler, "-O2", "-std=gnu11", "-o", str(program), str(source), "-lm"]
    made = subprocess.run(argv, capture_output=True, text=True, check=False)
    if made.returncode:
        raise Cannot(f"{compiler} fails: {made.stderr[-300:]}")
    return f"{shlex.quote(str(program))} 100000 $PLAY_WORK"


def rates(experiment: Experiment, say: Say) -> Alone:
    """How fast the program is alone, on all processors: a run of one unit of work, which is a start, and a long one."""
    with tempfile.TemporaryDirectory() as directory:
        script = _script(experiment, Path(directory))
        with _lab(experiment, experiment.arms[0].policy, directory, say) as up, up.client() as client:
            jobs = Jobs(client)
            short_s, long_s = (_alone_s(jobs, script, experiment.procs, work) for work in (1, experiment.probe))
    if long_s <= short_s:
        raise Cannot(f"{experiment.probe} units of work took no longer than one: a busy machine")
    alone = Alone(round((experiment.probe - 1) / (long_s - short_s), 3), round(short_s, 3))
    say(f"alone: {alone.rate:.1f} units of work in a second on all processors, {alone.start_s:.1f} s to start")
    return alone


def run(experiment: Experiment, arm: Arm, seed: int, alone: Alone, say: Say) -> Trial:
    """Run one workload to its end."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        base = Base("/", _environment(), 0o022)
        plan = _plan(experiment, arm, seed, alone, directory, base)
        with (
            _lab(experiment, arm.policy, name, say) as up,
            up.client() as client,
            closing(PlayLog(directory / _RECORD)) as record,
        ):
            watch = InterferenceWatch(up.name, say, tries=1)
            service = session.found(client)
            _, taken = watch.run(lambda: _play(client, plan, record, service, say), f"{arm.name} {seed}")
            rows = results.rows(plan, record, results.bound(experiment.scale))
            verified, digests = _answers(client, rows)
    return Trial(
        paper=experiment.paper,
        arm=arm.name,
        seed=seed,
        procs=experiment.procs,
        alone=alone,
        jobs=rows,
        verified=verified,
        digests=digests,
        measures=_predicted(experiment, arm, plan, rows, service, say),
        aborts=sum(_aborts(each.job) for each in record.ended.values() if each.job is not None),
        took_s=round(time.monotonic() - began_s, 1),
        steal=round(taken.steal, 4),
        others=round(taken.others, 4),
        in_force=taken.in_force,
    )


def _lab(experiment: Experiment, policy: str, keep: str, say: Say) -> Lab:
    how = {"cpus": experiment.cpus, "policy": policy, "keep": [keep]}
    return lab(experiment.paper, experiment.nodes, say, "processors of jobs", **how)


def _environment() -> dict[str, str]:
    return {"PATH": os.path.dirname(sys.executable) + ":" + os.environ.get("PATH", "/usr/bin:/bin")}


def _script(experiment: Experiment, directory: Path) -> str:
    return f"exec mpirun {experiment.program(directory)} </dev/null\n"


def _alone_s(jobs: Jobs, script: str, tasks: int, work: int) -> float:
    run_s = jobs.finish(jobs.submit(f"#!/bin/sh\nPLAY_WORK={work}\n{script}", "none", tasks)).run_s
    assert run_s is not None
    return run_s


def _plan(experiment: Experiment, arm: Arm, seed: int, alone: Alone, directory: Path, base: Base) -> list[PlannedJob]:
    """The jobs of a seed: the same work in all arms, that which the job has with all of its sizes."""
    log, lines = generate_shaped(
        experiment.model, experiment.jobs, experiment.procs, np.random.default_rng(seed), experiment.parameters
    )
    swf.write(log, directory / _LOG)
    whole = {n: line._replace(resident=line.least is not None) for n, line in lines.items()}
    shapes.write(whole, directory / _SHAPES)
    (directory / _MAP).write_text(json.dumps(_map(experiment, alone, directory)))
    programs_of = ProgramMap(directory / _MAP)
    settings = PlaySettings(scale=experiment.scale, seed=seed, margin_us=_MARGIN_US)
    plans = [
        planned(directory / _LOG, programs_of, lines_file, settings, experiment.procs, base).jobs
        for lines_file in (directory / _SHAPES, None)
    ]
    if arm.shaped:
        return plans[0]
    program = programs_of.programs[experiment.paper]
    made = []
    for wide, job in zip(*plans, strict=True):
        run_us = us(alone.start_s + wide.work / program.units_per_s(job.tasks))
        told = {**job.submission.environment, "PLAY_WORK": str(wide.work)}
        submission = msgspec.structs.replace(job.submission, environment=told)
        made.append(job._replace(work=wide.work, run_us=run_us, submission=submission))
    return made


def _map(experiment: Experiment, alone: Alone, directory: Path) -> dict[str, object]:
    program = {
        "run": _script(experiment, directory),
        "rate": alone.rate / experiment.procs,
        "startup": f"{us(alone.start_s)}us",
    }
    return {"programs": {experiment.paper: program}, "jobs": [{"program": experiment.paper}]}


def _play(client: Client, plan: Sequence[PlannedJob], record: PlayLog, service: session.Found, say: Say) -> None:
    inputs = [record.path.parent / name for name in (_LOG, _SHAPES, _MAP)]
    tag = record.begin(session.begun(inputs, PlaySettings(), {}, service.cluster))
    record.keep(session.part(record, service, sys.argv[1:]))
    Player(client, plan, record, tag, say=say, patience_s=_PATIENCE_S).play()


def _answers(client: Client, rows: Sequence[PlayedJob]) -> tuple[int, dict[str, str]]:
    """How many jobs say that their answer is right, and the digests of answers."""
    jobs, verified, digests = Jobs(client), 0, {}
    for row in rows:
        if row.state != "completed" or row.number is None:
            continue
        told = json.loads(jobs.output(row.number).splitlines()[-1])
        verified += told["verified"] is True
        if "digest" in told:
            digests[str(row.job_id)] = told["digest"]
    return verified, digests


def _aborts(job: JobDoc) -> int:
    """How often it was queued again for that reason; it was ending for the same one before."""
    again = (step.reason for step in job.history if step.state == JobState.QUEUED)
    return sum(reason is not None and reason.why == _ABORTED for reason in again)


def _predicted(
    experiment: Experiment,
    arm: Arm,
    plan: Sequence[PlannedJob],
    rows: Sequence[PlayedJob],
    service: session.Found,
    say: Say,
) -> list[Measure]:
    """The simulator's word; nothing where it has none."""
    try:
        found = prediction.predicted(plan, rows, service.nodes, arm.policy, bound_s=results.bound(experiment.scale))
    except Failed as error:
        say(f"no prediction: {error}")
        return []
    return found.measures if found else []
