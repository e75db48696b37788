"""Models of users' estimates: what each promises, and what a wrong specification is told."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.command import Call, cosched  # noqa: F401 (a fixture)
from kit.snapshots import Snapshot

from cosched.model.time import US_PER_S
from cosched.workload.estimates import (
    EstimateModel,
    Estimates,
    deal,
    number_of_values,
    parse,
    popularity,
    values_by_rank,
    with_estimates,
)
from cosched.workload.generators.registry import generate
from cosched.workload.log import FIELDS, Field, Header, Log
from cosched.workload.rules import Workload, prepare


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def workload(*jobs: tuple[float, float]) -> Workload:
    """Jobs of (run, request) seconds, killed at their request."""
    rows = np.full((len(jobs), FIELDS), -1.0)
    rows[:, Field.SUBMIT_S] = 0
    rows[:, Field.PROCS_ALLOCATED] = 1
    rows[:, [Field.RUN_S, Field.REQUEST_S]] = jobs
    return prepare(Log(Header({"MaxProcs": "4"}), rows))


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("user", Estimates(EstimateModel.USER)),
        ("exact", Estimates(EstimateModel.EXACT)),
        (" factor:4 ", Estimates(EstimateModel.FACTOR, factor=4.0)),
        ("factor:1", Estimates(EstimateModel.FACTOR)),
        ("tsafrir", Estimates(EstimateModel.TSAFRIR)),
        ("tsafrir:7200.5", Estimates(EstimateModel.TSAFRIR, max_us=7_200_500_000)),
    ],
)
def test_a_specification_is_read_and_written_alike(spec: str, expected: Estimates) -> None:
    assert parse(spec) == expected
    assert str(parse(spec)) == spec.strip()
    assert parse(str(expected)) == expected


def test_a_wrong_specification_is_told_the_nearest(snapshot: Snapshot, cosched: Call) -> None:  # noqa: F811
    snapshot.replay(cosched)


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(-1, 10**6)), min_size=1, max_size=40),
    st.sampled_from(["user", "exact", "factor:1", "factor:1.5", "factor:301", "tsafrir", "tsafrir:60"]),
)
def test_no_job_that_is_killed_at_its_request_estimates_less_than_it_runs(
    jobs: list[tuple[int, int]], spec: str
) -> None:
    before = workload(*jobs)
    after = with_estimates(before, parse(spec), rng())
    assert (after.estimate_us >= after.run_us).all()
    for same in ("run_us", "submit_us", "procs", "request_us", "timed_out", "job_id"):
        assert np.array_equal(getattr(after, same), getattr(before, same))


def test_user_and_exact() -> None:
    some = workload((60, 90), (100, 90), (30, -1))
    assert with_estimates(some, parse("user"), rng()).estimate_us.tolist() == [90e6, 100e6, 30e6]
    assert with_estimates(some, parse("exact"), rng()).estimate_us.tolist() == [60e6, 90e6, 30e6]
    assert with_estimates(some, parse("factor:1"), rng()).estimate_us.tolist() == [60e6, 90e6, 30e6]


def test_factor_is_uniform_from_the_run_time_to_factor_times_it() -> None:
    n = 50_000
    after = with_estimates(workload(*[(100, 200)] * n), parse("factor:11"), rng())
    times = after.estimate_us / after.run_us
    assert 1 <= times.min() < 1.01
    assert 10.99 < times.max() <= 11
    assert abs(times.mean() - 6) < 4.5 * (10 / 12**0.5) / n**0.5
    assert abs((times < 3.5).mean() - 0.25) < 4.5 * (0.25 * 0.75 / n) ** 0.5


def test_the_largest_factor_of_the_longest_job_still_fits_the_clock() -> None:
    told = with_estimates(workload((1e12, 1e12)), parse("factor:1e12"), rng()).estimate_us
    assert told.tolist() == [10**18]


def test_one_seed_gives_one_set_of_estimates() -> None:
    some = prepare(generate("lublin03", 300, 64, rng()))
    for spec in ("factor:4", "tsafrir"):
        one, same, other = (with_estimates(some, parse(spec), rng(seed)).estimate_us for seed in (1, 1, 2))
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)


def test_tsafrir_popularity_is_as_published() -> None:
    share = popularity(200)
    assert share.sum() == pytest.approx(1)
    assert share[:20].sum() == pytest.approx(0.89)
    for rank in (2, 10, 20):
        assert share[rank - 1] == pytest.approx((14.0491 * np.exp(-0.177531 * rank) + 0.462513) / 100)
    assert share[99] / share[49] == pytest.approx(2**-2.267), "a power law from rank 21 on"
    assert (np.diff(share[:20]) < 0).all()
    assert popularity(20).sum() == pytest.approx(1)
    assert number_of_values(28_476) == 180


def test_tsafrir_values_are_nice_distinct_and_within_the_maximum() -> None:
    top = 60 * 3600 * US_PER_S
    values = values_by_rank(180, top, rng())
    assert (values / (60 * US_PER_S)).tolist()[:4] == [3600, 60, 5, 240]
    assert len(set(values.tolist())) == len(values)
    assert values.max() == top
    assert values.min() >= 60 * US_PER_S
    assert (values % (60 * US_PER_S) == 0).all()
    assert np.median(values) < 0.25 * top, "most values are short"
    assert values_by_rank(20, 90 * US_PER_S, rng()).tolist() == [90 * US_PER_S, 60 * US_PER_S], "a small maximum"


def test_tsafrir_estimates_keep_their_distribution_where_run_times_allow_it() -> None:
    n = 20_000
    some = workload(*[(10, -1)] * n)
    told = with_estimates(some, parse("tsafrir:216000"), rng()).estimate_us
    counts = Counter(told.tolist())
    expected = popularity(number_of_values(n))
    popular = [216_000, 3600, 300, 14_400]
    for value, p in zip(popular, expected, strict=False):
        assert abs(counts[value * US_PER_S] / n - p) < 4.5 * (p * (1 - p) / n) ** 0.5
    assert sum(count for _, count in counts.most_common(20)) / n == pytest.approx(0.89, abs=0.01)


def test_dealing_uses_each_value_once_and_a_job_too_long_for_all_keeps_its_run_time() -> None:
    run, values = np.array([5, 50, 20, 500]), np.array([10, 60, 30, 100])
    told = deal(run, values, rng())
    assert told[3] == 500
    assert (told >= run).all()
    assert set(told[:3].tolist()) <= {10, 30, 60, 100}
    assert len(set(told.tolist())) == 4
    firsts = {int(deal(run, values, rng(seed))[0]) for seed in range(50)}
    assert firsts == {10, 30, 60, 100}, "a short job may get any of them"


def test_tsafrir_on_a_generated_log_gives_poor_estimates_of_few_values() -> None:
    some = prepare(generate("lublin03", 20_000, 128, rng(), load=0.7))
    told = with_estimates(some, parse("tsafrir"), rng()).estimate_us
    assert len(set(told.tolist())) < 400
    assert np.median(some.run_us / told) < 0.3
