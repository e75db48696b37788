"""The simulated part: seven policies, two workloads, two time-sharing models, many seeds; tables, figures, verdicts.

Every seed has its own jobs, arrivals and owners, the same for all policies: differences are paired.
"""

from itertools import product
from typing import Any, Final

import msgspec
import numpy as np

from cosched.apps.replicate import claims as judging
from cosched.apps.replicate.cisne import claims, figures, setup, tables
from cosched.apps.replicate.cisne.setup import FULL, POLICIES, QUICK, TIME_SHARING, WORKLOADS, Measured, Scale
from cosched.apps.replicate.paired import relative_difference
from cosched.apps.replicate.papers import TITLES, Request
from cosched.apps.replicate.pool import Begin, Call, carry_out
from cosched.apps.replicate.result import Plot, Result
from cosched.config import coefficients
from cosched.errors import BadInput
from cosched.model.coscheduling import Mode
from cosched.report.table import Table
from space_scheduler.progress import Sharing

PAPER: Final = "cisne"
#: (time sharing, ratio, policy) -> the runs of all seeds, shape (seeds, 4).
Runs = dict[tuple[Mode, float, str], np.ndarray[Any, np.dtype[np.float64]]]
_AT: Final = {name: at for at, name in enumerate(Measured._fields)}
CALIBRATION: Final = "input: calibration"


def replicate(request: Request, begin: Begin) -> Result:
    """Run the simulated part, full or quick."""
    if request.log is not None:
        raise BadInput("LOG", request.log, "none: the paper's workload is generated")
    scale = QUICK if request.quick else FULL
    if request.seeds is not None:
        scale = msgspec.structs.replace(scale, seeds=request.seeds)
    return replicate_at(scale, request, begin)


def replicate_at(scale: Scale, request: Request, begin: Begin) -> Result:
    """Run it at a given scale."""
    measured = coefficients.read()
    sharing = {mode: Sharing(mode, measured.permille(mode)) for mode in TIME_SHARING}
    cells = [
        (mode, ratio, policy, scale.seeds)
        for mode in TIME_SHARING
        for ratio in WORKLOADS.values()
        for policy in POLICIES
    ]
    cells += [
        (Mode.CCS, ratio, policy, scale.sweep_seeds)
        for ratio in scale.sweep
        if ratio not in WORKLOADS.values()
        for policy in POLICIES
    ]
    calls = [
        Call(setup.measured, (policy, ratio, seed, sharing[mode], request.owners), 1 / ratio)
        for mode, ratio, policy, seeds in cells
        for seed in range(1, seeds + 1)
    ]
    free = [(ratio, policy) for ratio in WORKLOADS.values() for policy in POLICIES]
    calls += [
        Call(setup.measured, (policy, ratio, seed, Sharing(Mode.CCS), request.owners), 1 / ratio)
        for ratio, policy in free
        for seed in range(1, scale.seeds + 1)
    ]
    answers = iter(carry_out(calls, request.workers, begin, f"replicating {PAPER}, simulations"))
    runs: Runs = {
        (mode, ratio, policy): np.array([next(answers) for _ in range(seeds)]) for mode, ratio, policy, seeds in cells
    }
    costless: Runs = {
        (Mode.CCS, ratio, policy): np.array([next(answers) for _ in range(scale.seeds)]) for ratio, policy in free
    }
    result = Result(PAPER, TITLES[PAPER], _configuration(scale, measured, request))
    _tables(runs, result)
    _judge(runs, result)
    _costless(runs, costless, result)
    if scale.sweep:
        _sweep(scale, runs, result)
    result.notes += _notes(measured, request.owners)
    return result


def column(runs: Runs, mode: Mode, ratio: float, policy: str, what: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """One measure of all seeds, shape (seeds,)."""
    found: np.ndarray[Any, np.dtype[np.float64]] = runs[mode, ratio, policy][:, _AT[what]]
    return found


def _tables(runs: Runs, result: Result) -> None:
    times = Table(
        f"Fig. 7: mean execution time, s ({CALIBRATION})",
        ["workload", "policy", "plain Linux", "CCS", "CCS is shorter by"],
    )
    for workload, policy in product(WORKLOADS, POLICIES):
        linux, ccs = (column(runs, mode, WORKLOADS[workload], policy, "execution_s") for mode in TIME_SHARING)
        times.add(
            workload, policy, *(float(each.mean()) for each in (linux, ccs)), float(1 - ccs.mean() / linux.mean())
        )
    times.notes.append("what time sharing costs was measured and put in: one column against the other is no finding")
    cells = {
        (workload, policy): {what: column(runs, Mode.CCS, WORKLOADS[workload], policy, what) for what in _AT}
        for workload, policy in product(WORKLOADS, POLICIES)
    }
    users = tables.users("Fig. 8: mean wait, execution and turnaround under CCS, s, with 95 % intervals", cells)
    makespans = tables.makespans("Fig. 9: makespan under CCS, s", cells)
    result.tables |= {"figure7": times, "figure8": users, "figure9": makespans}
    result.plots |= {
        "figure7": Plot(lambda axes: figures.execution(axes, times), (9.0, 4.5)),
        "figure8": Plot(lambda axes: figures.users(axes, users), (9.0, 5.0)),
        "figure9": Plot(lambda axes: figures.makespans(axes, makespans), (9.0, 4.5)),
    }


def _judge(runs: Runs, result: Result) -> None:
    for claim, what, pairs, workloads in claims.COMPARED:
        cases = {}
        for workload, (policy, base) in product(workloads, pairs):
            ours, others = (column(runs, Mode.CCS, WORKLOADS[workload], each, what) for each in (policy, base))
            cases[f"{policy} against {base}, {workload}"] = relative_difference(ours, others)
        result.claims.append(judging.judge_every(claim, cases))
    hard_dit, hard_sit = (
        column(runs, Mode.CCS, WORKLOADS[workload], "uniform-hard", "makespan_s") for workload in ("DIT", "SIT")
    )
    result.claims.append(judging.judge(claims.MAKESPAN_HARD, relative_difference(hard_dit, hard_sit)))
    result.claims += [judging.cannot_judge(each, "decided by real runs alone") for each in claims.REAL_ALONE]


def _costless(runs: Runs, costless: Runs, result: Result) -> None:
    """What the measured costs decide: everything again as if sharing cost nothing but the share of the CPU."""
    table = Table(
        "Under CCS against Basic, relative differences: with the measured costs of sharing, and as if it cost nothing",
        ["workload", "policy", "turnaround", "turnaround, costless", "makespan", "makespan, costless"],
    )
    for workload, ratio in WORKLOADS.items():
        for policy in POLICIES[1:]:
            values = []
            for what in ("turnaround_s", "makespan_s"):
                for found in (runs, costless):
                    ours, basic = (column(found, Mode.CCS, ratio, each, what).mean() for each in (policy, "basic"))
                    values.append(float(ours / basic - 1))
            table.add(workload, policy, *values)
    result.tables["costless"] = table


def _sweep(scale: Scale, runs: Runs, result: Result) -> None:
    """How the main quantities depend on what the paper does not say: the ratio that makes a workload SIT."""
    table = Table(
        "Against Basic under CCS, relative differences, by the ratio of inter-arrival to execution time",
        ["ratio", "load", "policy", "turnaround", "makespan", "execution", "best turnaround"],
    )
    for ratio in scale.sweep:
        means = {policy: runs[Mode.CCS, ratio, policy][: scale.sweep_seeds].mean(axis=0) for policy in POLICIES}
        best = min(POLICIES, key=lambda policy: means[policy][_AT["turnaround_s"]])
        for policy in POLICIES:
            relative = means[policy] / means["basic"] - 1
            kept = (float(relative[_AT[what]]) for what in ("turnaround_s", "makespan_s", "execution_s"))
            table.add(ratio, setup.load(ratio), policy, *kept, policy == best)
    table.notes.append(f"{scale.sweep_seeds} seeds for each row; SIT is {WORKLOADS['SIT']}, DIT {WORKLOADS['DIT']}")
    result.tables["sweep"] = table
    result.plots["sweep"] = Plot(lambda axes: figures.sweep(axes, table), (8.0, 4.5))


def _configuration(scale: Scale, measured: coefficients.Coefficients, request: Request) -> dict[str, Any]:
    return {
        "quick": request.quick,
        "scale": msgspec.to_builtins(scale),
        "seeds": f"1 to {scale.seeds}",
        "policies": list(POLICIES),
        "workloads": {
            name: {"jobs": setup.JOBS, "ratio": ratio, "load": round(setup.load(ratio), 4)}
            for name, ratio in WORKLOADS.items()
        },
        "nodes": {"count": setup.NODES, "memory_bytes": setup.MEMORY_BYTES, "cpus": 1, "mpl": setup.MPL},
        "owners": {
            "there": request.owners,
            "nodes": setup.OWNED_NODES,
            "kinds": {name: list(each) for name, each in setup.OWNERS.items()},
        },
        "contract_permille": round(1000 * setup.CONTRACT.cpu_ratio),
        "estimates": "exact",
        "time_sharing": [str(mode) for mode in TIME_SHARING],
        "coefficients": msgspec.to_builtins(measured),
    }


def _notes(measured: coefficients.Coefficients, owners: str) -> list[str]:
    loads = ", ".join(f"{name} {setup.load(ratio):.0%}" for name, ratio in WORKLOADS.items())
    there = "stay for the whole run" if owners == "stay" else "come and go, at a quarter of the desks on average"
    return [
        "Open in the paper, chosen here before any policy was run: SIT is an inter-arrival time of 0.2 mean execution "
        f"times, DIT, the paper's double of it, of 0.4 (load: {loads}); memory and CPU of Table 1 are each task's; "
        f"estimates are exact; quantities are uniform between their bounds; owners {there} (--owners). Of its "
        "policies: docs/replications/cisne.md.",
        f"Costs of sharing: {measured.how}, {measured.made}, on {measured.machine}. They decide how one time-sharing "
        "model compares with another, and how much longer jobs take that share nodes.",
        "Not simulated: latency at the desk (Fig. 10). With 90 jobs there is no steady state, in the paper neither: "
        "means are over all jobs of a workload, its beginning and its drain included.",
    ]
