"""The real parts of the papers on jobs that change shape: what is run on labs, in which order, and what is kept.

*Adaptive*: the jobs of Kalé et al. 2002, malleable under equipartition, against the same jobs with one size each under
first fit, on a node of four processors. *BFM*: those of Utrera et al. 2005 under FIFO, FJT1+BFA and FJT1+BFM, on two
nodes of five: a fold leaves a quarter, so on eight, where the widest job takes all, folds never make room for it.
Processors share this machine's CPUs. The policies of a seed follow each other, in an order of the seed's own. Trials
are made and kept as ``trials`` has it.
"""

import random
from functools import cache, partial
from pathlib import Path
from typing import Final

from cosched.apps.experiments import reshaped_results as results
from cosched.apps.experiments import reshaped_trial as trial
from cosched.apps.experiments.attempts import Say
from cosched.apps.experiments.reshaped_trial import Arm, Experiment, Trial
from cosched.apps.experiments.trials import Planned, RealPart
from cosched.apps.replicate.adaptive.setup import EQUIPARTITION, SHORT_JOBS
from cosched.apps.replicate.bfm.setup import BFA, BFM, FIFO, JOBS
from cosched.apps.replicate.result import Result
from cosched.errors import BadInput

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


def arms_of(experiment: Experiment, seed: int) -> list[tuple[str]]:
    """The names of its arms in the order of a seed."""
    names = [(arm.name,) for arm in experiment.arms]
    random.Random(seed).shuffle(names)
    return names


def replicate_real(
    paper: str, seeds: int | None, out: Path | None, say: Say, *, add: bool, jobs: int | None, scale: float | None
) -> Result:
    """See :meth:`RealPart.carried_out`; ``jobs`` and ``scale``: others than the experiment's."""
    chosen = EXPERIMENTS[paper]
    if scale is not None and not 0 < scale <= 1:
        raise BadInput("--scale", f"{scale:g}", "a factor above 0, at most 1")
    experiment = chosen._replace(jobs=jobs or chosen.jobs, scale=scale or chosen.scale)
    rates_now = cache(lambda: trial.rates(experiment, say))
    arms = {arm.name: arm for arm in experiment.arms}

    def make(wanted: Planned, first: Trial | None) -> Trial:
        """Jobs of a seed have the same work in all of its trials."""
        alone = rates_now() if first is None else first.alone
        return trial.run(experiment, arms[wanted.arm[0]], wanted.seed, alone, say)

    ordered = {paper: partial(arms_of, experiment)}
    real = RealPart(paper, Trial, experiment.told(), ordered, make, results.sentence, results.report)
    return real.carried_out(seeds, out, say, add=add)
