"""What each mode does with a job, by example: how it receives, its budget, its neighbours, the clock."""

import pytest

from cosched.linux.cgroups import PERIOD_US
from cosched.model.coscheduling import Mode, Receives, fair_rates
from node_agent.policy.budget import KEPT_US
from node_agent.policy.gang import Clock, period_begins_us, slots
from node_agent.policy.modes import ARRIVALS_US, SELDOM_US, Coscheduling, Decision
from node_agent.policy.raising import HOLD_US, LONGEST_HOLD_US, RAISED, Job, Weigh
from node_agent.policy.receives import Counts, received, settled

A, B, C = (1, 1), (2, 1), (3, 1)
SLOT_US = 50_000
S = 1_000_000


@pytest.mark.parametrize(
    ("counts", "messages", "expected"),
    [
        (Counts(950_000, 1, 40), True, Receives.POLLS),
        (Counts(500_000, 0, 125), True, Receives.POLLS),  # preempted by the timer, beside a competitor
        (Counts(500_000, 12, 20_000), True, Receives.YIELDS),
        (Counts(3_000, 0, 60), True, Receives.YIELDS),  # left with three thousandths of a CPU
        (Counts(400_000, 900, 130), True, Receives.BLOCKS),
        (Counts(2_000, 5, 4), True, Receives.BLOCKS),
        (Counts(1_000_000, 0, 250), False, Receives.NOTHING),
        (Counts(3_000, 0, 2), True, Receives.UNKNOWN),
        (Counts(-5, 0, 0), True, Receives.UNKNOWN),  # the number belongs to another thread
    ],
)
def test_how_a_thread_receives(counts: Counts, messages: bool, expected: Receives) -> None:
    assert received(Counts(10, 10, 10), Counts(*(each + 10 for each in counts)), messages=messages) is expected


def test_a_pause_in_the_traffic_is_no_new_way_to_receive() -> None:
    assert settled(Receives.YIELDS, Receives.NOTHING) is Receives.YIELDS
    assert settled(Receives.NOTHING, Receives.BLOCKS) is Receives.BLOCKS
    assert settled(Receives.POLLS, Receives.UNKNOWN) is Receives.POLLS
    assert settled(Receives.UNKNOWN, Receives.NOTHING) is Receives.NOTHING


def node(*jobs: Job, after_s: float = 0.1, contended: bool = True) -> Decision:
    """What is decided for jobs that had used nothing for a while, and so have a full budget."""
    state = Coscheduling()
    state.clock.answered(0, 0, 0)
    begun = [job._replace(waiting=False) for job in jobs]
    state.decide(begun, SLOT_US, 0, contended=contended)
    return state.decide(jobs, SLOT_US, int(after_s * S), contended=contended)


def test_a_blocking_receiver_is_raised_when_a_message_comes() -> None:
    neighbour = Job(B, receives=Receives.NOTHING, share=0.5)
    job = Job(A, Mode.CCS, Receives.BLOCKS, waiting=True, share=0.5)
    assert node(job, neighbour).weights == (Weigh(A, RAISED, 100_000 + HOLD_US),)
    assert node(job._replace(waiting=False), neighbour).weights == ()
    assert node(job, neighbour).look_us == HOLD_US - ARRIVALS_US
    assert node(job._replace(waiting=False), neighbour).look_us == ARRIVALS_US


@pytest.mark.parametrize("receives", [Receives.POLLS, Receives.NOTHING, Receives.UNKNOWN])
def test_nothing_is_done_where_nothing_is_to_be_gained(receives: Receives) -> None:
    job = Job(A, Mode.CCS, receives, waiting=True, share=0.5)
    assert node(job, Job(B, share=0.5)) == ((), None, SELDOM_US)


def test_blocking_receivers_among_themselves_need_nobody() -> None:
    job, other = (Job(key, Mode.CCS, Receives.BLOCKS, waiting=True, share=0.5) for key in (A, B))
    assert node(job, other) == ((), None, SELDOM_US)
    assert node(job, other, Job(C, share=0.5)).weights, "a third one computes, or may"
    both = node(job._replace(receives=Receives.YIELDS), other).weights
    assert both == (Weigh(A, RAISED, 100_000 + HOLD_US), Weigh(B, RAISED, 100_000 + HOLD_US)), "one of them does not"


@pytest.mark.parametrize("mode", [Mode.NONE, Mode.SPIN, Mode.GANG])
def test_these_modes_raise_nobody(mode: Mode) -> None:
    assert node(Job(A, mode, Receives.BLOCKS, waiting=True), Job(B)).weights == ()


def test_who_has_the_cpu_for_himself_is_left_alone() -> None:
    job = Job(A, Mode.DCS, Receives.BLOCKS, waiting=True)
    assert node(job) == ((), None, SELDOM_US)
    assert node(job, Job(B), contended=False) == ((), None, SELDOM_US)


def test_a_budget_ends_raises_and_fills_again() -> None:
    state, other = Coscheduling(), Job(B, receives=Receives.NOTHING, share=0.5)
    job = Job(A, Mode.CCS, Receives.YIELDS, waiting=True, share=0.5)

    def raised(now_us: int, cpu_us: int, mode: Mode = Mode.CCS) -> bool:
        return bool(state.decide([job._replace(cpu_us=cpu_us, mode=mode), other], SLOT_US, now_us, contended=True)[0])

    state.decide([job._replace(waiting=False), other], SLOT_US, 0, contended=True)
    assert raised(1 * S, 400_000)  # it has used 0.4 s of the 0.5 s that were its due
    assert not raised(2 * S, 1_300_000)
    assert not raised(2 * S, 1_300_000)
    assert raised(3 * S, 1_400_000)
    assert raised(4 * S, 2_400_000, Mode.DCS)  # dcs knows no budget


def test_a_raise_is_said_again_before_it_ends_and_not_more_often() -> None:
    state, other = Coscheduling(), Job(B)
    job = Job(A, Mode.DCS, Receives.BLOCKS, waiting=True)
    said = [
        bool(state.decide([job, other], SLOT_US, now_us, contended=True).weights) for now_us in range(0, 60_001, 5_000)
    ]
    again = [at for at, each in enumerate(said) if each]
    assert again == [0, 6, 12], "when there is time for one more look before its end"


def test_a_raise_that_is_needed_again_and_again_is_said_more_seldom() -> None:
    state, other = Coscheduling(), Job(B, receives=Receives.NOTHING, share=0.5)
    job = Job(A, Mode.CCS, Receives.BLOCKS, share=2.0)  # of two CPUs: what is saved up lasts longer than a hold
    state.decide([job, other], SLOT_US, 0, contended=True)
    now_us = S
    holds = []
    for waiting in (True, True, True, True, False, True):
        decision = state.decide([job._replace(waiting=waiting), other], SLOT_US, now_us, contended=True)
        holds += [weight.until_us - now_us for weight in decision.weights]
        now_us += decision.look_us + (ARRIVALS_US if not waiting else 0)  # nobody waits: the raise ends meanwhile
    assert holds == [HOLD_US, 2 * HOLD_US, LONGEST_HOLD_US, LONGEST_HOLD_US, HOLD_US]


def test_a_long_raise_does_not_outlast_the_budget() -> None:
    state, other = Coscheduling(), Job(B, receives=Receives.NOTHING, share=0.5)
    job = Job(A, Mode.CCS, Receives.BLOCKS, waiting=True, share=0.5)
    state.decide([job._replace(waiting=False), other], SLOT_US, 0, contended=True)
    state.decide([job, other], SLOT_US, S, contended=True)
    left_us = 10_000 + 15_000  # of what it had, and what has come in meanwhile
    used = job._replace(cpu_us=KEPT_US // 2 - 10_000)  # half a CPU is its share
    (weight,) = state.decide([used, other], SLOT_US, S + 30_000, contended=True).weights
    assert weight.until_us - (S + 30_000) == 2 * left_us  # for each half of it that it uses as much comes in


def test_tasks_on_several_cpus_use_a_budget_up_sooner() -> None:
    other = Job(B, receives=Receives.NOTHING, share=1.2)

    def longest_us(cpus: float) -> int:
        state, now_us = Coscheduling(), S
        job = Job(A, Mode.CCS, Receives.BLOCKS, waiting=True, share=0.8, cpus=cpus)
        state.decide([job._replace(waiting=False), other], SLOT_US, 0, contended=True)
        holds = []
        for _ in range(4):  # it does not run meanwhile: the budget stays full
            decision = state.decide([job, other], SLOT_US, now_us, contended=True)
            holds += [weight.until_us - now_us for weight in decision.weights]
            now_us += decision.look_us
        return max(holds)

    assert longest_us(1.0) == LONGEST_HOLD_US
    assert longest_us(2.0) == int(0.8 * KEPT_US / (2.0 - 0.8))


def test_a_job_that_may_use_less_leaves_the_rest_to_its_neighbours() -> None:
    held_back = Job(A, Mode.CCS, Receives.POLLS, share=0.25)
    free = Job(B, Mode.CCS, Receives.NOTHING, share=0.75)
    (weight,) = Coscheduling().decide([held_back, free], SLOT_US, 0, contended=True).weights
    assert (weight.key, weight.percent) == (A, 33)


def test_slots_are_the_same_on_nodes_whose_clocks_differ() -> None:
    """Two nodes with clocks 7.7 s apart: in the cluster's time their slots begin together."""
    begins = []
    for ahead_us in (3_200_000, -4_500_000):
        clock = Clock()
        clock.answered(1_000_000, 1_000_500 + ahead_us, 1_001_000)
        found = slots([Job(A, row=0, rows=3), Job(B, row=2, rows=3)], clock, SLOT_US, 2_000_000, 3_000_000)
        assert found is not None
        assert found.rows == ((A,), (), (B,))
        assert found.begin_us <= 2_000_000 < found.begin_us + 3 * SLOT_US
        begins.append((found.begin_us + ahead_us) % (3 * SLOT_US))
    assert begins == [0, 0]


def test_periods_begin_together_on_nodes_whose_clocks_differ_and_turns_with_them() -> None:
    now_us, begins = 2_000_000, []
    for ahead_us in (3_200_123, -4_500_456):
        clock = Clock()
        clock.answered(1_000_000, 1_000_500 + ahead_us, 1_001_000)
        begin_us = period_begins_us(clock, PERIOD_US, now_us)
        assert begin_us is not None
        assert begin_us <= now_us < begin_us + PERIOD_US
        begins.append((begin_us + ahead_us) % PERIOD_US)
        found = slots([Job(A, row=0, rows=2), Job(B, row=1, rows=2)], clock, SLOT_US, now_us, 3_000_000)
        assert found is not None
        assert (found.begin_us - begin_us) % PERIOD_US == 0
    assert begins == [0, 0]


def test_periods_are_left_where_they_are_while_the_clusters_time_is_not_known_to_a_tenth_of_one() -> None:
    clock = Clock()
    assert period_begins_us(clock, PERIOD_US, 0) is None
    clock.answered(0, 0, 2_100)
    assert period_begins_us(clock, PERIOD_US, 2_100) is None
    assert clock.good_for(SLOT_US, 2_100), "good enough for turns"


def test_a_clock_that_is_not_good_enough_gives_slots_up() -> None:
    clock, jobs = Clock(), [Job(A, row=0, rows=2), Job(B, row=1, rows=2)]
    assert slots(jobs, clock, SLOT_US, 0, S) is None
    clock.answered(0, 0, 12_000)  # a round trip of 12 ms: 6 ms off, perhaps
    assert slots(jobs, clock, SLOT_US, 12_000, S) is None
    clock.answered(20_000, 20_000, 24_000)
    assert slots(jobs, clock, SLOT_US, 24_000, S) is not None
    assert slots(jobs, clock, SLOT_US, 24_000 + 40 * S, S) is None  # asked long ago
    clock.forget()
    assert clock.ahead_us(24_000) is None


def test_a_poller_without_slots_is_not_raised_when_slots_are_given_up() -> None:
    state = Coscheduling()
    jobs = [Job(A, Mode.CCS, Receives.YIELDS, waiting=True, rows=2), Job(B, Mode.CCS, Receives.POLLS, row=1, rows=2)]
    decision = state.decide(jobs, SLOT_US, S, contended=True)
    assert decision.slots is None
    assert decision.look_us < SELDOM_US  # the yielder is served by arrivals meanwhile
    state.clock.answered(S, S, S)
    decision = state.decide(jobs, SLOT_US, S, contended=True)
    assert decision.slots is not None
    assert decision.look_us == SELDOM_US


def test_fair_rates_of_jobs_that_wait_for_their_slowest_node() -> None:
    # job 1 runs on both; somebody is at b's desk, so b gives half as much
    rates = fair_rates({"a": 1.0, "b": 0.5}, {1: {"a": 1, "b": 1}, 2: {"a": 1}, 3: {"b": 1}})
    assert rates == pytest.approx({1: 0.25, 3: 0.25, 2: 0.75})


def test_fair_rates_count_tasks_and_never_pass_a_whole_cpu() -> None:
    assert fair_rates({"a": 4.0}, {1: {"a": 1}, 2: {"a": 1}}) == pytest.approx({1: 1.0, 2: 1.0})
    assert fair_rates({"a": 1.0}, {1: {"a": 3}, 2: {"a": 1}}) == pytest.approx({1: 0.25, 2: 0.25})
    assert fair_rates({"a": 0.0, "b": 1.0}, {1: {"a": 1, "b": 1}, 2: {"b": 1}, 3: {}}) == pytest.approx(
        {1: 0.0, 2: 1.0, 3: 0.0}
    )
