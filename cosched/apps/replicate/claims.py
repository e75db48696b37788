"""Claims of a paper, and how each is judged.

A claim is first a :class:`Predicate`: a quantity, and the :class:`Region` in which it must lie for the claim to hold,
tolerance included. Predicates are constants of the code, written before the run. The run then measures the quantity,
with an interval where chance has a part in it: inside the region the claim holds, outside it fails, and where the
interval straddles the border it is undecided. A claim that fails is a finding. A claim may rest on a :class:`Premise`,
a number of the run too: that the mechanism was used, that the processors are there, that the load is the paper's. Where
that does not hold it is not comparable, and the measured value does not count. A direction ("cuts") and a size ("by
about 24 %") are two claims.

A claim over k cases is decided at level 0.95 in all, both ways: among many cases some lies outside by chance alone, so
each is judged by an interval of level 1 - 0.05/k (Bonferroni). The case that decided the verdict is the one reported,
with that interval.
"""

import math
from collections.abc import Iterable, Mapping
from enum import StrEnum
from itertools import product
from typing import Final, NamedTuple

import msgspec

from cosched.metrics.intervals import Interval


class Verdict(StrEnum):
    """What the run says about a claim."""

    HOLDS = "holds"
    FAILS = "fails"
    UNDECIDED = "undecided"
    NOT_COMPARABLE = "not_comparable"


class Region(msgspec.Struct, frozen=True):
    """Where a quantity must lie. The borders belong to it, unless it is ``open``: then a difference of 0 is none."""

    low: float = -math.inf
    high: float = math.inf
    open: bool = False

    def contains(self, value: float) -> bool:
        """Whether a value lies in the region."""
        return self.low < value < self.high if self.open else self.low <= value <= self.high

    def misses(self, low: float, high: float) -> bool:
        """Whether all of [low, high] lies outside."""
        if self.open:
            return high <= self.low or low >= self.high
        return high < self.low or low > self.high

    def margin(self, low: float, high: float) -> float:
        """How far inside [low, high] lies at its worst end; negative when that end is outside."""
        return min(low - self.low, self.high - high)

    def __str__(self) -> str:
        if self.low == self.high:
            return f"exactly {self.low:g}"
        if math.isinf(self.low):
            return f"{'below' if self.open else 'at most'} {self.high:g}"
        if math.isinf(self.high):
            return f"{'above' if self.open else 'at least'} {self.low:g}"
        return f"{'strictly ' if self.open else ''}between {self.low:g} and {self.high:g}"


BELOW: Final = Region(high=0.0, open=True)
ABOVE: Final = Region(low=0.0, open=True)


class Predicate(msgspec.Struct, frozen=True):
    """A claim before it is put to the test: ``quantity`` says what is measured, ``paper`` what the paper has for it."""

    id: str
    text: str
    quantity: str
    region: Region
    paper: float | None = None


class Premise(NamedTuple):
    """What a run must have for a claim to be comparable: a number that it gives, and where that must lie."""

    what: str
    found: float
    region: Region

    @property
    def holds(self) -> bool:
        """Whether the number lies there."""
        return self.region.contains(self.found)

    def __str__(self) -> str:
        return f"{self.what}: {self.found:.3g}, not {self.region}"


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """A judged claim. ``interval`` is that of ``ours`` where chance has a part in it, else None.

    ``readings``: the verdict under each reading of what the paper leaves open, where there are several.
    """

    id: str
    text: str
    verdict: Verdict
    ours: float | None
    paper: float | None
    interval: tuple[float, float] | None
    predicate: str
    note: str = ""
    readings: dict[str, Verdict] = {}


def verdict(interval: tuple[float, float], region: Region) -> Verdict:
    """Inside the region: holds; outside: fails; straddling its border, or undefined: undecided."""
    low, high = interval
    if region.contains(low) and region.contains(high):
        return Verdict.HOLDS
    return Verdict.FAILS if region.misses(low, high) else Verdict.UNDECIDED


Measured = Interval | float


def judge(predicate: Predicate, measured: Measured, note: str = "") -> Claim:
    """The claim's verdict from what was measured: an interval, or a number in which chance has no part."""
    low, high = _bounds(measured)
    return _claim(predicate, measured, verdict((low, high), predicate.region), note)


def judge_every(predicate: Predicate, measured: Mapping[str, Measured], note: str = "") -> Claim:
    """A claim of several cases, all of which must hold.

    It reports the case that decided: one that fails, else one that is undecided, else the one closest to the border.
    """
    return _judge_cases(predicate, measured, note, every=True)


def judge_some(predicate: Predicate, measured: Mapping[str, Measured], note: str = "") -> Claim:
    """A claim that one case of several must make true. It reports the case that decided: one that holds, if any."""
    return _judge_cases(predicate, measured, note, every=False)


def cannot_judge(predicate: Predicate, why: str) -> Claim:
    """The claim where the run has nothing to say about it."""
    return _claim(predicate, None, Verdict.UNDECIDED, why)


def under(premises: Iterable[Premise], claim: Claim) -> Claim:
    """The claim where all premises hold, or nothing was measured; else not comparable, with those that do not."""
    broken = [str(each) for each in premises if not each.holds]
    if not broken or claim.ours is None:
        return claim
    note = "; ".join([*broken, claim.note] if claim.note else broken)
    return msgspec.structs.replace(claim, verdict=Verdict.NOT_COMPARABLE, note=note)


def not_comparable(predicate: Predicate, why: str, measured: Measured | None = None) -> Claim:
    """The claim where the experiment is not the paper's (load, receivers, nodes), beside what was measured."""
    return _claim(predicate, measured, Verdict.NOT_COMPARABLE, why)


def _judge_cases(predicate: Predicate, measured: Mapping[str, Measured], note: str, *, every: bool) -> Claim:
    if not measured:
        return cannot_judge(predicate, note or "no case to judge")
    region = predicate.region
    measured = {case: _corrected(value, len(measured)) for case, value in measured.items()}
    verdicts = {case: verdict(_bounds(value), region) for case, value in measured.items()}
    decisive, otherwise = (Verdict.FAILS, Verdict.HOLDS) if every else (Verdict.HOLDS, Verdict.FAILS)
    found = set(verdicts.values())
    overall = decisive if decisive in found else otherwise if found == {otherwise} else Verdict.UNDECIDED
    # only cases with the verdict decide it: an undecided one may look worse, its interval being wider
    deciding = [case for case, found_there in verdicts.items() if found_there is overall]
    pick = min if every else max
    case = pick(deciding, key=lambda each: region.margin(*_bounds(measured[each])))
    counts = ", ".join(f"{list(verdicts.values()).count(v)} {v}" for v in Verdict if v in found)
    told = [f"decided by {case} (of {len(measured)}: {counts})"] if len(measured) > 1 else []
    return _claim(predicate, measured[case], overall, "; ".join([*told, note] if note else told))


def _corrected(measured: Measured, cases: int) -> Measured:
    return measured.at_level(1 - 0.05 / cases) if isinstance(measured, Interval) else measured


def _claim(predicate: Predicate, measured: Measured | None, decided: Verdict, note: str) -> Claim:
    bounds = _bounds(measured) if isinstance(measured, Interval) else None
    if bounds and not all(map(math.isfinite, bounds)):
        bounds = None
        note = f"{note}; too few replications for an interval" if note else "too few replications for an interval"
    ours = float(measured.mean) if isinstance(measured, Interval) else measured
    if ours is not None and not math.isfinite(ours):
        ours = None
    return Claim(
        id=predicate.id,
        text=predicate.text,
        verdict=decided,
        ours=ours,
        paper=predicate.paper,
        interval=bounds,
        predicate=_told(predicate),
        note=note,
    )


def _bounds(measured: Measured) -> tuple[float, float]:
    if isinstance(measured, Interval):
        return float(measured.low), float(measured.high)
    return measured, measured


def _told(predicate: Predicate) -> str:
    return f"{predicate.quantity}: {predicate.region}"


def pairs(ours: Iterable[str], bases: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Each policy against each other one, for a claim that compares them."""
    return tuple((policy, base) for policy, base in product(ours, bases) if policy != base)
