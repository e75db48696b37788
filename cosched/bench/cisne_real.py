"""The real part: workloads on labs, with real agents, MPI programs and synthetic users, in two experiments.

*Coscheduling* asks what CCS and the other modes do for execution times: two nodes with a CPU each, so that nodes run at
the same time; jobs of two tasks. *Policies* asks where and when jobs should start: sixteen virtual workstations, each
with its part of this machine and no more; receivers that yield. Workloads are scaled in time (``trial``).

Every trial is written down when it is made (``trials.jsonl``), so that the work of several days adds up.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, product
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from cosched.bench import cisne_trial as trial
from cosched.bench.cisne_trial import Cluster, Say, Trial
from cosched.bench.jobs import Cannot
from cosched.bench.kept import Kept
from cosched.errors import BadInput, Failed, nearest
from cosched.metrics.intervals import of_replications
from cosched.model.coscheduling import Mode
from cosched.replicate import claims as judging
from cosched.replicate.cisne import claims
from cosched.replicate.cisne.setup import POLICIES, WORKLOADS
from cosched.replicate.paired import relative_difference
from cosched.replicate.papers import TITLES
from cosched.replicate.result import Result
from cosched.report.table import Table

RUNS: Final = "trials"
#: Where a mode is compared with plain Linux: policy, workload, modes. On two nodes of which one has an owner Uniform
#: would have all tasks of a job on the other: it does not ask here where owners are.
_MODES: Final = (
    ("3dbf-light(any-owners)", "SIT", (Mode.NONE, Mode.CCS, Mode.DCS, Mode.SPIN, Mode.GANG)),
    ("normal", "DIT", (Mode.NONE, Mode.CCS)),
    ("basic", "SIT", (Mode.NONE, Mode.CCS)),
)
_SEEDS: Final = 3
CLUSTERS: Final = {cluster.experiment: cluster for cluster in (trial.COSCHEDULING, trial.POLICIES)}


class Planned(NamedTuple):
    """A trial to make."""

    cluster: Cluster
    policy: str
    mode: Mode
    workload: str
    seed: int


def plan(experiments: Sequence[str], seeds: Sequence[int]) -> list[Planned]:
    """All trials, seed by seed, so that an interrupted campaign has whole replications."""
    found = []
    for seed in seeds:
        for name in experiments:
            cluster = CLUSTERS[name]
            if name == "coscheduling":
                found += [Planned(cluster, p, mode, load, seed) for p, load, modes in _MODES for mode in modes]
            else:
                found += [Planned(cluster, p, Mode.CCS, load, seed) for load in WORKLOADS for p in POLICIES]
    return found


def measure(kept: Kept[Trial], experiments: Sequence[str], seeds: int, say: Say) -> dict[str, str]:
    """Make the trials of so many further seeds; what could not be made, and why."""
    first = 1 + max((each.seed for each in chain.from_iterable(kept.campaigns)), default=0)
    refused: dict[str, str] = {}
    alone: dict[str, Mapping[str, tuple[float, float]]] = {}
    for wanted in plan(experiments, range(first, first + seeds)):
        name = wanted.cluster.experiment
        what = f"{name}, seed {wanted.seed}: {wanted.policy}, {wanted.mode}, {wanted.workload}"
        try:
            if name not in alone:
                alone[name] = trial.rates(wanted.cluster, say)
            made = trial.run(*wanted, alone[name], say)
        except Cannot as error:
            refused[what] = str(error)
            say(f"{what}: {error}")
            continue
        kept.keep(made)
        say(f"{what}: turnaround {made.measured.turnaround_s:.1f} s, makespan {made.measured.makespan_s:.1f} s")
    return refused


def replicate_real(seeds: int | None, out: Path | None, say: Say, *, add: bool, experiments: Sequence[str]) -> Result:
    """Make trials of so many seeds (0: none; None: three), and judge all that there are in ``out``.

    ``experiments``: which (empty: all). Raises :class:`BadInput`, and :class:`Failed` where there is no trial.
    """
    for name in experiments:
        if name not in CLUSTERS:
            raise BadInput("--experiments", f"{name!r}", ", ".join(CLUSTERS), nearest=nearest(name, CLUSTERS))
    kept = Kept(out, RUNS, Trial)
    refused: dict[str, str] = {}
    if seeds != 0:
        kept.begin({name: list(cluster) for name, cluster in CLUSTERS.items()}, add=add)
        refused = measure(kept, experiments or tuple(CLUSTERS), _SEEDS if seeds is None else seeds, say)
    return judged(list(chain.from_iterable(kept.campaigns)), kept.hows, refused)


def judged(trials: Sequence[Trial], hows: Sequence[Mapping[str, Any]], refused: Mapping[str, str]) -> Result:
    """Tables and verdicts. Raises :class:`Failed` where there is no trial."""
    if not trials:
        raise Failed("no trial was made" + "".join(f"; {what}: {why}" for what, why in refused.items()))
    result = Result("cisne", f"{TITLES['cisne']} (real runs)", {"real": True, "hows": list(hows)})
    result.tables["jobs"] = _jobs(trials)
    found = [each for each in trials if each.experiment == "coscheduling"]
    result.tables["coscheduling"] = _times("Coscheduling: mean execution time by mode, s", found, "execution_s")
    modes = [_against(found, "execution_s", p, load, Mode.CCS, (p, Mode.NONE)) for p, load, _ in _MODES]
    result.claims += [
        judging.judge_every(claim, {case: each for case, each in [pair] if each is not None})
        for claim, pair in zip((claims.CCS_SIT, claims.CCS_DIT, claims.CCS_ONE), modes, strict=True)
    ]
    policies = [each for each in trials if each.experiment == "policies"]
    for what in ("execution_s", "wait_s", "turnaround_s", "makespan_s"):
        result.tables[f"policies-{what.removesuffix('_s')}"] = _times(f"Policies: {what}", policies, what)
    for claim, what, pairs, loads in claims.COMPARED:
        cases = [
            _against(policies, what, policy, load, Mode.CCS, (base, Mode.CCS))
            for load, (policy, base) in product(loads, pairs)
        ]
        result.claims.append(judging.judge_every(claim, {case: each for case, each in cases if each is not None}))
    hard = [_values(policies, "makespan_s", "uniform-hard", load, Mode.CCS) for load in ("DIT", "SIT")]
    if both := sorted(hard[0].keys() & hard[1].keys()):
        same = relative_difference([hard[0][seed] for seed in both], [hard[1][seed] for seed in both])
        result.claims.append(judging.judge(claims.MAKESPAN_HARD, same))
    else:
        result.claims.append(judging.cannot_judge(claims.MAKESPAN_HARD, "no case to judge"))
    result.claims.append(judging.cannot_judge(claims.LATENCY, "measured by 'cosched bench contract'"))
    result.notes += [f"not run: {what}: {why}" for what, why in refused.items()]
    result.notes.append(_distortion(trials))
    return result


def _values(trials: Sequence[Trial], what: str, policy: str, load: str, mode: str) -> dict[int, float]:
    return {
        each.seed: getattr(each.measured, what)
        for each in trials
        if (each.policy, each.workload, each.mode) == (policy, load, mode)
    }


def _against(
    trials: Sequence[Trial], what: str, policy: str, load: str, mode: str, base: tuple[str, str]
) -> tuple[str, Any]:
    """A case's name, and the relative difference over the seeds that both were run with; None without any."""
    ours, others = _values(trials, what, policy, load, mode), _values(trials, what, base[0], load, base[1])
    both = sorted(ours.keys() & others.keys())
    case = f"{policy} against {base[0]}, {load}"
    if not both:
        return case, None
    return case, relative_difference([ours[seed] for seed in both], [others[seed] for seed in both])


def _times(caption: str, trials: Sequence[Trial], what: str) -> Table:
    table = Table(caption, ["workload", "policy", "mode", "seeds", "mean", "low", "high"])
    for load, policy, mode in dict.fromkeys((each.workload, each.policy, each.mode) for each in trials):
        found = list(_values(trials, what, policy, load, mode).values())
        interval = of_replications(found)
        table.add(load, policy, mode, len(found), interval.mean, interval.low, interval.high)
    return table


def _jobs(trials: Sequence[Trial]) -> Table:
    """Every job of every trial: the raw data."""
    keys = ["experiment", "policy", "mode", "workload", "seed"]
    fields = ["program", "kind", "tasks", "alone_s", "submit_s", "start_s", "end_s"]
    table = Table("Every job", [*keys, *fields, "nodes"])
    for each, job in _each_job(trials):
        told = [getattr(each, key) for key in keys] + [getattr(job, name) for name in fields]
        table.add(*told, " ".join(job.nodes))
    return table


def _each_job(trials: Sequence[Trial]) -> Iterator[tuple[Trial, trial.RealJob]]:
    for each in trials:
        for job in each.jobs:
            yield each, job


def _distortion(trials: Sequence[Trial]) -> str:
    """What was not as on real workstations: how much of the machine others took, and how far starts weigh."""
    starts = [start_s for each in trials for _, start_s in each.rates.values()]
    alone = [job.alone_s for _, job in _each_job(trials)]
    steal, others = (float(np.max([getattr(each, name) for each in trials])) for name in ("steal", "others"))
    took_s = sum(each.took_s for each in trials)
    return (
        f"{len(trials)} trials in {took_s / 60:.0f} min. Starting a job takes {np.median(starts):.1f} s of the "
        f"{np.median(alone):.1f} s that it takes alone (medians). At most {steal:.1%} of the machine were taken by the "
        f"hypervisor in a trial, {others:.1%} by others."
    )
