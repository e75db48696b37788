"""Jobs with which planning fails: they alone are left out, with a bounded number of plans, and all is told again.

Histories have a policy that fails for every fourth job, now and then, in one of the ways of ``kit.mutants.FailsFor``.
"""

from collections.abc import Collection
from dataclasses import dataclass
from math import ceil, log2
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.mutants import FITS, FailsFor
from msgspec import structs
from properties.test_plans_fit import ClusterLife
from properties.test_policies_of_shapes import ShapedLife

from cosched.model.job import Job, JobState
from space_scheduler.eligibility.set_aside import EARLIEST_US, LATEST_US, Aside, SetAside
from space_scheduler.machine import blame
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import SetAside as Told
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Plan, PlannedStart, Policy

pytestmark = pytest.mark.usefixtures("sets_aside")

seeds = st.integers(0, 1 << 32)

# --- the search -------------------------------------------------------------------------------------------------------


class Attempts:
    """Plans that start all of their jobs, and fail while a culprit is among them."""

    def __init__(self, culprits: Collection[int], named: bool = False) -> None:
        self.culprits, self.named = culprits, named
        self.made = 0
        self.starts: dict[int, PlannedStart] = {}

    def __call__(self, part: Collection[int]) -> Plan:
        self.made += 1
        found = sorted({*self.culprits}.intersection(part))
        if found:
            error = KeyError("a culprit")
            if self.named:
                error.job_id = found[-1]  # type: ignore[attr-defined]
            raise error
        for each in part:
            if each not in self.starts:
                self.starts[each] = PlannedStart(Job(each, 1, 1, 0), FITS)
        return Plan([self.starts[each] for each in part])


def searched(known: int, new: int, culprits: Collection[int], *, named: bool = False) -> tuple[blame.Found, int]:
    attempts = Attempts(culprits, named)
    jobs = [*range(known + new)]
    with pytest.raises(KeyError) as first:
        attempts(jobs)
    found = blame.without_culprits(attempts, jobs[:known], jobs[known:], first.value)
    return found, attempts.made - 1


@given(known=st.integers(0, 60), new=st.integers(0, 60), draw=st.randoms(use_true_random=False), named=st.booleans())
def test_plan_is_that_of_the_jobs_that_take_part_and_has_no_culprit(
    known: int, new: int, draw: Random, named: bool
) -> None:
    if not known + new:
        return
    culprits = {draw.randrange(known + new) for _ in range(draw.choice((1, 1, 2, 5, 40)))}
    found, made = searched(known, new, culprits, named=named)
    assert made <= blame.MOST_PLANS
    assert {change.job.id for change in found.plan.changes} == {*found.part}
    assert not culprits.intersection(found.part)
    assert {*found.blamed} == {*range(known + new)}.difference(found.part)
    assert {each for each, why in found.blamed.items() if why.tried} <= culprits, "nobody else is blamed"


@pytest.mark.parametrize(("known", "new"), [(10_000, 0), (0, 10_000), (5_000, 5_000)])
@settings(max_examples=max(20, settings().max_examples // 5))
@given(culprit=st.integers(0, 9_999))
def test_one_culprit_of_ten_thousand_is_found_alone(known: int, new: int, culprit: int) -> None:
    found, made = searched(known, new, {culprit})
    assert {*found.blamed} == {culprit}
    assert made <= blame.MOST_PLANS


def test_newcomer_that_fails_beside_others_costs_three_plans() -> None:
    found, made = searched(10_000, 1, {10_000})
    assert ({*found.blamed}, made) == ({10_000}, 2)
    found, made = searched(10_000, 1, {10_000}, named=True)
    assert ({*found.blamed}, made) == ({10_000}, 1)


@settings(max_examples=max(30, settings().max_examples * 3 // 10))
@given(count=st.integers(1, 2_000), draw=st.randoms(use_true_random=False))
def test_each_try_again_of_many_makes_progress(count: int, draw: Random) -> None:
    """Rounds end with every job that is no culprit back, and every culprit tried by itself."""
    jobs = [*range(count)]
    culprits = {each for each in jobs if draw.random() < draw.choice((0.001, 0.5, 0.999))}
    attempts = Attempts(culprits)
    waiting, found, rounds, tried = jobs, blame.Found(Plan(), [], {}), 0, set[int]()
    while not {*waiting} <= tried:
        rounds += 1
        before = attempts.made
        found = blame.with_those_that_can(attempts, found._replace(blamed={}), waiting)
        assert attempts.made - before <= blame.MOST_PLANS_AGAIN
        assert found.blamed or {*waiting}.intersection(found.part), "a round without any progress"
        tried |= {*found.blamed}
        part = {*found.part}
        waiting = [each for each in waiting if each not in part]
        waiting.sort(key=lambda each: each in tried)
    assert {*waiting} == culprits
    few = len(culprits) + 1
    assert rounds <= 2 * few * (ceil(log2(count + 1)) + 3)


# --- when each is tried again -----------------------------------------------------------------------------------------


@given(
    entries=st.lists(
        st.tuples(st.integers(0, 10), st.integers(0, 10), st.integers(0, 3), st.integers(-1, 3)), max_size=6
    ),
    changes=st.integers(0, 3),
    now_s=st.integers(10, 700),
)
def test_next_try_is_the_first_moment_at_which_one_is_due(
    entries: list[tuple[int, int, int, int]], changes: int, now_s: int
) -> None:
    made = [
        SetAside(at, min(since, tried) * EARLIEST_US, tried * EARLIEST_US, "x", tries, seen)
        for at, (since, tried, tries, seen) in enumerate(entries)
    ]
    aside = Aside()
    aside.restore(made, changes, ())
    next_us = aside.next_us()
    if next_us is None:
        assert not made
        return
    assert next_us <= max(each.tried_us for each in made) + LATEST_US
    assert next_us >= min(each.tried_us for each in made) + EARLIEST_US
    assert bool(aside.due(now_s * EARLIEST_US)) == (now_s * EARLIEST_US >= next_us)


# --- histories --------------------------------------------------------------------------------------------------------

WAYS = ("raises", "names", "misplaces", "resizes")


def failing(name: str, how: str) -> FailsFor:
    """Every fourth job makes it fail while so many processors are free."""
    return FailsFor(resolve(name), lambda job: job.id % 4 == 0, how, lambda snapshot: snapshot.free_procs % 3 > 0)


@dataclass
class FailingLife(ShapedLife):
    """A history under a policy that fails for every fourth job, until its quiet end; ``how``: in which way."""

    how: str = "raises"

    @property
    def policy(self) -> Policy:
        return failing(self.name, self.how)


@dataclass
class FailingClusters(ClusterLife, FailingLife):
    """The same on several clusters."""


POLICIES = ("fcfs", "easy", "conservative", "fpfs", "bestfit", "fjt1+bfm", "equipartition", "equipartition(easy)")


def lived(name: str, how: str, machine: str, seed: int, steps: int) -> ShapedLife:
    clusters = machine == "clusters"
    life = (FailingClusters if clusters else FailingLife)(seed, "named" if clusters else machine, name=name, how=how)
    for _ in range(steps):
        life.step()
    return life


@pytest.mark.parametrize("machine", ["counted", "named", "shared", "clusters"])
@pytest.mark.parametrize("name", POLICIES)
@settings(max_examples=max(4, settings().max_examples // 25))
@given(seed=seeds, how=st.sampled_from(WAYS))
def test_only_they_are_left_out_and_all_is_told_again(name: str, machine: str, seed: int, how: str) -> None:
    """A restored machine goes on as the other, and a replay, which asks no policy, agrees."""
    if machine == "shared" and name == "conservative":
        return  # it cannot be had there
    life = lived(name, how, machine, seed, 50)
    life.goes_on(40)
    told = {each.job_id for *_, instructions in life.told for each in instructions if isinstance(each, Told)}
    if how != "misplaces":  # which takes its place from another, of which it is not known who it is
        assert all(job_id % 4 == 0 for job_id in told), told


def test_histories_have_jobs_of_all_kinds_that_are_set_aside_and_come_back() -> None:
    wanted = {("raises", JobState.WAITING), ("resizes", JobState.RUNNING), ("names", JobState.WAITING)}
    states: set[tuple[str, JobState]] = set()
    back = 0
    for seed in range(60):
        for how in WAYS:
            life = lived("equipartition", how, "named", seed, 80)
            back += sum(len(decided.back) for *_, decided, _ in life.told if decided is not None)
            states |= {(how, life.state.records[each.job_id].state) for each in life.state.machine.jobs.aside}
        if back > 10 and wanted <= states:
            return
    pytest.fail(f"{back} are back; {wanted - states}")


@pytest.mark.parametrize("field", ["aside", "aside_changes"])
def test_snapshot_without_those_that_are_set_aside_would_be_missed(field: str) -> None:
    empty = SavedState(now_us=0, passes=0, ranks=0)

    def lives() -> None:
        for seed in range(60):
            life = lived("easy", "raises", "counted", seed, 45)
            saved = structs.replace(life.state.snapshot(), **{field: getattr(empty, field)})
            restored = SchedulerState.restore(life.policy, life.rules, saved)
            for _ in range(40):
                life.step()
                at_us, event, _, instructions = life.told[-1]
                assert restored.handle(event, at_us) == instructions

    with pytest.raises((AssertionError, LookupError)):
        lives()


@settings(max_examples=30)
@given(seed=seeds, how=st.sampled_from(WAYS))
def test_every_job_ends_once_the_policy_fails_no_more(seed: int, how: str) -> None:
    life = lived("easy", how, "counted", seed, 60)
    assert isinstance(life.state.policy, FailsFor)
    life.state.policy.bad = lambda job: False
    life.author.now_us += 2 * EARLIEST_US
    life.happens(life.author.now_us, ev.TimerDue())
    life.end()
