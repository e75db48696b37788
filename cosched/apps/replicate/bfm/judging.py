"""The verdicts of each claim: in each reading by itself, and then together."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

import msgspec
import numpy as np

from cosched.apps.replicate import claims as judge
from cosched.apps.replicate.bfm import claims, folded
from cosched.apps.replicate.bfm.claims import ALL, COMPARED, LONG, SHORT, Compared
from cosched.apps.replicate.bfm.measures import Measured
from cosched.apps.replicate.bfm.setup import BFA, BFM, FJT4, FJT4_BFA, POLICIES, Reading, Run, run_of
from cosched.apps.replicate.claims import Claim, Predicate, Premise, Region, Verdict
from cosched.apps.replicate.paired import Values, difference, relative_difference
from cosched.apps.replicate.steady import trend
from cosched.metrics.intervals import Interval, of_replications
from cosched.metrics.summary import Floats

_NOT_STEADY: Final = "the queue grows through the run: a mean would say how long it was"


@dataclass(frozen=True)
class Found:
    """What was measured of a reading's runs with seeds 1 to ``seeds``."""

    reading: Reading
    seeds: int
    runs: Mapping[Run, Measured]

    def all_of(self, preset: str, load: float) -> list[Measured]:
        """The runs of all seeds."""
        return [self.runs[run_of(self.reading, preset, load, seed)] for seed in range(1, self.seeds + 1)]

    def everything(self, preset: str) -> list[Measured]:
        """The runs of all seeds at all loads."""
        return [each for load in self.reading.loads for each in self.all_of(preset, load)]

    def column(self, preset: str, load: float, kind: str, measure: str) -> Floats:
        """One measure of a class of jobs, of all seeds, shape (seeds,)."""
        return np.array([getattr(each.classes[kind], measure) for each in self.all_of(preset, load)], np.float64)

    def unstable(self, preset: str, load: float) -> bool:
        """Whether the queue grows through the runs, where they are long enough to ask."""
        return self.reading.steady and trend([each.thirds for each in self.all_of(preset, load)]).unstable


def relative(ours: Values, base: Values) -> Interval:
    """The relative difference; undefined where there is nothing to compare with."""
    if not np.asarray(base, np.float64).mean():
        return Interval(math.nan, math.nan, math.nan)
    return relative_difference(ours, base)


def judged(found: Found) -> list[Claim]:
    """Every claim in one reading."""
    made = [_compared(each, found) for each in COMPARED]
    made += [_penalty(found), _deviation(found), _deviation_grows(found), _shrunk(found)]
    every, used = found.everything(BFM), _expired(found)
    folds = f"{sum(each.folds for each in every)} folds in {len(every)} runs"
    aborts, lost_s = float(sum(each.aborts for each in every)), sum(each.lost_s for each in every)
    made.append(judge.under([used], judge.judge(claims.NO_JOB_ABORTED, aborts, folds)))
    made.append(judge.under([used], judge.judge(claims.NO_WORK_LOST, lost_s, folds)))
    return made


def together(readings: Sequence[Found]) -> list[Claim]:
    """Every claim as the first reading has it, with its verdict in each; then those of real runs."""
    by_reading = {found.reading.name: judged(found) for found in readings}
    made = []
    for at, main in enumerate(by_reading[readings[0].reading.name]):
        verdicts = {name: each[at].verdict for name, each in by_reading.items()}
        made.append(msgspec.structs.replace(main, readings=verdicts, note=_noted(main, verdicts)))
    made += [judge.cannot_judge(each, "decided by real runs alone (--real)") for each in claims.REAL_RUNS]
    made.append(folded.judged(folded.read()))
    return made + [judge.cannot_judge(each, f"real: not run yet; {why}") for each, why in claims.REAL.items()]


def _noted(main: Claim, verdicts: Mapping[str, Verdict]) -> str:
    """The note of a claim, and whether its verdict depends on the reading."""
    if len(verdicts) < 2:
        return main.note
    others = [f"{found.replace('_', ' ')} with {name}" for name, found in verdicts.items() if found is not main.verdict]
    told = "depends on the reading: " + ", ".join(others) if others else f"the same in all {len(verdicts)} readings"
    return f"{main.note}; {told}" if main.note else told


def _of_steady(
    found: Found, compare: Callable[..., Interval], measure: str, kind: str, *runs: tuple[str, float]
) -> Interval | None:
    """What a measure of a class in runs (policy, load) comes to; None where the queue grows through one of them."""
    if any(found.unstable(*run) for run in runs):
        return None
    return compare(*(found.column(*run, kind, measure) for run in runs))


def _decided(predicate: Predicate, cases: Mapping[str, Interval | None]) -> Claim:
    """The verdict over the cases that are known."""
    known = {case: value for case, value in cases.items() if value is not None}
    left_out = len(cases) - len(known)
    if left_out and not known:
        return judge.not_comparable(predicate, _NOT_STEADY)
    return judge.judge_every(predicate, known, f"{left_out} cases left out: {_NOT_STEADY}" if left_out else "")


def _expired(found: Found) -> Premise:
    """That windows expired: the two policies differ in what they do then, and are one where none has."""
    times = sum(each.folds for each in found.everything(BFM)) + sum(each.aborts for each in found.everything(BFA))
    return Premise("windows that expired (folds and aborts in all runs)", float(times), Region(low=1))


def _compared(each: Compared, found: Found) -> Claim:
    compare = relative if each.relative else difference
    cases = {
        _case(load, kind, f"{policy} against {base}"): _of_steady(
            found, compare, each.measure, kind, (policy, load), (base, load)
        )
        for load, (policy, base), kind in product(each.loads(found.reading), each.pairs, each.classes)
    }
    claim = _decided(each.claim, cases)
    return judge.under([_expired(found)], claim) if each.pairs == ((BFM, BFA),) else claim


def _penalty(found: Found) -> Claim:
    high, low = found.reading.high, found.reading.loads[-1]
    if any(found.unstable(policy, load) for policy in (BFM, BFA) for load in (high, low)):
        return judge.not_comparable(claims.PENALTY_GROWS, _NOT_STEADY)
    penalty = [
        found.column(BFM, load, SHORT, "execution_s") - found.column(BFA, load, SHORT, "execution_s")
        for load in (high, low)
    ]
    claim = judge.judge(claims.PENALTY_GROWS, difference(penalty[0], penalty[1]))
    return judge.under([_expired(found)], claim)


def _deviation(found: Found) -> Claim:
    cases: dict[str, Interval | None] = {}
    for load, kind in product(found.reading.loads, claims.CLASSES):
        response_s = float(found.column(BFM, load, kind, "response_s").mean())
        cases[_case(load, kind)] = _of_steady(
            found, lambda each, of=response_s: of_replications(each / of), "deviation_s", kind, (BFM, load)
        )
    return _decided(claims.DEVIATION, cases)


def _deviation_grows(found: Found) -> Claim:
    others = [each for each in POLICIES if each != BFM]
    cases = {
        _case(load, kind, policy): _of_steady(found, difference, "deviation_s", kind, (policy, load), (policy, lower))
        for (load, lower), policy, kind in product(claims.steps(found.reading), others, claims.CLASSES)
    }
    return _decided(claims.DEVIATION_GROWS, cases)


def _shrunk(found: Found) -> Claim:
    high = found.reading.high
    cases = {
        _case(high, LONG, each): _of_steady(found, of_replications, "shrunk", LONG, (each, high))
        for each in (FJT4, FJT4_BFA)
    }
    return _decided(claims.SHRUNK, cases)


def _case(load: float, kind: str, what: str = "") -> str:
    jobs = f"{'all' if kind == ALL else kind.capitalize()} jobs at {load:.0%}".replace("%", " %")
    return f"{what}, {jobs}" if what else jobs
