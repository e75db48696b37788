"""Does the simulator put policies in the order that real runs have? Pair by pair, on the workloads of the real trials.

Each trial is simulated with the jobs that it had: their moments of submission, what they take alone on that lab (the
start included), what their users say, whole CPUs (ranks yield while they wait, and the service takes tasks for such).
Nodes are the lab's, which leave half of their memory whoever is there; owners sit where its synthetic users do. Costs
are the calibrated ones; nothing of a trial's outcome goes in.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Final

import numpy as np

from cosched.apps.experiments import cisne_trial as trial
from cosched.apps.experiments.cisne_trial import Trial
from cosched.apps.lab.making import SEATS_SEED
from cosched.apps.replicate.cisne import setup
from cosched.apps.replicate.cisne.setup import POLICIES, WORKLOADS, Measured
from cosched.apps.replicate.paired import relative_difference
from cosched.config import coefficients
from cosched.metrics.intervals import Interval
from cosched.model.coscheduling import Mode
from cosched.model.node import Node, Owner
from cosched.report.table import Table
from cosched.workload.rules import to_us
from local_load.profile import seated
from space_scheduler.plugins import resolve
from space_scheduler.progress import Sharing
from space_scheduler.simulator.host import Site, simulate

#: Of a run, what pairs are compared on.
MEASURES: Final = ("turnaround_s", "execution_s", "makespan_s")
SAME: Final = "same sign"
OTHER: Final = "OTHER SIGN"
NONE: Final = "no difference in the simulator"
OPEN: Final = "not decided"
#: Relative differences below this are none: the two schedules are the same.
_NOTHING: Final = 1e-6
#: By workload, policy and seed.
Runs = dict[tuple[str, str, int], Measured]


def simulated(made: Trial) -> Measured:
    """The measures of a real trial's workload in the simulator, under its policy and mode."""
    cluster, jobs = trial.POLICIES, made.jobs
    load = setup.workload(WORKLOADS[made.workload], made.seed, jobs=len(jobs), count=cluster.nodes)
    assert load.tasks is not None
    told_us = to_us(np.array([trial.estimate_s(job.alone_s) for job in jobs]))
    tasks = replace(
        load.tasks,
        memory_bytes=np.maximum(load.tasks.memory_bytes * trial.MEMORY_TIMES, trial.LEAST_BYTES),
        cpu_permille=np.full(len(jobs), 1000),
        kind=[job.kind for job in jobs],
    )
    load = replace(
        load,
        submit_us=to_us(np.array([job.submit_s for job in jobs])),
        run_us=to_us(np.array([job.alone_s for job in jobs])),
        procs=np.array([job.tasks for job in jobs]),
        estimate_us=told_us,
        request_us=told_us,
        tasks=tasks,
    )
    mode = Mode(made.mode)
    owned_permille = round(1000 * setup.CONTRACT.cpu_ratio)
    nodes = [Node(f"node{at}", setup.MPL, trial.LEFT_BYTES, 1, owned_permille) for at in range(1, cluster.nodes + 1)]
    kinds = {name.lower(): name for name in setup.OWNERS}
    users = [Owner(setup.owner(kinds[name]).cpu_permille, 0) for name in seated(cluster.users, SEATS_SEED)]
    owners = [(0, node.name, user) for node, user in zip(nodes, users, strict=False)]
    site = Site(nodes, owners, Sharing(mode, coefficients.read().permille(mode)))
    return setup.of(simulate(load, resolve(made.policy), site=site))


def compare(trials: Sequence[Trial]) -> tuple[Table, list[str]]:
    """Every pair of policies that ran the same seeds: the real difference, the simulated one; and both in words.

    A pair is decided where the real difference, paired by seed, has a 95 % interval on one side of 0.
    """
    table = Table(
        "Pairs of policies: relative difference in real runs, with 95 % interval, and in the simulator",
        ["workload", "measure", "policy", "against", "seeds", "real", "low", "high", "simulated", "says"],
    )
    real = {(each.workload, each.policy, each.seed): each.measured for each in trials}
    model = {(each.workload, each.policy, each.seed): simulated(each) for each in trials}
    for load, (base, policy) in product(WORKLOADS, combinations(POLICIES, 2)):
        seeds = [s for of, p, s in sorted(real) if (of, p) == (load, policy) and (load, base, s) in real]
        for what in MEASURES if seeds else ():
            ran, said = (_difference(found, what, (load, policy), (load, base), seeds) for found in (real, model))
            table.add(
                load, what.removesuffix("_s"), policy, base, len(seeds), ran.mean, ran.low, ran.high, said.mean,
                _says(ran, said.mean),
            )  # fmt: skip
    return table, [_in_words(table, what.removesuffix("_s")) for what in MEASURES if table.rows]


def _difference(found: Runs, what: str, ours: tuple[str, str], base: tuple[str, str], seeds: Sequence[int]) -> Interval:
    a, b = ([getattr(found[*case, seed], what) for seed in seeds] for case in (ours, base))
    return relative_difference(a, b)


def _says(real: Interval, said: float) -> str:
    if real.low <= 0 <= real.high:
        return OPEN
    if abs(said) < _NOTHING:
        return NONE
    return SAME if real.mean * said > 0 else OTHER


def _in_words(table: Table, what: str) -> str:
    rows = [row for row in table.as_dicts() if row["measure"] == what]
    count = {says: sum(row["says"] == says for row in rows) for says in (SAME, OTHER, NONE, OPEN)}
    wrong = [f"{row['policy']} against {row['against']}, {row['workload']}" for row in rows if row["says"] == OTHER]
    return (
        f"Pairs of policies, {what}: of {len(rows) - count[OPEN]} whose real difference has a 95 % interval beside 0 "
        f"(each for itself) the simulator has the sign of {count[SAME]}, and no difference in {count[NONE]}; "
        f"{count[OPEN]} are not decided by the real runs."
        + (f" The other way round: {'; '.join(wrong)}." if wrong else "")
    )
