"""One real run of a workload: a lab under a policy and a coscheduling mode, real MPI programs, users at desks.

The jobs of the paper's generator become jobs of the lab's programs of those names: so many iterations that each takes
its execution time alone, shortened by the experiment's scale. How long an iteration takes alone is measured on the same
lab before (:func:`rates`); what starting a job costs is part of its time alone, since it is part of its time.
"""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec

from cosched.apps.experiments import trials
from cosched.apps.experiments.attempts import Say
from cosched.apps.experiments.interference import InterferenceWatch
from cosched.apps.experiments.jobs import Jobs, moment_s, program
from cosched.apps.experiments.trials import Planned, TrialRecord
from cosched.apps.lab.lab import Lab
from cosched.apps.replicate.cisne import setup
from cosched.client.client import Client
from cosched.wire.api import JobDoc
from cosched.workload.generators.cisne import PROGRAMS, SIZES
from cosched.workload.log import Field

#: Jobs have so many times the paper's memory, and what a node leaves them is as many times that of the paper's nodes
#: without an owner: a rank of Python with MPI needs at least so much. A lab's contract leaves half of a node, whoever
#: is there.
MEMORY_TIMES: Final = 2
LEFT_BYTES: Final = MEMORY_TIMES * setup.MEMORY_BYTES
LEAST_BYTES: Final = 128 << 20
_RATED_S: Final = 4.0
_LONGEST_S: Final = 3600.0
_IN_HAND: Final = 1.25
_IN_HAND_S: Final = 5.0


class Cluster(NamedTuple):
    """An experiment's cluster and workload: nodes, synthetic users at so many desks, how nodes share the machine.

    ``jobs`` of a workload, ``scale``: seconds of ours for one of the paper's, ``size``: the programs' class.
    """

    experiment: str
    nodes: int
    users: int
    jobs: int
    scale: float
    size: str
    pin: bool = False
    cap: bool = False

    def load(self, ratio: float) -> float:
        """Work that comes, as a part of what its nodes can do meanwhile, as :func:`setup.load`."""
        return sum(self.widths) / len(self.widths) / (self.nodes * ratio)

    @property
    def widths(self) -> list[int]:
        """How many tasks its jobs have."""
        return [size for size in SIZES if size <= self.nodes]


#: A CPU for each node: nodes run at the same time, as workstations do.
COSCHEDULING: Final = Cluster("coscheduling", 2, 1, 8, 0.03, "W", pin=True)
#: The paper's sixteen nodes, each with its part of this machine and no more.
POLICIES: Final = Cluster("policies", 16, 4, 16, 0.07, "S", cap=True)


#: The ratios of trials that do not tell theirs.
EARLIER: Final = {"SIT": 0.2, "DIT": 1.0}


class RealJob(msgspec.Struct, frozen=True):
    """A job as it ran; times in seconds since the first submission. ``alone_s`` is what it should take alone."""

    program: str
    kind: str
    tasks: int
    alone_s: float
    submit_s: float
    start_s: float
    end_s: float
    nodes: list[str]


class Trial(TrialRecord, frozen=True):
    """A workload as it ran; ``took_s``: all of it.

    ``rates``: for "program tasks" the iterations in a second alone, and the seconds of a start; ``drift``: by how much
    faster programs ran alone when this trial was made than when its seed's iterations were worked out. ``ratio``: mean
    time between arrivals over mean execution time; None: of before it was kept (:data:`EARLIER`).
    """

    experiment: str
    policy: str
    mode: str
    workload: str
    seed: int
    rates: dict[str, tuple[float, float]]
    jobs: list[RealJob]
    took_s: float
    drift: float = 0.0
    ratio: float | None = None

    @property
    def planned(self) -> Planned:
        """See :class:`TrialRecord`."""
        return Planned(self.experiment, self.seed, (self.policy, self.mode, self.workload))

    @property
    def arrivals(self) -> float:
        """Mean time between arrivals over mean execution time."""
        return EARLIER[self.workload] if self.ratio is None else self.ratio

    @property
    def is_current(self) -> bool:
        """See :class:`TrialRecord`."""
        return self.arrivals == setup.WORKLOADS[self.workload]

    @property
    def measured(self) -> setup.Measured:
        """Means over its jobs, and the whole's makespan."""
        count = len(self.jobs)
        wait_s = sum(job.start_s - job.submit_s for job in self.jobs) / count
        execution_s = sum(job.end_s - job.start_s for job in self.jobs) / count
        makespan_s = max(job.end_s for job in self.jobs) - min(job.submit_s for job in self.jobs)
        return setup.Measured(wait_s, execution_s, wait_s + execution_s, makespan_s)


def lab(cluster: Cluster, say: Say, *, policy: str = "normal", mode: str = "none", users: int | None = None) -> Lab:
    """The experiment's lab. Raises :class:`Cannot` where this machine has no control groups for it."""
    return trials.lab(
        "cisne",
        cluster.nodes,
        say,
        "shares of a CPU",
        memory_bytes=round(LEFT_BYTES / setup.CONTRACT.memory_ratio),
        policy=policy,
        users=cluster.users if users is None else users,
        cap=cluster.cap,
        pin=cluster.pin,
        mpl=setup.MPL,
        coscheduling=mode,
    )


def rates(cluster: Cluster, say: Say) -> dict[str, tuple[float, float]]:
    """How many iterations a second each program does alone, by its number of tasks, and how long its start takes."""
    found = {}
    with lab(cluster, say, users=0) as up, up.client() as client:
        jobs = Jobs(client)
        for each in PROGRAMS:
            for tasks in cluster.widths:
                script = _script(each.name, cluster.size, "--seconds", f"{_RATED_S:g}")
                job = jobs.finish(jobs.submit(script, "none", tasks))
                told = json.loads(jobs.output(job.job_id).splitlines()[-1])
                assert job.run_s is not None
                rate, start_s = told["iterations"] / told["seconds"], job.run_s - told["seconds"]
                found[f"{each.name} {tasks}"] = rate, max(0.0, start_s)
                say(f"alone: {each.name}, {tasks} tasks: {rate:.2f} iterations a second, {start_s:.1f} s to start")
    return found


def run(
    cluster: Cluster,
    policy: str,
    mode: str,
    workload: str,
    seed: int,
    alone: Mapping[str, tuple[float, float]],
    say: Say,
) -> Trial:
    """Run one workload to its end. Raises :class:`Cannot` where a job fails."""
    began_s = time.monotonic()
    wanted = _jobs(cluster, setup.WORKLOADS[workload], seed, alone)
    with lab(cluster, say, policy=policy, mode=mode) as up, up.client() as client:
        watch = InterferenceWatch(up.name, say, tries=1)
        ended, taken = watch.run(lambda: _carried_out(client, mode, wanted), f"{workload} {policy} {mode} {seed}")
    first_s = min(moment_s(job.submit_time) for job in ended)
    jobs = [
        msgspec.structs.replace(
            want.job,
            submit_s=round(moment_s(job.submit_time) - first_s, 3),
            start_s=round(moment_s(job.start_time) - first_s, 3),
            end_s=round(moment_s(job.end_time) - first_s, 3),
            nodes=[share.name for share in job.nodes],
        )
        for want, job in zip(wanted, ended, strict=True)
    ]
    took_s = round(time.monotonic() - began_s, 1)
    ratio = setup.WORKLOADS[workload]
    told = dict(alone), jobs, took_s
    return Trial(cluster.experiment, policy, mode, workload, seed, *told, ratio=ratio, **taken._asdict())


class _Wanted(NamedTuple):
    job: RealJob
    script: str
    memory_bytes: int


def _jobs(cluster: Cluster, ratio: float, seed: int, alone: Mapping[str, tuple[float, float]]) -> list[_Wanted]:
    log = setup.log(ratio, seed, jobs=cluster.jobs, count=cluster.nodes)
    rows = zip(
        (log.column(Field.SUBMIT_S) * cluster.scale).tolist(),
        (log.column(Field.RUN_S) * cluster.scale).tolist(),
        log.column(Field.PROCS_REQUESTED).astype(int).tolist(),
        (log.column(Field.EXECUTABLE).astype(int) - 1).tolist(),
        (log.column(Field.MEMORY_KB) * 1024 * MEMORY_TIMES).astype(int).tolist(),
        strict=True,
    )
    found = []
    for submit_s, run_s, tasks, which, memory_bytes in rows:
        what = PROGRAMS[which]
        rate, start_s = alone[f"{what.name} {tasks}"]
        iterations = max(1, round((run_s - start_s) * rate))
        job = RealJob(what.name, what.kind, tasks, iterations / rate + start_s, submit_s, 0.0, 0.0, [])
        script = _script(what.name, cluster.size, "--iterations", str(iterations))
        found.append(_Wanted(job, script, max(LEAST_BYTES, memory_bytes)))
    return found


def _carried_out(client: Client, mode: str, wanted: Sequence[_Wanted]) -> list[JobDoc]:
    """Submit each at its moment, and wait for all."""
    jobs = Jobs(client)

    def submission(each: _Wanted) -> Callable[[], int]:
        limited = partial(jobs.submit, memory_bytes=each.memory_bytes, time_limit_s=estimate_s(each.job.alone_s))
        return partial(limited, each.script, mode, each.job.tasks, kind=each.job.kind)

    return jobs.played(((each.job.submit_s, submission(each)) for each in wanted), _LONGEST_S)


def estimate_s(alone_s: float) -> float:
    """What users say: the time alone, with a little in hand, since starts vary."""
    return _IN_HAND * alone_s + _IN_HAND_S


def _script(name: str, size: str, *how: str) -> str:
    return f"#!/bin/sh\nexec {program(name.lower(), size, *how, '--json')}\n"
