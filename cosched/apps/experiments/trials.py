"""The real part of a paper, as data: which trials are missing, in which order they are made, and what is kept of them.

Every trial is written down when it is made (``trials.jsonl``), so that the work of several days adds up: a seed that
was interrupted is made whole before another begins. Trials of one seed are compared with each other. So all of them are
made on one machine, and a seed that another machine has begun stays as it is.
"""

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from cosched.apps.experiments.attempts import Attempts, Say
from cosched.apps.experiments.interference import WatchedRun
from cosched.apps.experiments.jobs import Cannot
from cosched.apps.experiments.run_log import MACHINE, RunLog, machine
from cosched.apps.lab.lab import Lab
from cosched.apps.replicate.papers import TITLES
from cosched.apps.replicate.result import Result
from cosched.errors import BadInput, Failed

RUNS: Final = "trials"
_SEEDS: Final = 3


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
#: How each campaign measured, as :class:`RunLog` has it.
Hows = Sequence[Mapping[str, Any]]


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


class Trials(Attempts, Generic[Trial]):
    """The trials of a directory."""

    refusals = (BadInput, Failed)

    def __init__(self, out: Path | None, kind: type[Trial], say: Say) -> None:
        super().__init__(say)
        self.log: RunLog[Trial] = RunLog(out, RUNS, kind)

    @property
    def made(self) -> list[Trial]:
        """All of them, in the order in which they were made."""
        return list(chain.from_iterable(self.log.campaigns))

    def first(self, wanted: Planned) -> Trial | None:
        """The trial that its seed began with."""
        return next((each for each in self.made if each.planned[:2] == wanted[:2]), None)

    def add(
        self,
        arms: Arms,
        seeds: int | None,
        make: Callable[[Planned, Trial | None], Trial],
        worded: Callable[[Trial], str],
    ) -> None:
        """Make what is missing and so many seeds more (None: three), each with the first trial of its seed, if any."""
        for wanted in plan(arms, _SEEDS if seeds is None else seeds, self.made, self.elsewhere()):
            what = f"{wanted.experiment}, seed {wanted.seed}: {', '.join(wanted.arm)}"
            for trial, _ in self.attempt(what, partial(make, wanted, self.first(wanted)), worded):
                self.log.keep(trial)

    def elsewhere(self) -> set[tuple[str, int]]:
        """The seeds that were begun on other machines, by experiment."""
        begun: dict[tuple[str, int], str] = {}
        for how, trials in zip(self.log.hows, self.log.campaigns, strict=True):
            for each in trials:
                begun.setdefault(each.planned[:2], how[MACHINE])
        return {seed for seed, where in begun.items() if where != machine()}


@dataclass(frozen=True)
class RealPart(Generic[Trial]):
    """The real part of a paper: its trials, how one is made after the first of its seed, and what they say.

    ``how``: what must be the same in all trials that are held against each other. ``report`` adds tables and verdicts,
    from trials and the campaigns that they are of.
    """

    paper: str
    kind: type[Trial]
    how: Mapping[str, object]
    arms: Arms
    make: Callable[[Planned, Trial | None], Trial]
    worded: Callable[[Trial], str]
    report: Callable[[Sequence[Trial], Hows, Result], None]

    def carried_out(self, seeds: int | None, out: Path | None, say: Say, *, add: bool) -> Result:
        """Make trials of so many seeds (0: none; None: three), and judge all that there are in ``out``.

        Raises :class:`BadInput`, and :class:`Failed` where there is no trial.
        """
        kept = Trials(out, self.kind, say)
        if seeds != 0:
            kept.log.begin(self.how, add=add)
            kept.add(self.arms, seeds, self.make, self.worded)
        return judged(self.paper, kept.made, kept.log.hows, kept.refused, self.report)


def judged(
    paper: str,
    trials: Sequence[Trial],
    hows: Hows,
    refused: Mapping[str, str],
    report: Callable[[Sequence[Trial], Hows, Result], None],
) -> Result:
    """What trials say. Raises :class:`Failed` where there are none."""
    if not trials:
        raise Failed("no trial was made" + "".join(f"; {what}: {why}" for what, why in refused.items()))
    result = Result(paper, f"{TITLES[paper]} (real runs)", {"real": True, "hows": list(hows)})
    result.notes += [f"not run: {what}: {why}" for what, why in refused.items()]
    report(trials, hows, result)
    return result


def lab(name: str, nodes: int, say: Say, what: str, **how: Any) -> Lab:
    """A lab for an experiment. Raises :class:`Cannot` where this machine has no control groups for ``what``."""
    made = Lab.up(nodes, name=f"{name}-{os.getpid()}", say=say, **how)
    if made.tier != 1:
        made.down()
        raise Cannot(f"{what} need control groups, a lab of tier 1: {made.why}")
    return made
