"""A fixed set of histories is clean and fires every fault; hosts that break a promise are found, and by its name."""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import pytest
from kit.mutants import sleepers_anywhere

from faults import ailing, depending, mutants
from faults.chain import Chain
from faults.history import RATES, Result, lived, shrunk
from faults.mutants import SCHEDULERS
from faults.node import Node
from faults.node_mutants import NODES, ForgetsAttempts
from faults.scheduler import Scheduler
from faults.shapes import CHANGES

pytestmark = pytest.mark.usefixtures("sets_aside")

#: In this many histories each of the mutants has to be found.
WITHIN = 200
#: With what is patched for a history, the promise that the judge names, and the first seed that finds it.
PATCHES: dict[Callable[[], AbstractContextManager[object]], tuple[str, int]] = {
    mutants.no_lock: ("O4", 2),
    mutants.no_checksums: ("O2", 7),
    mutants.no_labs: ("C1", 1),
    mutants.wedged: ("O13", 7),
    sleepers_anywhere: ("O13", 35),
}
#: The histories that are lived through at least: those that find the mutants, so each is one that can see a mistake.
TELLING = sorted({first for _, first in (SCHEDULERS | NODES | PATCHES).values()})
#: Those in which a job is unfolded, and in which one is resumed: few do.
RARE = (122, 270)


def test_a_fixed_set_of_histories_is_clean_and_every_fault_fires() -> None:
    """Of other seeds, more of those in which shapes change are searched until each fault and change has occurred."""
    fired: Counter[str] = Counter()
    searched = range(TELLING[-1], 1000, 4)  # of every fourth, policies change shapes (``faults.settings``)
    for number, seed in enumerate((*TELLING, *RARE, *searched)):
        missing = [site for site in (*RATES, *CHANGES, *ailing.SEEN, *depending.SEEN) if not fired[site]]
        if number >= len(TELLING) and not missing:
            return
        result = lived(seed)
        assert not result.violation, f"./run faults --seed {seed}: {result.violation}"
        fired += result.fired
    pytest.fail(f"never occurred: {missing}")


def test_a_seed_is_a_history() -> None:
    first = lived(5)
    assert lived(5) == first
    assert lived(6).trace != first.trace


def test_without_faults_every_job_ends_as_its_script_does() -> None:
    for seed in range(5):
        result = lived(seed, rates={})
        assert not result.violation
        assert set(result.states) <= {"completed", "failed", "timed out", "cancelled"}


@pytest.mark.parametrize("mutant", SCHEDULERS)
def test_a_scheduler_is_found_that(mutant: type[Scheduler]) -> None:
    found(*SCHEDULERS[mutant], scheduler_type=mutant)


@pytest.mark.parametrize("mutant", NODES)
def test_a_node_is_found_that(mutant: type[Node]) -> None:
    found(*NODES[mutant], node_type=mutant)


@pytest.mark.parametrize("mutant", PATCHES)
def test_it_is_found_that_there_are(mutant: Callable[[], AbstractContextManager[object]]) -> None:
    with mutant():
        found(*PATCHES[mutant])


def found(promise: str, first: int = 0, **how: Any) -> None:
    """A history breaks this promise (empty: any); ``first`` is the seed to begin with."""
    others: Counter[str] = Counter()
    for seed in (first, *range(WITHIN)):
        if violation := lived(seed, **how).violation:
            if promise in violation:
                return
            others[violation[:60]] += 1
    pytest.fail(f"not found in {WITHIN} histories; others: {dict(others)}")


@pytest.mark.parametrize("seed", range(3))
def test_chain_of_dependent_jobs_runs_once_and_in_order_without_faults(seed: int) -> None:
    length = 15
    result = lived(seed, kind=partial(Chain, length=length), rates={})
    assert not result.violation
    assert set(result.states) <= {"completed", "failed"}
    assert (result.states.total(), result.fired["followed"]) == (length, length - 1)


@pytest.mark.parametrize(
    ("seeds", "length"),
    [pytest.param(range(3), 15, id="some"), pytest.param(range(12), 1000, id="all", marks=pytest.mark.long)],
)
def test_chain_of_dependent_jobs_keeps_its_order_under_faults(seeds: Sequence[int], length: int) -> None:
    for seed in seeds:
        result = lived(seed, kind=partial(Chain, length=length))
        assert not result.violation, f"./run faults --chain {length} --seed {seed}: {result.violation}"
        assert result.states.total() >= length


class OfTwoFaults:
    """A history that breaks a promise where two of its faults happen."""

    def __init__(self, seed: int, only: frozenset[int] | None) -> None:
        self._seed, self._breaks = seed, only is None or {3, 17} <= only

    def live(self) -> Result:
        return Result(self._seed, "broken" if self._breaks else "", Counter(), 20, [], Counter())


def test_a_history_is_shrunk_to_what_breaks_the_promise() -> None:
    assert shrunk(5, kind=OfTwoFaults) == (frozenset({3, 17}), OfTwoFaults(5, None).live())


def test_of_a_seeds_faults_those_happen_that_are_chosen() -> None:
    how: dict[str, Any] = {"node_type": ForgetsAttempts}
    seed, first = 2, 16  # found in its first seconds, and by this fault alone
    whole = lived(seed, **how)
    assert whole.violation
    assert sum(whole.fired[site] for site in RATES) > 1
    alone = next(
        result
        for number in (first, *range(1, whole.faults + 1))
        if (result := lived(seed, frozenset({number}), **how)).violation
    )
    assert sum(alone.fired[site] for site in RATES) == 1
    assert not lived(seed, frozenset({first})).violation, "without the mutant this fault is harmless"
