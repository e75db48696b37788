"""The simulated part: seven policies, two workloads, two time-sharing models, many seeds; tables, figures, verdicts.

Every seed has its own jobs, arrivals and owners, the same for all policies: differences are paired.
"""

from itertools import product
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from cosched.apps.replicate import claims as judging
from cosched.apps.replicate.cells import Cells, each_once, seeded
from cosched.apps.replicate.cisne import claims, figures, setup
from cosched.apps.replicate.cisne.setup import FULL, POLICIES, QUICK, TIME_SHARING, WORKLOADS, Measured, Scale
from cosched.apps.replicate.papers import TITLES, Request, scale_of
from cosched.apps.replicate.pool import Begin
from cosched.apps.replicate.result import Plot, Result
from cosched.config import coefficients
from cosched.model.coscheduling import Mode
from cosched.report.table import Table
from space_scheduler.progress import Sharing

PAPER: Final = "cisne"
CALIBRATION: Final = "input: calibration"


class Cell(NamedTuple):
    """What is simulated: a policy on a workload of that ratio, with a way of time sharing.

    ``costless``: as if sharing cost nothing but the share of the CPU.
    """

    policy: str
    ratio: float
    mode: Mode = Mode.CCS
    costless: bool = False


def replicate(request: Request, begin: Begin) -> Result:
    """Run the simulated part, full or quick."""
    return replicate_at(scale_of(request, FULL, QUICK, "seeds"), request, begin)


def replicate_at(scale: Scale, request: Request, begin: Begin) -> Result:
    """Run it at a given scale."""
    measured = coefficients.read()
    seeds = {
        Cell(policy, ratio, mode): scale.seeds
        for mode, ratio, policy in product(TIME_SHARING, WORKLOADS.values(), POLICIES)
    }
    for policy, ratio in product(POLICIES, WORKLOADS.values()):
        seeds[Cell(policy, ratio, costless=True)] = scale.seeds
    for policy, ratio in product(POLICIES, scale.sweep):
        seeds.setdefault(Cell(policy, ratio), scale.sweep_seeds)
    calls = seeded(simulated, seeds, lambda cell: 1 / cell.ratio, measured, request.owners)
    runs: Cells[Cell] = Cells.of(seeds, each_once(calls, request, begin))
    result = Result(PAPER, TITLES[PAPER], _configuration(scale, measured, request))
    _tables(runs, result)
    _judge(runs, result)
    _costless(runs, result)
    if scale.sweep:
        _sweep(scale, runs, result)
    result.notes += _notes(measured, request.owners)
    return result


def simulated(cell: Cell, seed: int, costs: coefficients.Coefficients, owners: str) -> Measured:
    """One seed of a cell; ``costs`` are what time sharing was measured to cost."""
    sharing = Sharing(cell.mode) if cell.costless else Sharing(cell.mode, costs.permille(cell.mode))
    return setup.measured(cell.policy, cell.ratio, seed, sharing, owners)


def _tables(runs: Cells[Cell], result: Result) -> None:
    times = Table(
        f"Fig. 7: mean execution time, s ({CALIBRATION})",
        ["workload", "policy", "plain Linux", "CCS", "CCS is shorter by"],
    )
    for workload, policy in product(WORKLOADS, POLICIES):
        cells = (Cell(policy, WORKLOADS[workload], mode) for mode in TIME_SHARING)
        linux, ccs = (runs.values(cell, "execution_s").mean() for cell in cells)
        times.add(workload, policy, float(linux), float(ccs), float(1 - ccs / linux))
    times.notes.append("what time sharing costs was measured and put in: one column against the other is no finding")
    found = {
        (workload, policy): {what: runs.values(Cell(policy, WORKLOADS[workload]), what) for what in Measured._fields}
        for workload, policy in product(WORKLOADS, POLICIES)
    }
    result.tables["figure7"] = times
    result.plots["figure7"] = Plot(lambda axes: figures.execution(axes, times), (9.0, 4.5))
    figures.report(found, result)


def _judge(runs: Cells[Cell], result: Result) -> None:
    for claim, what, pairs, workloads in claims.COMPARED:
        cases = {}
        for workload, (policy, base) in product(workloads, pairs):
            ours, others = (Cell(each, WORKLOADS[workload]) for each in (policy, base))
            cases[f"{policy} against {base}, {workload}"] = runs.relative(ours, others, what)
        result.claims.append(judging.judge_every(claim, cases))
    dit, sit = (Cell("uniform-hard", WORKLOADS[workload]) for workload in ("DIT", "SIT"))
    result.claims.append(judging.judge(claims.MAKESPAN_HARD, runs.relative(dit, sit, "makespan_s")))
    result.claims += [judging.cannot_judge(each, "decided by real runs alone") for each in claims.REAL_ALONE]


def _costless(runs: Cells[Cell], result: Result) -> None:
    """What the measured costs decide: everything again as if sharing cost nothing but the share of the CPU."""
    table = Table(
        "Under CCS against Basic, relative differences: with the measured costs of sharing, and as if it cost nothing",
        ["workload", "policy", "turnaround", "turnaround, costless", "makespan", "makespan, costless"],
    )
    for workload, ratio in WORKLOADS.items():
        for policy in POLICIES[1:]:
            values = []
            for what in ("turnaround_s", "makespan_s"):
                for costless in (False, True):
                    cells = (Cell(each, ratio, costless=costless) for each in (policy, "basic"))
                    ours, basic = (runs.values(cell, what).mean() for cell in cells)
                    values.append(float(ours / basic - 1))
            table.add(workload, policy, *values)
    result.tables["costless"] = table


def _sweep(scale: Scale, runs: Cells[Cell], result: Result) -> None:
    """How the main quantities depend on what the paper does not say: the ratio that makes a workload SIT."""
    table = Table(
        "Against Basic under CCS, relative differences, by the ratio of inter-arrival to execution time",
        ["ratio", "load", "policy", "turnaround", "makespan", "execution", "best turnaround"],
    )
    for ratio in scale.sweep:
        found = {policy: runs[Cell(policy, ratio)][: scale.sweep_seeds] for policy in POLICIES}
        means = {policy: Measured(*np.array(each).mean(axis=0)) for policy, each in found.items()}
        best = min(POLICIES, key=lambda policy: means[policy].turnaround_s)
        for policy, mean in means.items():
            pairs = zip(mean, means["basic"], strict=True)
            relative = Measured(*(float(ours / basic - 1) for ours, basic in pairs))
            kept = relative.turnaround_s, relative.makespan_s, relative.execution_s
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
