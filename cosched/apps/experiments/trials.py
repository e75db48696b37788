"""Real trials of a paper: which are missing, in which order they are made, and what is kept of them.

Every trial is written down when it is made (``trials.jsonl``), so that the work of several days adds up: a seed that
was interrupted is made whole before another begins. Trials of one seed are compared with each other. So all of them are
made on one machine, and a seed that another machine has begun stays as it is.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cosched.apps.experiments.interference import WatchedRun
from cosched.apps.experiments.jobs import Cannot
from cosched.apps.experiments.run_log import MACHINE, RunLog, machine
from cosched.apps.lab.lab import Lab
from cosched.apps.replicate.papers import TITLES
from cosched.apps.replicate.result import Result
from cosched.errors import BadInput, Failed

RUNS: Final = "trials"
_SEEDS: Final = 3
Say = Callable[[str], None]


class Planned(NamedTuple):
    """A trial to make: with a seed of an experiment, under one of its arms."""

    experiment: str
    seed: int
    arm: tuple[str, ...]


class TrialRecord(WatchedRun, frozen=True):
    """A trial that was made."""

    @property
    def planned(self) -> Planned:
        """Which one it is."""
        raise NotImplementedError

    @property
    def is_current(self) -> bool:
        """Whether its workload is that of now."""
        return True


Trial = TypeVar("Trial", bound=TrialRecord)
#: Experiment -> the arms of a seed, in the order in which they are made.
Arms = Mapping[str, Callable[[int], Sequence[tuple[str, ...]]]]


def plan(
    arms: Arms, seeds: int, made: Sequence[TrialRecord], elsewhere: Collection[tuple[str, int]] = ()
) -> list[Planned]:
    """What is missing of the seeds that have begun, then so many further seeds of each experiment, seed by seed.

    ``elsewhere``: experiments' seeds that were begun on other machines, which are left as they are.
    """
    have = {each.planned for each in made if each.is_current}
    found: list[Planned] = []
    for name, arms_of in arms.items():
        begun = max((each.planned.seed for each in made if each.planned.experiment == name), default=0)
        for seed in range(1, begun + seeds + 1):
            if (name, seed) not in elsewhere:
                found += [each for arm in arms_of(seed) if (each := Planned(name, seed, arm)) not in have]
    return sorted(found, key=lambda each: each.seed)


class Trials(Generic[Trial]):
    """The trials of a directory, and what could not be made, with why."""

    def __init__(self, out: Path | None, kind: type[Trial]) -> None:
        self.log: RunLog[Trial] = RunLog(out, RUNS, kind)
        self.refused: dict[str, str] = {}

    @property
    def made(self) -> list[Trial]:
        """All of them, in the order in which they were made."""
        return list(chain.from_iterable(self.log.campaigns))

    def first(self, wanted: Planned) -> Trial | None:
        """The trial that its seed began with."""
        return next((each for each in self.made if each.planned[:2] == wanted[:2]), None)

    def add(
        self, arms: Arms, seeds: int | None, make: Callable[[Planned], Trial], worded: Callable[[Trial], str], say: Say
    ) -> None:
        """Make what is missing and so many seeds more (None: three). What cannot be made leaves the others."""
        for wanted in plan(arms, _SEEDS if seeds is None else seeds, self.made, self.elsewhere()):
            what = f"{wanted.experiment}, seed {wanted.seed}: {', '.join(wanted.arm)}"
            try:
                self.log.keep(trial := make(wanted))
            except (BadInput, Failed) as error:
                self.refused[what] = str(error)
                say(f"{what}: {error}")
            else:
                say(f"{what}: {worded(trial)}")

    def elsewhere(self) -> set[tuple[str, int]]:
        """The seeds that were begun on other machines, by experiment."""
        begun: dict[tuple[str, int], str] = {}
        for how, trials in zip(self.log.hows, self.log.campaigns, strict=True):
            for each in trials:
                begun.setdefault(each.planned[:2], how[MACHINE])
        return {seed for seed, where in begun.items() if where != machine()}


def result_of(
    paper: str, trials: Sequence[TrialRecord], hows: Sequence[Mapping[str, Any]], refused: Mapping[str, str]
) -> Result:
    """A result of real runs, still empty. Raises :class:`Failed` where there is no trial."""
    if not trials:
        raise Failed("no trial was made" + "".join(f"; {what}: {why}" for what, why in refused.items()))
    return Result(paper, f"{TITLES[paper]} (real runs)", {"real": True, "hows": list(hows)})


def lab(name: str, nodes: int, say: Say, what: str, **how: Any) -> Lab:
    """A lab for an experiment. Raises :class:`Cannot` where this machine has no control groups for ``what``."""
    made = Lab.up(nodes, name=f"{name}-{os.getpid()}", say=say, **how)
    if made.tier != 1:
        made.down()
        raise Cannot(f"{what} need control groups, a lab of tier 1: {made.why}")
    return made
