"""Which processors of a node a job gets: by hand, and for all that others may have."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from node_agent.policy.processors import Claim, chosen, crowded

PROCS = 8
PLACES = st.sets(st.integers(0, PROCS - 1)).map(lambda places: tuple(sorted(places)))
CLAIMS = st.lists(st.builds(Claim, PLACES, st.booleans()), max_size=5)


def users(claims: list[Claim]) -> Counter[int]:
    return Counter(place for claim in claims if claim.used for place in claim.processors)


@given(count=st.integers(1, 9), own=PLACES, others=CLAIMS, cpus=st.integers(1, PROCS))
def test_job_keeps_its_own_then_takes_idle_processors_then_shares(
    count: int, own: tuple[int, ...], others: list[Claim], cpus: int
) -> None:
    found, used = set(chosen(count, own, others, PROCS, cpus)), users(others)
    assert len(found) == min(count, PROCS)
    alone = {place for place in own if not used[place]}
    assert found <= alone or alone <= found
    idle = PROCS - len(used)
    assert sum(used[place] > 0 for place in found) == max(0, len(found) - idle), "none is shared in vain"


@given(claims=CLAIMS)
def test_moving_crowded_jobs_ends_and_leaves_no_shared_processor_beside_an_idle_one(claims: list[Claim]) -> None:
    for _ in range(PROCS * len(claims) + 1):
        if (index := crowded(claims, PROCS)) is None:
            break
        own = claims[index].processors
        others = claims[:index] + claims[index + 1 :]
        claims = [*claims[:index], Claim(chosen(len(own), own, others, PROCS, PROCS)), *claims[index + 1 :]]
    used = users(claims)
    assert len(used) == PROCS or max(used.values(), default=0) <= 1


def test_job_lies_on_as_many_cpus_of_the_machine_as_it_can() -> None:
    """Where a node offers more processors than there are CPUs, several of them are one CPU."""
    assert chosen(2, {2}, [Claim((0, 1))], 4, 2) == (2, 3)
    assert chosen(2, {2}, [], 4, 2) == (1, 2), "0 is on the CPU of 2"
    assert chosen(2, {0, 1, 2, 3}, [], 4, 2) == (0, 1)
    assert chosen(2, {1, 2, 3}, [], 4, 2) == (1, 2)
    assert chosen(1, (), [Claim((2,))], 4, 2) == (1,), "0 is on the CPU of 2, which another job uses"


def test_sleeping_jobs_processor_is_taken_after_idle_ones_and_before_used_ones() -> None:
    others = [Claim((0,), used=False), Claim((1,))]
    assert chosen(1, (), others, 3, 3) == (2,)
    assert chosen(2, (), others, 3, 3) == (0, 2)
    assert chosen(3, (), others, 3, 3) == (0, 1, 2)


def test_least_used_processor_is_shared_where_none_is_idle() -> None:
    assert chosen(1, (), [Claim((0,)), Claim((0,)), Claim((1,))], 2, 2) == (1,)


def test_latest_of_two_jobs_that_share_a_processor_is_crowded() -> None:
    assert crowded([Claim((0,)), Claim((0,)), Claim((1,))], 3) == 1
    assert crowded([Claim((0,)), Claim((0,)), Claim((1,))], 2) is None, "no processor is idle"
    assert crowded([Claim((0,)), Claim((0,), used=False)], 2) is None, "one of the two sleeps"
