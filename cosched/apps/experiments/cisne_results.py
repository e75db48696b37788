"""What real trials say: the paper's figures 7 to 10 redrawn, a verdict for each claim, and every job's raw data."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np

from cosched.apps.experiments import cisne_pairs
from cosched.apps.experiments.cisne_trial import COSCHEDULING as COSCHEDULING_LAB
from cosched.apps.experiments.cisne_trial import RealJob, Trial
from cosched.apps.experiments.trials import Hows
from cosched.apps.replicate import claims as judging
from cosched.apps.replicate.cisne import claims, figures, setup
from cosched.apps.replicate.cisne.claims import Compared
from cosched.apps.replicate.cisne.setup import POLICIES, WORKLOADS, Measured
from cosched.apps.replicate.claims import Claim, Premise, Region
from cosched.apps.replicate.paired import over_common_seeds
from cosched.apps.replicate.result import Plot, Result
from cosched.metrics.intervals import of_replications
from cosched.model.coscheduling import Mode
from cosched.report.table import Table

COSCHEDULING: Final = "coscheduling"


class Case(NamedTuple):
    """Where modes are compared with plain Linux, and which claim that decides."""

    policy: str
    workload: str
    modes: tuple[Mode, ...]
    direction: judging.Predicate
    size: judging.Predicate | None = None


#: On two nodes of which one has an owner Uniform would have all tasks of a job on the other: it does not ask here where
#: owners are.
CASES: Final = (
    Case(
        "3dbf-light(any-owners)",
        "SIT",
        (Mode.NONE, Mode.CCS, Mode.DCS, Mode.SPIN, Mode.GANG),
        claims.CCS_SIT,
        claims.CCS_SIT_SIZE,
    ),
    Case("normal", "DIT", (Mode.NONE, Mode.CCS), claims.CCS_DIT, claims.CCS_DIT_SIZE),
    Case("basic", "SIT", (Mode.NONE, Mode.CCS), claims.CCS_ONE),
)


#: What owners waited for, by tasks and mode (``cosched bench contract``).
Waits = Mapping[tuple[int, str], Sequence[float]]


def report(trials: Sequence[Trial], _: Hows, result: Result, waits_ms: Waits) -> None:
    """Add tables, figures and verdicts."""
    result.tables["jobs"] = _jobs(trials)
    trials = _of_now(trials)
    _modes([each for each in trials if each.experiment == COSCHEDULING], result)
    _policies([each for each in trials if each.experiment != COSCHEDULING], result)
    _latency(waits_ms, result)
    for name in dict.fromkeys(each.experiment for each in trials):
        result.notes.append(_distortion(name, [each for each in trials if each.experiment == name]))


def sentence(trial: Trial) -> str:
    """A trial in a few words."""
    return f"turnaround {trial.measured.turnaround_s:.1f} s, makespan {trial.measured.makespan_s:.1f} s"


def _of_now(trials: Sequence[Trial]) -> list[Trial]:
    """The trials without those of a load of before where there are any of the load of now."""
    now = {(each.experiment, each.workload) for each in trials if each.is_current}
    return [each for each in trials if each.is_current or (each.experiment, each.workload) not in now]


def _load(trials: Sequence[Trial], workload: str) -> Premise:
    """That a workload's trials have the paper's time between arrivals; true where there are none."""
    paper = WORKLOADS[workload]
    found = next((each.arrivals for each in trials if each.workload == workload), paper)
    return Premise(f"{workload}: time between arrivals over execution time", found, Region(paper, paper))


def _size(workload: str, arrivals: float) -> list[Premise]:
    """What the size of an effect rests on, beside its direction: the paper's nodes, and their load within a tenth."""
    cluster, paper = COSCHEDULING_LAB, setup.load(WORKLOADS[workload])
    load = Premise("load", cluster.load(arrivals), Region(round(0.9 * paper, 3), round(1.1 * paper, 3)))
    return [Premise("nodes", cluster.nodes, Region(setup.NODES, setup.NODES)), load]


def _modes(trials: Sequence[Trial], result: Result) -> None:
    """Fig. 7, and what CCS does for execution times."""
    times = Table(
        "Fig. 7: mean execution time by mode, s, with 95 % intervals; against plain Linux over the same seeds",
        ["workload", "policy", "mode", "seeds", "mean", "low", "high", "against plain", "from", "to"],
    )
    for case in CASES:
        base = _values(trials, "execution_s", case.policy, case.workload, Mode.NONE)
        for mode in case.modes:
            found = _values(trials, "execution_s", case.policy, case.workload, mode)
            if found:
                own = of_replications(list(found.values()))
                against = over_common_seeds(found, base)
                three = (None, None, None) if against is None else (against.mean, against.low, against.high)
                times.add(case.workload, case.policy, mode, len(found), own.mean, own.low, own.high, *three)
        ccs = over_common_seeds(_values(trials, "execution_s", case.policy, case.workload, Mode.CCS), base)
        name = f"{case.policy}, {case.workload}"
        cases = {} if ccs is None else {name: ccs}
        load = _load(trials, case.workload)
        result.claims.append(judging.under([load], judging.judge_every(case.direction, cases)))
        if case.size is not None:
            premises = [*_size(case.workload, load.found), load]
            result.claims.append(judging.under(premises, judging.judge_every(case.size, cases)))
    result.tables["figure7"] = times
    if times.rows:
        result.plots["figure7"] = Plot(lambda axes: figures.modes(axes, times), (9.0, 5.0))


def _policies(trials: Sequence[Trial], result: Result) -> None:
    """Figures 8 and 9, what is claimed of policies, and whether the simulator has the same of them."""
    cells = _cells(trials)
    users = figures.report(cells, result)
    for load in WORKLOADS:
        if counts := [len(found["wait_s"]) for (of, _), found in cells.items() if of == load]:
            users.notes.append(f"{load}: {counts[0]} seeds that all of its {len(counts)} policies here have run")
    for compared in claims.COMPARED:
        result.claims.append(_compared(trials, compared))
    dit, sit = (_values(trials, "makespan_s", "uniform-hard", load, Mode.CCS) for load in ("DIT", "SIT"))
    same = over_common_seeds(dit, sit)
    result.claims.append(
        judging.cannot_judge(claims.MAKESPAN_HARD, "no case to judge")
        if same is None
        else judging.under([_load(trials, load) for load in WORKLOADS], judging.judge(claims.MAKESPAN_HARD, same))
    )
    pairs_found, told = cisne_pairs.compare(trials)
    result.tables["pairs"] = pairs_found
    result.notes += told


def _compared(trials: Sequence[Trial], compared: Compared) -> Claim:
    """A claim on policies over the workloads whose load is the paper's; where none is, not comparable."""
    claim, what, pairs, loads = compared
    premises = {load: _load(trials, load) for load in loads}
    fit = [load for load, each in premises.items() if each.holds]
    cases = {}
    for load, (policy, base) in product(fit or loads, pairs):
        ours, others = (_values(trials, what, each, load, Mode.CCS) for each in (policy, base))
        if (found := over_common_seeds(ours, others)) is not None:
            cases[f"{policy} against {base}, {load}"] = found
    left_out = [f"left out: {each}" for load, each in premises.items() if fit and load not in fit]
    made = judging.judge_every(claim, cases, "; ".join(left_out))
    return made if fit else judging.under(premises.values(), made)


def _latency(waits_ms: Waits, result: Result) -> None:
    """Fig. 10: what owners wait for under the contract, by the number of tasks and the mode. The worst run is judged.

    (``cosched bench contract`` draws the same runs with medians and controls.)
    """
    if not waits_ms:
        missing = "no undisturbed runs of 'cosched bench contract --modes none,spin,dcs,ccs' in the directory of --out"
        result.claims.append(judging.cannot_judge(claims.LATENCY, missing))
        return
    table = Table(
        "Fig. 10: wake-ups' 99th percentiles of an owner, ms, means of the runs' with 95 % intervals",
        ["tasks", "mode", "runs", "mean", "low", "high", "worst"],
    )
    cases = {}
    for (tasks, mode), waits in waits_ms.items():
        found = of_replications(waits)
        table.add(tasks, mode, len(waits), found.mean, found.low, found.high, max(waits))
        if mode == Mode.CCS:
            cases[f"{tasks} tasks, the worst of {len(waits)} runs"] = max(waits)
    result.tables["figure10"] = table
    result.plots["figure10"] = Plot(lambda axes: figures.waits(axes, table), (7.0, 4.5))
    plain = max((max(waits) for (_, mode), waits in waits_ms.items() if mode == Mode.NONE), default=None)
    note = "" if plain is None else f"a bound that nothing here can break: plain Linux's worst is {plain:.3g} ms"
    result.claims.append(judging.judge_every(claims.LATENCY, cases, note))


def _cells(trials: Sequence[Trial]) -> dict[tuple[str, str], dict[str, list[float]]]:
    """The measures of every policy, of the seeds that all policies of a workload that were run have in common."""
    found = {}
    for load in WORKLOADS:
        by_policy = {policy: _values(trials, "wait_s", policy, load, Mode.CCS) for policy in POLICIES}
        ran = {policy: set(seeds) for policy, seeds in by_policy.items() if seeds}
        common = sorted(set.intersection(*ran.values())) if ran else []
        for policy in ran if common else ():
            found[load, policy] = {
                what: [_values(trials, what, policy, load, Mode.CCS)[seed] for seed in common]
                for what in Measured._fields
            }
    return found


def _values(trials: Sequence[Trial], what: str, policy: str, load: str, mode: str) -> dict[int, float]:
    return {
        each.seed: getattr(each.measured, what)
        for each in trials
        if (each.policy, each.workload, each.mode) == (policy, load, mode)
    }


def _jobs(trials: Sequence[Trial]) -> Table:
    """Every job of every trial: the raw data."""
    keys = ["experiment", "policy", "mode", "workload", "seed"]
    fields = ["program", "kind", "tasks", "alone_s", "submit_s", "start_s", "end_s"]
    table = Table("Every job", [*keys, *fields, "nodes"])
    for each, job in _each_job(trials):
        told = [getattr(each, key) for key in keys] + [getattr(job, name) for name in fields]
        table.add(*told, " ".join(job.nodes))
    return table


def _each_job(trials: Sequence[Trial]) -> Iterator[tuple[Trial, RealJob]]:
    for each in trials:
        for job in each.jobs:
            yield each, job


def _distortion(experiment: str, trials: Sequence[Trial]) -> str:
    """What was not as on real workstations: how much of the machine others took, and how far starts weigh."""
    starts = [start_s for each in trials for _, start_s in each.rates.values()]
    alone = [job.alone_s for _, job in _each_job(trials)]
    steal, others = (float(np.max([getattr(each, name) for each in trials])) for name in ("steal", "others"))
    in_force = [each.in_force for each in trials if each.in_force is not None]
    contract = (
        f" The contract was in force at desks with an owner for {min(in_force):.0%} to {max(in_force):.0%} of a trial."
        if in_force
        else ""
    )
    took_s = sum(each.took_s for each in trials)
    drifted = max((each.drift for each in trials), key=abs)
    return (
        f"{experiment}: {len(trials)} trials in {took_s / 60:.0f} min. Starting a job takes {np.median(starts):.1f} s "
        f"of the {np.median(alone):.1f} s that it takes alone (medians), and {_single(trials):.0%} of the jobs are a "
        f"start and a single iteration. At most {steal:.1%} of the machine were taken by the hypervisor in a trial, "
        f"{others:.1%} by others. Since a seed's iterations were worked out, programs have become faster alone by up "
        f"to {drifted:+.1%}.{contract}"
    )


def _single(trials: Sequence[Trial]) -> float:
    """Which part of the jobs is a single iteration: so much is left of the paper's differences between them."""
    single = []
    for each, job in _each_job(trials):
        rate, start_s = each.rates[f"{job.program} {job.tasks}"]
        single.append((job.alone_s - start_s) * rate < 1.5)
    return sum(single) / len(single)
