"""How a claim is judged: inside its region, outside, or across the border."""

import io
import math

import msgspec
import pytest
from rich.console import Console

from cosched.apps.replicate.cisne import claims as cisne
from cosched.apps.replicate.claims import (
    Claim,
    Predicate,
    Premise,
    Region,
    Verdict,
    cannot_judge,
    judge,
    judge_every,
    judge_some,
    not_comparable,
    under,
    verdict,
)
from cosched.apps.replicate.result import Result, show
from cosched.metrics.intervals import Interval, of_replications

SIMILAR = Predicate(
    id="x.similar", text="they are similar", quantity="a / b - 1", region=Region(-0.15, 0.15), paper=0.037
)
BETTER = Predicate(id="x.better", text="a is better", quantity="a - b", region=Region(high=0, open=True))


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((-0.13, 0.05), Verdict.HOLDS),
        ((-0.15, 0.15), Verdict.HOLDS),  # the borders belong to the region
        ((0.16, 0.30), Verdict.FAILS),
        ((-0.40, -0.16), Verdict.FAILS),
        ((0.10, 0.20), Verdict.UNDECIDED),
        ((-0.20, -0.10), Verdict.UNDECIDED),
        ((-0.50, 0.50), Verdict.UNDECIDED),  # wider than the region on both sides
        ((0.15, 0.20), Verdict.UNDECIDED),
        ((-math.inf, math.inf), Verdict.UNDECIDED),
        ((math.nan, math.nan), Verdict.UNDECIDED),
    ],
)
def test_a_tolerance_of_fifteen_per_cent(interval: tuple[float, float], expected: Verdict) -> None:
    assert verdict(interval, SIMILAR.region) is expected


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        ((-3, -1), Verdict.HOLDS),
        ((1, 3), Verdict.FAILS),
        ((0, 0), Verdict.FAILS),  # no difference is not better
        ((0, 2), Verdict.FAILS),
        ((-2, 0), Verdict.UNDECIDED),
        ((-2, 1), Verdict.UNDECIDED),
    ],
)
def test_better_means_a_difference(interval: tuple[float, float], expected: Verdict) -> None:
    assert verdict(interval, BETTER.region) is expected


def test_a_number_without_chance_is_judged_by_itself() -> None:
    claim = judge(SIMILAR, -0.05, "from one log")
    assert claim == Claim(
        id="x.similar",
        text="they are similar",
        verdict=Verdict.HOLDS,
        ours=-0.05,
        paper=0.037,
        interval=None,
        predicate="a / b - 1: between -0.15 and 0.15",
        note="from one log",
    )


def test_an_interval_is_reported_with_the_verdict() -> None:
    claim = judge(SIMILAR, Interval(0.1, 0.05, 0.2))
    assert (claim.verdict, claim.ours, claim.interval) == (Verdict.UNDECIDED, 0.1, (0.05, 0.2))


def test_one_replication_alone_decides_nothing() -> None:
    claim = judge(SIMILAR, Interval(0.1, -math.inf, math.inf))
    assert (claim.verdict, claim.interval) == (Verdict.UNDECIDED, None)
    assert "too few replications" in claim.note


def test_every_case_must_hold_and_the_worst_is_reported() -> None:
    holds = {"f = 4": Interval(-9, -10, -8), "f = 11": Interval(-3, -5, -1)}
    claim = judge_every(BETTER, holds)
    assert (claim.verdict, claim.ours) == (Verdict.HOLDS, -3)
    assert claim.note == "decided by f = 11 (of 2: 2 holds)"
    assert judge_every(BETTER, holds | {"f = 31": Interval(-1, -3, 1)}).verdict is Verdict.UNDECIDED
    fails = judge_every(BETTER, holds | {"f = 31": Interval(-1, -3, 1), "f = 101": Interval(4, 3, 5)})
    assert (fails.verdict, fails.ours) == (Verdict.FAILS, 4)


def test_one_case_is_enough_where_some_must_hold() -> None:
    cases = {"f = 4": Interval(2, 1, 3), "f = 11": Interval(-3, -5, -1)}
    assert judge_some(BETTER, cases).verdict is Verdict.HOLDS
    assert judge_some(BETTER, {"f = 4": cases["f = 4"]}).verdict is Verdict.FAILS
    assert judge_some(BETTER, {"f = 4": cases["f = 4"], "f = 31": Interval(-1, -3, 1)}).verdict is Verdict.UNDECIDED


def test_what_was_not_run_is_undecided_and_says_why() -> None:
    claim = cannot_judge(SIMILAR, "the log has no requests")
    assert (claim.verdict, claim.ours, claim.paper, claim.note) == (
        Verdict.UNDECIDED,
        None,
        0.037,
        "the log has no requests",
    )
    assert judge_every(SIMILAR, {}).verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(
    ("region", "told"),
    [
        (Region(0, 0), "exactly 0"),
        (Region(high=0, open=True), "below 0"),
        (Region(high=3), "at most 3"),
        (Region(low=0.9), "at least 0.9"),
        (Region(low=1, open=True), "above 1"),
        (Region(5, 9), "between 5 and 9"),
        (Region(0, 0.1, open=True), "strictly between 0 and 0.1"),
    ],
)
def test_a_region_tells_itself(region: Region, told: str) -> None:
    assert str(region) == told


def test_the_case_that_decided_is_the_one_told_not_one_that_looks_worse() -> None:
    """An undecided case with a wide interval reaches further out than the one that fails."""
    wide, failing = Interval(1, -50, 52), Interval(9, 8, 10)
    claim = judge_every(BETTER, {"wide": wide, "failing": failing})
    assert (claim.verdict, claim.ours) == (Verdict.FAILS, 9)
    assert claim.note == "decided by failing (of 2: 1 fails, 1 undecided)"


def test_one_of_twenty_cases_outside_by_chance_is_no_failure() -> None:
    """Of 95 % intervals of twenty cases without a difference one is expected to lie outside; a claim is of 95 %."""
    outside = of_replications([0.1, 0.9, 1.0, 1.1, 1.2, 0.2, -0.2, 0.8, -0.1, 0.5])
    assert verdict((outside.low, outside.high), BETTER.region) is Verdict.FAILS
    good = {f"case {n}": Interval(-9, -10, -8) for n in range(19)}
    assert judge_every(BETTER, {"alone": outside}).verdict is Verdict.FAILS
    assert judge_every(BETTER, good | {"chance": outside}).verdict is Verdict.UNDECIDED
    inside = of_replications([-each for each in (0.1, 0.9, 1.0, 1.1, 1.2, 0.2, -0.2, 0.8, -0.1, 0.5)])
    assert judge_every(BETTER, good | {"chance": inside}).verdict is Verdict.UNDECIDED
    assert judge_some(BETTER, {"chance": inside} | {f"case {n}": Interval(9, 8, 10) for n in range(19)}).verdict is (
        Verdict.UNDECIDED
    )


def test_a_direction_may_hold_whose_size_does_not() -> None:
    """-12 % [-20, -3] does cut, and is not the paper's 24 %."""
    ours = Interval(-0.12, -0.20, -0.03)
    assert judge(cisne.CCS_DIT, ours).verdict is Verdict.HOLDS
    assert judge(cisne.CCS_DIT_SIZE, ours).verdict is not Verdict.HOLDS
    assert judge(cisne.CCS_DIT_SIZE, Interval(-0.12, -0.15, -0.09)).verdict is Verdict.FAILS
    assert (cisne.CCS_DIT.paper, cisne.CCS_DIT_SIZE.paper) == (None, -0.24)


def test_claim_with_a_broken_premise_is_not_comparable_and_says_which() -> None:
    used = Premise("windows that expired", 0.0, Region(low=1))
    there = Premise("processors with a core of their own", 8.0, Region(low=8))
    judged = judge(cisne.CCS_DIT, Interval(-0.12, -0.20, -0.03), "of 3 seeds")
    assert under([there], judged) == judged
    broken = under([used, there], judged)
    assert (broken.verdict, broken.ours, broken.interval) == (Verdict.NOT_COMPARABLE, judged.ours, judged.interval)
    assert broken.note == "windows that expired: 0, not at least 1; of 3 seeds"
    nothing = cannot_judge(cisne.CCS_DIT, "no seed has both")
    assert under([used], nothing) == nothing


def test_an_experiment_that_is_not_the_papers_decides_nothing_and_is_told_so() -> None:
    claim = not_comparable(SIMILAR, "receivers poll", Interval(0.5, 0.4, 0.6))
    found = msgspec.to_builtins(claim)
    assert (found["verdict"], found["ours"], found["interval"]) == ("not_comparable", 0.5, (0.4, 0.6))
    assert claim.note == "receivers poll"
    screen = Console(file=io.StringIO(), width=120)
    show(Result("x", "X", {}, claims=[claim]), screen)
    assert "not comparable" in screen.file.getvalue()  # type: ignore[attr-defined]
