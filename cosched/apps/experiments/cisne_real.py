"""The real part: workloads on labs, with real agents, MPI programs and synthetic users, in two experiments.

*Coscheduling* asks what CCS and the other modes do for execution times: two nodes with a CPU each, so that nodes run at
the same time; jobs of two tasks. *Policies* asks where and when jobs should start: sixteen virtual workstations, each
with its part of this machine and no more; receivers that yield. Workloads are scaled in time (``cisne_trial``).

Every trial is written down when it is made (``trials.jsonl``), so that the work of several days adds up: a seed that
was interrupted is made whole before another begins.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from msgspec import structs

from cosched.apps.experiments import cisne_results as results
from cosched.apps.experiments import cisne_trial as trial
from cosched.apps.experiments import contract
from cosched.apps.experiments.cisne_trial import Cluster, Say, Trial
from cosched.apps.experiments.contract_results import waits_ms
from cosched.apps.experiments.jobs import Cannot
from cosched.apps.experiments.run_log import MACHINE, RunLog, machine
from cosched.apps.replicate.cisne.setup import POLICIES, WORKLOADS
from cosched.apps.replicate.result import Result
from cosched.errors import BadInput, Failed, nearest
from cosched.model.coscheduling import Mode

RUNS: Final = "trials"
_SEEDS: Final = 3
Rates = Mapping[str, tuple[float, float]]
CLUSTERS: Final = {cluster.experiment: cluster for cluster in (trial.COSCHEDULING, trial.POLICIES)}


class Planned(NamedTuple):
    """A trial to make."""

    cluster: Cluster
    policy: str
    mode: Mode
    workload: str
    seed: int


def replication(experiment: str, seed: int) -> list[Planned]:
    """All trials of a seed, those that claims are about first: they take hours, and may be interrupted.

    Else in an order of the seed's own: a machine becomes faster and slower within hours, and no mode should have the
    better ones.
    """
    cluster = CLUSTERS[experiment]
    order = random.Random(seed)
    if experiment == results.COSCHEDULING:
        planned = [
            Planned(cluster, case.policy, mode, case.workload, seed) for case in results.CASES for mode in case.modes
        ]
        order.shuffle(planned)
        return sorted(planned, key=lambda each: each.mode not in {Mode.NONE, Mode.CCS})
    planned = [Planned(cluster, policy, Mode.CCS, load, seed) for load in WORKLOADS for policy in POLICIES]
    order.shuffle(planned)
    return planned


def plan(
    experiments: Sequence[str], seeds: int, made: Sequence[Trial], elsewhere: Collection[tuple[str, int]] = ()
) -> list[Planned]:
    """What is missing of the seeds that have begun, then so many further seeds of each experiment, seed by seed.

    ``elsewhere``: experiments' seeds that were begun on other machines, which are left as they are.
    """
    have = {(each.experiment, each.policy, each.mode, each.workload, each.seed) for each in made if each.is_current}
    found: list[Planned] = []
    for name in dict.fromkeys(experiments):
        begun = max((each.seed for each in made if each.experiment == name), default=0)
        for seed in range(1, begun + seeds + 1):
            if (name, seed) not in elsewhere:
                found += [each for each in replication(name, seed) if _key(each) not in have]
    return sorted(found, key=lambda each: each.seed)


def _key(wanted: Planned) -> tuple[str, str, str, str, int]:
    return wanted.cluster.experiment, wanted.policy, wanted.mode, wanted.workload, wanted.seed


def measure(kept: RunLog[Trial], experiments: Sequence[str], seeds: int, say: Say) -> dict[str, str]:
    """Make what is missing; what could not be made, and why.

    Jobs of one seed have the same iterations in all of its trials: those that its first one was made with. How much
    faster or slower the machine has become since is told with a trial. What is compared are trials of a seed: all of
    them are made on one machine, and a seed that another machine has begun stays as it is.
    """
    before = list(chain.from_iterable(kept.campaigns))
    refused: dict[str, str] = {}
    now: dict[str, Rates] = {}
    first: dict[tuple[str, int], Rates] = {}
    for each in before:
        first.setdefault((each.experiment, each.seed), each.rates)
    for wanted in plan(experiments, seeds, before, _elsewhere(kept)):
        name = wanted.cluster.experiment
        what = f"{name}, seed {wanted.seed}: {wanted.policy}, {wanted.mode}, {wanted.workload}"
        try:
            if name not in now:
                now[name] = trial.rates(wanted.cluster, say)
            used = first.setdefault((name, wanted.seed), now[name])
            made = structs.replace(trial.run(*wanted, used, say), drift=drift(now[name], used))
        except (Cannot, BadInput, Failed) as error:  # one that cannot be made leaves the others
            refused[what] = str(error)
            say(f"{what}: {error}")
            continue
        kept.keep(made)
        say(f"{what}: turnaround {made.measured.turnaround_s:.1f} s, makespan {made.measured.makespan_s:.1f} s")
    return refused


def drift(now: Rates, then: Rates) -> float:
    """By which part programs run faster alone now than then: the median over them."""
    return round(median(now[name][0] / rate for name, (rate, _) in then.items()) - 1, 4)


def replicate_real(seeds: int | None, out: Path | None, say: Say, *, add: bool, experiments: Sequence[str]) -> Result:
    """Make trials of so many seeds (0: none; None: three), and judge all that there are in ``out``.

    ``experiments``: which (empty: all). What owners wait for is read from the runs of ``cosched bench contract`` there.
    Raises :class:`BadInput`, and :class:`Failed` where there is no trial.
    """
    for name in experiments:
        if name not in CLUSTERS:
            raise BadInput("--experiments", f"{name!r}", ", ".join(CLUSTERS), nearest=nearest(name, CLUSTERS))
    kept = RunLog(out, RUNS, Trial)
    felt = RunLog(out, contract.RUNS, contract.Measured)
    refused: dict[str, str] = {}
    if seeds != 0:
        kept.begin({name: list(cluster) for name, cluster in CLUSTERS.items()}, add=add)
        refused = measure(kept, experiments or tuple(CLUSTERS), _SEEDS if seeds is None else seeds, say)
    return results.judged(list(chain.from_iterable(kept.campaigns)), kept.hows, refused, waits_ms(felt.campaigns))


def _elsewhere(kept: RunLog[Trial]) -> set[tuple[str, int]]:
    """The seeds that were begun on other machines, by experiment."""
    begun: dict[tuple[str, int], str] = {}
    for how, trials in zip(kept.hows, kept.campaigns, strict=True):
        for each in trials:
            begun.setdefault((each.experiment, each.seed), how[MACHINE])
    return {seed for seed, where in begun.items() if where != machine()}
