"""The real part: workloads on labs, with real agents, MPI programs and synthetic users, in two experiments.

*Coscheduling* asks what CCS and the other modes do for execution times: two nodes with a CPU each, so that nodes run at
the same time; jobs of two tasks. *Policies* asks where and when jobs should start: sixteen virtual workstations, each
with its part of this machine and no more; receivers that yield. Workloads are scaled in time (``cisne_trial``), and
trials are made and kept as ``trials`` has it.
"""

import random
from collections.abc import Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from statistics import median
from typing import Final

from msgspec import structs

from cosched.apps.experiments import cisne_results as results
from cosched.apps.experiments import cisne_trial as trial
from cosched.apps.experiments import contract
from cosched.apps.experiments.attempts import Say
from cosched.apps.experiments.cisne_trial import Trial
from cosched.apps.experiments.contract_results import waits_ms
from cosched.apps.experiments.run_log import RunLog
from cosched.apps.experiments.trials import Arms, Planned, RealPart
from cosched.apps.replicate.cisne.setup import POLICIES, WORKLOADS
from cosched.apps.replicate.result import Result
from cosched.errors import BadInput, nearest
from cosched.model.coscheduling import Mode

Rates = Mapping[str, tuple[float, float]]
CLUSTERS: Final = {cluster.experiment: cluster for cluster in (trial.COSCHEDULING, trial.POLICIES)}


def arms_of(experiment: str, seed: int) -> list[tuple[str, ...]]:
    """All trials of a seed, those that claims are about first: they take hours, and may be interrupted.

    Else in an order of the seed's own: a machine becomes faster and slower within hours, and no mode should have the
    better ones.
    """
    order = random.Random(seed)
    arms: list[tuple[str, ...]]
    if experiment == results.COSCHEDULING:
        arms = [(case.policy, mode, case.workload) for case in results.CASES for mode in case.modes]
        order.shuffle(arms)
        return sorted(arms, key=lambda each: each[1] not in {Mode.NONE, Mode.CCS})
    arms = [(policy, Mode.CCS, load) for load in WORKLOADS for policy in POLICIES]
    order.shuffle(arms)
    return arms


ARMS: Final[Arms] = {name: partial(arms_of, name) for name in CLUSTERS}


def drift(now: Rates, then: Rates) -> float:
    """By which part programs run faster alone now than then: the median over them."""
    return round(median(now[name][0] / rate for name, (rate, _) in then.items()) - 1, 4)


def replicate_real(seeds: int | None, out: Path | None, say: Say, *, add: bool, experiments: Sequence[str]) -> Result:
    """See :meth:`RealPart.carried_out`; ``experiments``: which (empty: all).

    What owners wait for is read from the runs of ``cosched bench contract`` in ``out``.
    """
    for name in experiments:
        if name not in CLUSTERS:
            raise BadInput("--experiments", f"{name!r}", ", ".join(CLUSTERS), nearest=nearest(name, CLUSTERS))
    felt = RunLog(out, contract.RUNS, contract.Measured)
    rates_now = cache(lambda name: trial.rates(CLUSTERS[name], say))

    def make(wanted: Planned, first: Trial | None) -> Trial:
        """Jobs of a seed have the iterations of its first trial; how much faster the machine has become is told."""
        now = rates_now(wanted.experiment)
        used = now if first is None else first.rates
        policy, mode, workload = wanted.arm
        made = trial.run(CLUSTERS[wanted.experiment], policy, mode, workload, wanted.seed, used, say)
        return structs.replace(made, drift=drift(now, used))

    how = {name: list(cluster) for name, cluster in CLUSTERS.items()}
    chosen = {name: ARMS[name] for name in experiments or CLUSTERS}
    report = partial(results.report, waits_ms=waits_ms(felt.campaigns))
    real = RealPart("cisne", Trial, how, chosen, make, results.sentence, report)
    return real.carried_out(seeds, out, say, add=add)
