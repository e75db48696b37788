"""Fair rates and rows of turns, against what they promise."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cosched.model.coscheduling import MAX_ROWS, fair_rates, rows

_NODES = ("a", "b", "c", "d")
_jobs = st.dictionaries(
    st.integers(1, 12), st.dictionaries(st.sampled_from(_NODES), st.integers(1, 3), min_size=1), max_size=9
)
_cpus = st.fixed_dictionaries({node: st.integers(0, 16).map(lambda quarters: quarters / 4) for node in _NODES})


@given(jobs=_jobs, cpus=_cpus, least=st.integers(1, 4))
def test_a_rate_is_as_much_as_is_wanted_or_nobody_beside_it_has_more(
    jobs: dict[int, dict[str, int]], cpus: dict[str, float], least: int
) -> None:
    most = {job: 1 / (1 + job % least) for job in jobs}
    rates = fair_rates(cpus, jobs, most)
    used = {node: sum(rates[job] * on.get(node, 0) for job, on in jobs.items()) for node in _NODES}
    assert all(used[node] <= cpus[node] + 1e-9 for node in _NODES)
    for job, on in jobs.items():
        full = [node for node in on if used[node] >= cpus[node] - 1e-9]
        neighbours = {node: [rates[other] for other in jobs if node in jobs[other]] for node in full}
        assert rates[job] == most[job] or any(rates[job] >= max(neighbours[node]) - 1e-9 for node in full)
        assert rates[job] <= most[job]


@given(
    jobs=_jobs,
    contended=st.sets(st.sampled_from(_NODES)),
    able=st.sets(st.sampled_from(_NODES), min_size=2),
    wanting=st.sets(st.integers(1, 12)),
)
def test_no_two_that_meet_have_one_row_and_all_who_meet_count_the_same(
    jobs: dict[int, dict[str, int]], contended: set[str], able: set[str], wanting: set[int]
) -> None:
    found = rows(jobs, contended, wanting, able)
    meets = [(one, other) for one, other in combinations(jobs, 2) if jobs[one].keys() & jobs[other].keys() & contended]
    for one, other in meets:
        assert (one in found) == (other in found)
        if one in found:
            assert found[one][0] != found[other][0]
            assert found[one][1] == found[other][1] <= MAX_ROWS
    for job in found:
        assert set(jobs[job]) <= able
        assert any(job in pair for pair in meets)
    if wanting >= set(jobs) and able == set(_NODES) and len(jobs) <= MAX_ROWS:
        assert {job for pair in meets for job in pair} == set(found)


def test_ten_thousand_equal_jobs_stop_at_once() -> None:
    """Each at its whole CPU: it took a walk over all nodes for every job."""
    jobs = {number: {f"node{number}": 1} for number in range(10_000)}
    assert fair_rates(dict.fromkeys((f"node{number}" for number in range(10_000)), 1.0), jobs) == pytest.approx(
        dict.fromkeys(jobs, 1.0)
    )
