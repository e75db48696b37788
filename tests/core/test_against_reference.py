"""Every policy gives the schedule, and makes the promises, of its plain re-implementation in ``reference``."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.checks import of_each
from kit.loads import J, loads, story, workload
from reference import rules
from reference.world import Job, Rule, World, jobs_of

from cosched.workload.rules import AtLimit, Workload
from space_scheduler.policy.presets import PRESETS, compose
from space_scheduler.simulator.host import Ties, simulate

pytestmark = pytest.mark.slow

KEYS: dict[str, Callable[[Job], object]] = {
    "fcfs": lambda job: job.number,
    "sjf": lambda job: (job.estimate, job.number),
    "ljf": lambda job: (-job.estimate, job.number),
}


class Pair(NamedTuple):
    order: str
    select: str
    reference: Callable[[], Rule[World[Job]]]
    uses_estimates: bool = False


PAIRS = [
    Pair("fcfs", "jfirst", rules.JustTheHead),
    Pair("sjf", "jfirst", rules.JustTheHead),
    Pair("ljf", "jfirst", rules.JustTheHead),
    Pair("fcfs", "bestfit", rules.BestFit),
    Pair("ljf", "bestfit", rules.BestFit),
    Pair("fcfs", "fpfs(0)", rules.JustTheHead),
    Pair("fcfs", "fpfs(1)", lambda: rules.Fpfs(1)),
    Pair("fcfs", "fpfs(3)", lambda: rules.Fpfs(3)),
    Pair("sjf", "fpfs(2)", lambda: rules.Fpfs(2)),
    Pair("fcfs", "backfill(0)", lambda: rules.Backfill(0), True),
    Pair("fcfs", "backfill(1)", rules.Easy, True),
    Pair("fcfs", "backfill(1)", lambda: rules.Backfill(1), True),
    Pair("sjf", "backfill(1)", rules.Easy, True),
    Pair("ljf", "backfill(1)", rules.Easy, True),
    Pair("fcfs", "backfill(1,shortest)", lambda: rules.Easy(shortest_first=True), True),
    Pair("fcfs", "backfill(2)", lambda: rules.Backfill(2), True),
    Pair("fcfs", "backfill(4)", lambda: rules.Backfill(4), True),
    Pair("sjf", "backfill(3)", lambda: rules.Backfill(3), True),
    Pair("fcfs", "conservative(none)", lambda: rules.Conservative("none"), True),
    Pair("fcfs", "conservative(anew)", lambda: rules.Conservative("anew"), True),
    Pair("fcfs", "conservative(schedule)", lambda: rules.Conservative("schedule"), True),
    Pair("fcfs", "conservative(arrival)", lambda: rules.Conservative("arrival"), True),
    Pair("sjf", "conservative(arrival)", lambda: rules.Conservative("arrival"), True),
    Pair("ljf", "conservative(anew)", lambda: rules.Conservative("anew"), True),
]
names = [f"{i}-{pair.order}-{pair.select}" for i, pair in enumerate(PAIRS)]


def agree(pair: Pair, load: Workload, ties: Ties, at_limit: AtLimit) -> None:
    sequential, kill = ties is Ties.SEQUENTIAL, at_limit is AtLimit.KILL
    ours = simulate(load, compose(pair.order, pair.select), ties=ties, at_limit=at_limit, validate=True)
    rule = pair.reference()
    jobs = jobs_of(load)
    World(load.procs_total, jobs, KEYS[pair.order], sequential=sequential, kill=kill).play(rule)
    assert ours.start_us.tolist() == [job.start for job in jobs], story(load)
    if isinstance(rule, rules.Easy | rules.Conservative):
        promised = [-1 if job.promised is None else job.promised for job in jobs]
        assert ours.promised_us.tolist() == promised, story(load)


@pytest.mark.parametrize("ties", Ties)
@pytest.mark.parametrize("pair", PAIRS, ids=names)
@of_each
@given(load=loads())
def test_with_jobs_killed_at_their_limit(pair: Pair, ties: Ties, load: Workload) -> None:
    agree(pair, load, ties, AtLimit.KILL)


# conservative, once a job has overrun, places everything again whenever it looks; how often it looks is its own affair
OVERRUNNING = [pair for pair in PAIRS if not pair.select.startswith("conservative")]


@pytest.mark.parametrize("ties", Ties)
@pytest.mark.parametrize("pair", OVERRUNNING, ids=[f"{i}-{p.order}-{p.select}" for i, p in enumerate(OVERRUNNING)])
@of_each
@given(load=loads(beyond_limit=True))
def test_with_jobs_that_run_past_their_estimate(pair: Pair, ties: Ties, load: Workload) -> None:
    agree(pair, load, ties, AtLimit.RUN)


@given(
    load=loads(),
    ties=st.sampled_from(Ties),
    sides=st.sampled_from([("jfirst", "fpfs(0)"), ("fpfs(99)", "backfill(0)")]),
)
def test_two_names_of_one_policy(load: Workload, ties: Ties, sides: tuple[str, str]) -> None:
    """fpfs(0) is FCFS, and fpfs without a bound in reach is first fit."""
    one, other = (simulate(load, compose("fcfs", select), ties=ties) for select in sides)
    assert one.start_us.tolist() == other.start_us.tolist()


@pytest.mark.parametrize("pair", PAIRS, ids=names)
def test_every_preset_has_a_reference_that_can_disagree(pair: Pair) -> None:
    """One workload on which a policy of another kind gives another schedule: the comparison is not empty."""
    load = workload(4, [J(0, 3, 10, 6), J(0, 4, 5), J(1, 1, 4, 2), J(1, 1, 20), J(1, 2, 3), J(2, 1, 1)])
    other = PAIRS[0] if pair.select not in ("jfirst", "fpfs(0)") else PAIRS[3]
    with pytest.raises(AssertionError):
        agree(pair._replace(reference=other.reference), load, Ties.BATCH, AtLimit.KILL)


def test_every_preset_is_compared() -> None:
    compared = {(pair.order, compose(pair.order, pair.select)) for pair in PAIRS}
    presets = {(preset.order, compose(preset.order, preset.select)) for preset in PRESETS.values()}
    fpfs_of_ten = ("fcfs", compose("fcfs", "fpfs(10)"))  # compared with other bounds
    assert presets - compared == {fpfs_of_ten}
