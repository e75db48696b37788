"""The verdicts of each claim: in each reading by itself, and then together."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
    made.append(judge.under([used], judge.judge(claims.NOBODY_ABORTED, aborts, folds)))
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


def _decided(predicate: Predicate, cases: Mapping[str, Interval], left_out: int) -> Claim:
    if left_out and not cases:
        return judge.not_comparable(predicate, _NOT_STEADY)
    return judge.judge_every(predicate, cases, f"{left_out} cases left out: {_NOT_STEADY}" if left_out else "")


def _expired(found: Found) -> Premise:
    """That windows expired: the two policies differ in what they do then, and are one where none has."""
    times = sum(each.folds for each in found.everything(BFM)) + sum(each.aborts for each in found.everything(BFA))
    return Premise("windows that expired (folds and aborts in all runs)", float(times), Region(low=1))


def _compared(each: Compared, found: Found) -> Claim:
    cases: dict[str, Interval] = {}
    left_out = 0
    compare = relative if each.relative else difference
    for load in each.loads(found.reading):
        for policy, base in each.pairs:
            if found.unstable(policy, load) or found.unstable(base, load):
                left_out += len(each.classes)
                continue
            for kind in each.classes:
                ours, other = (found.column(preset, load, kind, each.measure) for preset in (policy, base))
                cases[_case(load, kind, f"{policy} against {base}")] = compare(ours, other)
    claim = _decided(each.claim, cases, left_out)
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
    cases: dict[str, Interval] = {}
    left_out = 0
    for load in found.reading.loads:
        if found.unstable(BFM, load):
            left_out += len(claims.CLASSES)
            continue
        for kind in claims.CLASSES:
            response_s = float(found.column(BFM, load, kind, "response_s").mean())
            cases[_case(load, kind)] = of_replications(found.column(BFM, load, kind, "deviation_s") / response_s)
    return _decided(claims.DEVIATION, cases, left_out)


def _deviation_grows(found: Found) -> Claim:
    cases: dict[str, Interval] = {}
    left_out = 0
    for load, lower in claims.steps(found.reading):
        for policy in POLICIES:
            if policy == BFM:
                continue
            if found.unstable(policy, load) or found.unstable(policy, lower):
                left_out += len(claims.CLASSES)
                continue
            for kind in claims.CLASSES:
                high, low = (found.column(policy, each, kind, "deviation_s") for each in (load, lower))
                cases[_case(load, kind, policy)] = difference(high, low)
    return _decided(claims.DEVIATION_GROWS, cases, left_out)


def _shrunk(found: Found) -> Claim:
    high = found.reading.high
    policies = [each for each in (FJT4, FJT4_BFA) if not found.unstable(each, high)]
    cases = {_case(high, LONG, each): of_replications(found.column(each, high, LONG, "shrunk")) for each in policies}
    return _decided(claims.SHRUNK, cases, 2 - len(policies))


def _case(load: float, kind: str, what: str = "") -> str:
    jobs = f"{'all' if kind == ALL else kind.capitalize()} jobs at {load:.0%}".replace("%", " %")
    return f"{what}, {jobs}" if what else jobs
