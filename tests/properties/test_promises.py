"""The promises of the policies, on small workloads, each with the mutants it catches.

Premises (docs/design/semantics.md): order of arrival, jobs killed at their limit, a fixed machine, a host in time.
"""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit import mutants
from kit.checks import (
    Broken,
    Watched,
    each_job_ends_exactly_once,
    fails,
    first_promises_are_kept,
    no_promise_is_moved_later,
    of_each,
    processors_are_not_over_committed,
    run,
    starts_are_possible,
    starts_follow_arrivals,
    telling,
)
from kit.drive import policy_named
from kit.loads import J, loads, workload

from cosched.workload.rules import AtLimit, Workload
from space_scheduler.machine.record import UnknownJob
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Policy
from space_scheduler.policy.presets import PRESETS, compose
from space_scheduler.policy.select.backfill import Backfill
from space_scheduler.simulator.host import Ties

CONSERVATIVE = [f"conservative({choice})" for choice in ("none", "anew", "schedule", "arrival")]
EVERY_POLICY = [*PRESETS, "fpfs(0)", "fpfs(2)", "backfill(2)", "backfill(5)", *CONSERVATIVE]
#: Backfilling with one line that is wrong.
OF_ONE_LINE = (
    mutants.shadow_off_by_one, mutants.shadow_ignored, mutants.extra_not_decremented, mutants.one_extra_too_many,
)  # fmt: skip
ties = st.sampled_from(Ties)

# --- processors, and the lives of jobs --------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", EVERY_POLICY)
@of_each
@given(data=st.data(), at_limit=st.sampled_from(AtLimit), ties=ties, delay_us=st.sampled_from([0, 0, 1, 3, 2_000_000]))
def test_no_processor_is_over_committed_and_every_job_ends_once(
    policy: str, data: st.DataObject, at_limit: AtLimit, ties: Ties, delay_us: int
) -> None:
    """Also where jobs overrun, and launches take time."""
    load = data.draw(loads(beyond_limit=at_limit is AtLimit.RUN))
    done = run(load, policy, ties, at_limit=at_limit, launch_delay_us=delay_us, validate=True)
    processors_are_not_over_committed(done.outcome)
    starts_are_possible(done.outcome)
    each_job_ends_exactly_once(done)


@pytest.mark.parametrize(
    ("machine", "policy"), [(mutants.Gullible, mutants.DoubleBooker()), (mutants.Generous, policy_named("easy"))]
)
def test_over_commitment_catches_the_double_booker_and_the_generous_machine(
    machine: type[SchedulerState], policy: Policy
) -> None:
    with mutants.machine(machine):
        fails(lambda load: processors_are_not_over_committed(run(load, policy).outcome))


def test_over_commitment_sees_half_open_intervals() -> None:
    """Two jobs of the whole machine, end to end, are no over-commitment; one that begins earlier is."""
    done = run(workload(4, [J(0, 4, 10), J(0, 4, 10)]), "fcfs")
    processors_are_not_over_committed(done.outcome)
    done.outcome.start_us[1] -= 1
    with pytest.raises(Broken, match="8 of 4 processors busy"):
        processors_are_not_over_committed(done.outcome)


def test_possible_starts_catch_the_early_starter() -> None:
    with mutants.simulator(mutants.EarlyStarter):
        fails(lambda load: starts_are_possible(run(load, "easy").outcome))


def test_ending_exactly_once_catches_the_amnesiac() -> None:
    with mutants.machine(mutants.amnesiac):
        fails(lambda load: each_job_ends_exactly_once(run(load, "easy")))


@pytest.mark.parametrize(
    ("what", "policy"),
    [
        (nullcontext(), mutants.Forgetter()),
        (mutants.machine(mutants.Leaker), policy_named("easy")),
        (mutants.simulator(mutants.Dropper), policy_named("easy")),
    ],
    ids=["forgetter", "leaker", "dropper"],
)
def test_draining_catches(what: AbstractContextManager[object], policy: Policy) -> None:
    """A simulation that cannot end says so, and whom it concerns."""
    with what:
        fails(lambda load: each_job_ends_exactly_once(run(load, policy)))


def test_an_end_reported_twice_is_an_error_of_the_host() -> None:
    with mutants.simulator(mutants.Stammerer), pytest.raises(UnknownJob, match="job 0 is not queued, starting or"):
        run(workload(2, [J(0, 1, 5)]), "easy")


# --- first come, first served -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["fcfs", "uniform-hard"])
@telling(ties=Ties.BATCH)
@given(load=loads(), ties=ties)
def test_fcfs_starts_in_order_of_arrival(policy: str, load: Workload, ties: Ties) -> None:
    starts_follow_arrivals(run(load, policy, ties).outcome)


#: These start in order of arrival where processors are counted.
IN_ORDER = ("fcfs", "fpfs(0)", *(name for name, preset in PRESETS.items() if preset.place))


@pytest.mark.parametrize("policy", [name for name in EVERY_POLICY if name not in IN_ORDER])
def test_order_of_arrival_catches_every_other_policy(policy: str) -> None:
    fails(lambda load: starts_follow_arrivals(run(load, policy).outcome))


# --- EASY -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["easy", "sjbf"])
@telling(ties=Ties.BATCH)
@given(load=loads(), ties=ties)
def test_easy_never_exceeds_the_first_reservation_of_a_head(policy: str, load: Workload, ties: Ties) -> None:
    first_promises_are_kept(run(load, policy, ties).outcome)


@telling(ties=Ties.BATCH)
@given(load=loads(), ties=ties)
def test_easys_reservations_only_come_nearer(load: Workload, ties: Ties) -> None:
    no_promise_is_moved_later(run(load, "easy", ties).seen)


@pytest.mark.parametrize("ties", Ties)
@pytest.mark.parametrize("mutant", OF_ONE_LINE)
def test_the_heads_reservation_catches(mutant: type[AbstractContextManager[object]], ties: Ties) -> None:
    with mutant():
        fails(lambda load: first_promises_are_kept(run(load, "easy", ties).outcome))
        fails(lambda load: no_promise_is_moved_later(run(load, "easy", ties).seen))


def test_the_heads_reservation_catches_the_idler() -> None:
    fails(lambda load: first_promises_are_kept(run(load, mutants.Idler()).outcome))


def test_the_premises_are_needed() -> None:
    """In order of estimates, or where jobs may overrun, a head's first reservation can be exceeded."""
    shortest_first = compose("sjf", "backfill(1)")
    fails(lambda load: first_promises_are_kept(run(load, shortest_first).outcome))
    overrun = workload(2, [J(0, 2, 10, 90), J(1, 2, 5)])
    with pytest.raises(Broken, match="job 1 starts at 90000000, promised 10000000"):
        first_promises_are_kept(run(overrun, "easy", at_limit=AtLimit.RUN).outcome)


# --- backfill(n) ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n", "policy"), [(1, "backfill(1)"), (1, "sjbf"), (2, "backfill(2)"), (3, "backfill(3)"), (99, "backfill(99)")]
)
@telling(ties=Ties.BATCH)
@given(load=loads(), ties=ties)
def test_nothing_started_in_a_pass_moves_a_reservation_of_that_pass(
    n: int, policy: str, load: Workload, ties: Ties
) -> None:
    run(load, Watched(policy_named(policy), n), ties)


@pytest.mark.parametrize("mutant", OF_ONE_LINE)
def test_reservations_of_a_pass_catch(mutant: type[AbstractContextManager[object]]) -> None:
    with mutant():
        fails(lambda load: run(load, Watched(Backfill(1), 1)))


@pytest.mark.parametrize("n", [2, 3])
def test_reservations_of_a_pass_catch_one_who_keeps_only_the_first(n: int) -> None:
    fails(lambda load: run(load, Watched(mutants.OneReservation(), n)))


# --- conservative -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("choice", ["none", "schedule", "arrival"])
@telling(ties=Ties.BATCH)
@given(load=loads(), ties=ties)
def test_conservative_never_starts_a_job_after_its_guarantee(choice: str, load: Workload, ties: Ties) -> None:
    done = run(load, f"conservative({choice})", ties, validate=True)
    first_promises_are_kept(done.outcome)
    no_promise_is_moved_later(done.seen)


@pytest.mark.parametrize("order", ["sjf", "ljf"])
@telling(ties=Ties.BATCH)
@given(load=loads(), ties=ties)
def test_conservatives_guarantee_needs_no_order_of_arrival(order: str, load: Workload, ties: Ties) -> None:
    first_promises_are_kept(run(load, compose(order, "conservative"), ties).outcome)


@telling(ties=Ties.BATCH)
@given(load=loads(), ties=ties)
def test_with_exact_estimates_every_choice_gives_one_schedule_of_one_promise(load: Workload, ties: Ties) -> None:
    """Without early ends there is nothing to choose: each starts exactly at its first reservation, or at once."""
    load = replace(load, run_us=load.estimate_us)
    starts = []
    for policy in CONSERVATIVE:
        outcome = run(load, policy, ties).outcome
        told = outcome.promised_us >= 0
        assert (outcome.start_us[told] == outcome.promised_us[told]).all()
        assert (outcome.start_us[~told] == load.submit_us[~told]).all()
        starts.append(outcome.start_us.tolist())
    assert all(other == starts[0] for other in starts)


def test_the_guarantee_catches_backfilling_anew() -> None:
    fails(lambda load: first_promises_are_kept(run(load, "conservative(anew)").outcome))
    fails(lambda load: no_promise_is_moved_later(run(load, "conservative(anew)").seen))


@pytest.mark.parametrize(
    ("choice", "mutant"), [("arrival", mutants.compression_moves_later), ("schedule", mutants.schedule_order_reversed)]
)
def test_the_guarantee_catches(choice: str, mutant: type[AbstractContextManager[object]]) -> None:
    with mutant():
        fails(lambda load: first_promises_are_kept(run(load, f"conservative({choice})").outcome))
        fails(lambda load: no_promise_is_moved_later(run(load, f"conservative({choice})").seen))
