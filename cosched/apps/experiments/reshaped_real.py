"""The real parts of the papers on jobs that change shape: what is run on labs, in which order, and what is kept.

*Adaptive*: the jobs of Kalé et al. 2002, malleable under equipartition, against the same jobs with one size each under
first fit, on a node of four processors. *BFM*: those of Utrera et al. 2005 under FIFO, FJT1+BFA and FJT1+BFM, on two
nodes of five: a fold leaves a quarter, so on eight, where the widest job takes all, folds never make room for it.
Processors share this machine's CPUs. The policies of a seed follow each other, in an order of the seed's own. Each
trial is written down when it is made (``trials.jsonl``), so that one campaign may take several days.
"""

import random
from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple

from cosched.apps.experiments import reshaped_results as results
from cosched.apps.experiments import reshaped_trial as trial
from cosched.apps.experiments.jobs import Cannot
from cosched.apps.experiments.reshaped_trial import Alone, Arm, Experiment, Say, Trial
from cosched.apps.experiments.run_log import MACHINE, RunLog, machine
from cosched.apps.replicate.adaptive.setup import EQUIPARTITION, SHORT_JOBS
from cosched.apps.replicate.bfm.setup import BFA, BFM, FIFO, JOBS
from cosched.apps.replicate.result import Result
from cosched.errors import BadInput, Failed

RUNS: Final = "trials"
_SEEDS: Final = 3
#: The reading in which the windows of moldable jobs expire: a Long job has its largest size or none.
_SIZES: Final = "fjt=largest/1"

ADAPTIVE: Final = Experiment(
    paper="adaptive",
    nodes=1,
    cpus=4,
    jobs=SHORT_JOBS,
    scale=0.1,
    model="kale02",
    parameters={"load_factor": 1.0, "speed_up": "linear"},
    probe=150,
    program=trial.molecules,
    arms=(Arm(results.TRADITIONAL, "firstfit", shaped=False), Arm(EQUIPARTITION, EQUIPARTITION)),
)
UTRERA: Final = Experiment(
    paper="bfm",
    nodes=2,
    cpus=5,
    jobs=JOBS,
    scale=0.06,
    model="utrera05",
    parameters={"utilisation": 1.0},
    probe=80,
    program=trial.conjugate_gradients,
    arms=(Arm(FIFO, FIFO), Arm(BFA, f"{BFA}({_SIZES})"), Arm(BFM, f"{BFM}({_SIZES})")),
)
EXPERIMENTS: Final = {each.paper: each for each in (ADAPTIVE, UTRERA)}


class Planned(NamedTuple):
    """A trial to make."""

    arm: Arm
    seed: int


def plan(experiment: Experiment, seeds: int, made: Sequence[Trial], elsewhere: Collection[int] = ()) -> list[Planned]:
    """What is missing of the seeds that have begun, then so many further ones; not of those begun ``elsewhere``."""
    have = {(each.arm, each.seed) for each in made}
    begun = max((each.seed for each in made), default=0)
    found: list[Planned] = []
    for seed in range(1, begun + seeds + 1):
        arms = list(experiment.arms)
        random.Random(seed).shuffle(arms)
        if seed not in elsewhere:
            found += [Planned(arm, seed) for arm in arms if (arm.name, seed) not in have]
    return found


def measure(experiment: Experiment, kept: RunLog[Trial], seeds: int, say: Say) -> dict[str, str]:
    """Make what is missing; what could not be made, and why. Jobs of a seed have the same work in all of its trials."""
    before = list(chain.from_iterable(kept.campaigns))
    first: dict[int, Alone] = {}
    for each in before:
        first.setdefault(each.seed, each.alone)
    now: Alone | None = None
    refused: dict[str, str] = {}
    for arm, seed in plan(experiment, seeds, before, _elsewhere(kept)):
        what = f"{experiment.paper}, seed {seed}: {arm.name}"
        try:
            if seed not in first:
                now = now or trial.rates(experiment, say)
                first[seed] = now
            made = trial.run(experiment, arm, seed, first[seed], say)
        except (Cannot, BadInput, Failed) as error:  # one that cannot be made leaves the others
            refused[what] = str(error)
            say(f"{what}: {error}")
            continue
        kept.keep(made)
        say(f"{what}: {results.sentence(made)}")
    return refused


def replicate_real(
    paper: str, seeds: int | None, out: Path | None, say: Say, *, add: bool, jobs: int | None, scale: float | None
) -> Result:
    """Make trials of so many seeds (0: none; None: three), and judge all that there are in ``out``.

    ``jobs`` and ``scale``: others than the experiment's. Raises :class:`BadInput`, and :class:`Failed` where there is
    no trial.
    """
    chosen = EXPERIMENTS[paper]
    if scale is not None and not 0 < scale <= 1:
        raise BadInput("--scale", f"{scale:g}", "a factor above 0, at most 1")
    experiment = chosen._replace(jobs=jobs or chosen.jobs, scale=scale or chosen.scale)
    kept = RunLog(out, RUNS, Trial)
    refused: dict[str, str] = {}
    if seeds != 0:
        kept.begin(experiment.told(), add=add)
        refused = measure(experiment, kept, _SEEDS if seeds is None else seeds, say)
    return results.judged(paper, list(chain.from_iterable(kept.campaigns)), kept.hows, refused)


def _elsewhere(kept: RunLog[Trial]) -> set[int]:
    """The seeds that were begun on other machines."""
    begun: dict[int, str] = {}
    for how, trials in zip(kept.hows, kept.campaigns, strict=True):
        for each in trials:
            begun.setdefault(each.seed, how[MACHINE])
    return {seed for seed, where in begun.items() if where != machine()}
