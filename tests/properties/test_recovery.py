"""A machine put on paper and made from paper goes on as if nothing had been; one that is replayed asks no policy."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.checks import of_each
from kit.drive import Drive, policy_named, said
from kit.dump import dump
from kit.mutants import FITS, Idler
from kit.script import live

from cosched.model.allocation import Allocation, Share
from cosched.model.coscheduling import Mode
from cosched.model.job import Job, JobState
from space_scheduler.machine import events as ev
from space_scheduler.machine.decision import DecidedChange, DecidedResize, DecidedStart, Decision, memory_kept
from space_scheduler.machine.instructions import AnyInstruction
from space_scheduler.machine.record import Infeasible
from space_scheduler.machine.rules import BadPlan, MachineRules
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Plan, PlannedStart, Policy, Snapshot, traits_of
from space_scheduler.policy.order import fcfs
from space_scheduler.policy.select.early_end import EarlyEnd
from space_scheduler.reasons import Reason, Why

CONSERVATIVE = [f"conservative({choice})" for choice in EarlyEnd]
POLICIES = ["fcfs", "sjf", "bestfit", "fpfs(2)", "firstfit", "easy", "sjbf", "backfill(3)", *CONSERVATIVE]
seeds = st.integers(0, 1 << 32)
rules = st.builds(
    MachineRules,
    kill_at_limit=st.booleans(),
    max_nodes_per_job=st.sampled_from([None, None, 1, 2]),
    place=st.sampled_from(["first-fit", "spread"]),
    coscheduling=st.sampled_from([None, None, Mode.CCS, Mode.GANG]),
)


class Raises:
    """Has the order and the memory of a policy, and must not be asked for a plan."""

    def __init__(self, policy: Policy) -> None:
        self.order = policy.order
        self.memory_type = traits_of(policy).memory_type

    def plan(self, snapshot: Snapshot) -> Plan:
        raise AssertionError("the policy was asked")


class DecidesOtherwise(Raises):
    """Would start the last job of the queue that fits."""

    asked = 0

    def plan(self, snapshot: Snapshot) -> Plan:
        self.asked += 1
        fitting = [job for job in snapshot.queue if job.procs <= snapshot.free_procs and not job.memory_bytes]
        return Plan([PlannedStart(fitting[-1], FITS)] if fitting else [])


def on_paper(value: Any, kind: Any, *, packed: bool = False) -> Any:
    """To bytes and back, in either encoding."""
    if packed:
        return msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind)
    return msgspec.json.decode(msgspec.json.encode(value), type=kind)


# --- snapshots, and recorded decisions -------------------------------------------------------------------------------


def goes_on_the_same(
    policy: str,
    seed: int,
    how: MachineRules,
    at: int,
    named: bool,
    spoil: Callable[[SavedState], SavedState] | None = None,
    other: type[Raises] = Raises,
) -> None:
    """A machine restored after ``at`` steps says what the other says, to the end.

    So does one of any policy that is given the recorded events and decisions, from the beginning.
    """
    restored: SchedulerState | None = None
    replayed = SchedulerState(other(policy_named(policy)), how)
    for step, (state, (now_us, event), instructions) in enumerate(
        live(policy_named(policy), seed, 60, named=named, rules=how)
    ):
        if restored is not None:
            assert restored.handle(event, now_us) == instructions
            assert dump(restored) == dump(state)
            restored.validate()
        elif step == at:
            saved = on_paper(state.snapshot(), SavedState, packed=bool(seed % 2))
            restored = SchedulerState.restore(policy_named(policy), how, spoil(saved) if spoil else saved)
            if spoil is None:
                assert restored.snapshot() == state.snapshot()
                assert dump(restored) == dump(state)
        if spoil is None:
            decided = state.decision() if isinstance(event, ev.Boundary) else None
            recorded = on_paper(decided, Decision | None, packed=bool(seed % 2))
            assert replayed.replay(event, now_us, recorded) == instructions
            assert dump(replayed) == dump(state)
            assert replayed.snapshot() == state.snapshot()
    if isinstance(replayed.policy, DecidesOtherwise):
        assert not replayed.policy.asked


@pytest.mark.parametrize("named", [True, False], ids=["named", "counted"])
@pytest.mark.parametrize("policy", POLICIES)
@of_each
@given(seed=seeds, how=rules, at=st.integers(0, 60), other=st.sampled_from([Raises, DecidesOtherwise]))
def test_a_restored_machine_goes_on_as_the_other_and_a_replay_asks_nobody(
    policy: str, named: bool, seed: int, how: MachineRules, at: int, other: type[Raises]
) -> None:
    goes_on_the_same(policy, seed, how, at, named, other=other)


def without(field: str) -> Callable[[SavedState], SavedState]:
    default = SavedState(now_us=0, passes=0, ranks=0)
    return lambda saved: msgspec.structs.replace(saved, **{field: getattr(default, field)})


def without_of_jobs(field: str) -> Callable[[SavedState], SavedState]:
    default = Job(0, 1, 1, 0)

    def spoil(saved: SavedState) -> SavedState:
        plain = type(saved.jobs[0])(default, 0, JobState.QUEUED, ()) if saved.jobs else None
        jobs = [msgspec.structs.replace(job, **{field: getattr(plain, field)}) for job in saved.jobs]
        return msgspec.structs.replace(saved, jobs=tuple(jobs))

    return spoil


LEFT_OUT = {
    # what is not here is asserted in goes_on_the_same itself, in test_reshaping, test_aside or core/test_eligibility
    **{
        field: without(field)
        for field in SavedState.__struct_fields__
        if field not in ("now_us", "passes", "forgotten", "changing", "aside", "aside_changes", "waiting")
    },
    **{
        field: without_of_jobs(field)
        for field in (
            "rank",
            "state",
            "story",
            "started_us",
            "end_us",
            "promise_us",
            "overruns",
            "overdue_us",
            "reason",
            "cause",
        )
    },
}


@pytest.mark.parametrize("field", LEFT_OUT)
def test_whatever_a_snapshot_left_out_would_be_missed(field: str) -> None:
    def some_lives() -> None:
        for seed in range(60):
            how = MachineRules(coscheduling=Mode.CCS if field in ("turns", "programs") else None)
            goes_on_the_same("conservative", seed, how, 45, seed % 2 == 0, LEFT_OUT[field])

    with pytest.raises((AssertionError, LookupError, TypeError, RuntimeError, ValueError, Infeasible, BadPlan)):
        some_lives()


def test_a_policy_without_a_declared_memory_begins_again_and_is_told_so() -> None:
    seen: list[Snapshot] = []

    class Watching(Idler):
        def plan(self, snapshot: Snapshot) -> Plan:
            seen.append(snapshot)
            return super().plan(snapshot)

    drive = Drive(Watching(), procs=2).with_jobs(1).planned()
    assert drive.state.memory is not None
    saved = on_paper(drive.state.snapshot(), SavedState)
    assert saved.forgotten
    restored = SchedulerState.restore(Watching(), None, saved)
    restored.handle(ev.Boundary(), 1_000_000)
    assert seen[-1].memory is None
    assert seen[-1].changes.disturbed is Why.RESTARTED


@pytest.mark.parametrize(
    ("before", "after"), [("easy", "conservative"), ("conservative", "fpfs(2)"), ("fpfs(2)", "easy")]
)
def test_another_policy_does_not_take_over_the_memory(before: str, after: str) -> None:
    drive = Drive(before, procs=4).with_jobs(3, 3, 3).planned()
    restored = SchedulerState.restore(policy_named(after), None, on_paper(drive.state.snapshot(), SavedState))
    assert restored.memory is None
    assert restored.happened().disturbed is Why.RESTARTED
    restored.handle(ev.Boundary(), 1_000_000)
    restored.validate()


def test_a_users_own_policy_may_declare_its_memory() -> None:
    """Through the guard that plugins are wrapped in."""
    assert traits_of(resolve("test_recovery:Counts")).memory_type is dict
    state = SchedulerState(resolve("test_recovery:Counts"))
    for event in (ev.NodesJoined(2), ev.Boundary(), ev.TimerDue(), ev.Boundary()):
        state.handle(event, 0)
    restored = SchedulerState.restore(resolve("test_recovery:Counts"), None, on_paper(state.snapshot(), SavedState))
    assert restored.memory == {"passes": 2}


class Counts:
    """Remembers how often it was asked."""

    memory_type = dict
    order = staticmethod(fcfs)

    def plan(self, snapshot: Snapshot) -> Plan:
        return Plan(memory={"passes": (snapshot.memory or {"passes": 0})["passes"] + 1})


def test_deciding_again_would_be_noticed() -> None:
    """The policies that stand in do decide otherwise: the test above can fail."""

    class DecidesAgain(SchedulerState):
        def replay(self, event: ev.Event, now_us: int, decided: Decision | None) -> Any:
            return self.handle(event, now_us)

    def replay(other: type[Raises]) -> None:
        state = DecidesAgain(other(policy_named("easy")))
        for live_state, (now_us, event), instructions in live(policy_named("easy"), 1, 60, named=True):
            decided = live_state.decision() if isinstance(event, ev.Boundary) else None
            assert state.replay(event, now_us, decided) == instructions

    for other in (Raises, DecidesOtherwise):
        with pytest.raises(AssertionError):
            replay(other)


def test_the_decision_of_a_pass_in_full() -> None:
    drive = Drive("easy", nodes={"n1": (2,)}).with_jobs(2, 1)
    drive.decide()
    assert drive.state.decision() == Decision(
        changes=(
            DecidedStart(1, drive.state.records[1].allocation or Allocation(0), Reason(Why.FITS, {"free_procs": 2})),
        ),
        memory={"type": "Promises", "starts_us": {"2": 60_000_000}},
        told=((2, 60_000_000, Reason(Why.RESERVED)),),
    )
    drive.decide()
    assert drive.state.decision() is None  # nothing had changed: no pass


def test_a_boundary_without_a_decision_leaves_what_changed_to_the_next_pass() -> None:
    """The policy had failed there, or the journal ends before the decision."""
    drive = Drive("fcfs", nodes={"n1": (2,)}).with_jobs(2)
    assert drive.state.replay(ev.Boundary(), 0, None) == []
    assert drive.decide() == ["start 1 on n1×2 (limit 60 s): FITS, free_procs 2"]


def test_a_decision_that_does_not_fit_is_refused_whole() -> None:
    drive = Drive("fcfs", nodes={"n1": (2,)}).with_jobs(2)
    before = dump(drive.state)
    nowhere = Allocation(2, (Share("n9", 2),))
    wrong: tuple[tuple[DecidedChange, str], ...] = (
        (DecidedStart(7, nowhere, FITS), "starts job 7, which is not in the queue"),
        (DecidedResize(7, nowhere, FITS), "changes job 7, which is not here"),
        (DecidedStart(1, nowhere, FITS), "node n9 is not in service"),
        (DecidedStart(1, Allocation(2, (Share("n1", 1), Share("n1", 1))), FITS), "a node is named twice"),
        (DecidedStart(1, Allocation(2, (Share("n1", 3),)), FITS), "3 tasks on node n1"),
    )
    for change, story in wrong:
        with pytest.raises(BadPlan, match=story):
            drive.state.replay(ev.Boundary(), 0, Decision((change,)))
        assert dump(drive.state) == before


def test_replay_does_not_go_back_in_time() -> None:
    drive = Drive("fcfs", procs=2).at(10)
    drive.decide()
    with pytest.raises(ValueError, match="time went back: 9000000 µs after 10000000 µs"):
        drive.state.replay(ev.Boundary(), 9_000_000, None)


def test_memory_of_another_type_than_was_declared_is_not_kept() -> None:
    easy = policy_named("easy")
    assert memory_kept(None, easy) == (None, False)
    assert memory_kept(object(), easy) == (None, True)
    assert memory_kept((1, 2), easy) == ((1, 2), False)


def test_a_policy_that_forgets_is_replayed_and_then_told() -> None:
    drive = Drive(Idler(), procs=2)
    replayed = SchedulerState(Idler())
    recorded: list[tuple[ev.Event, Decision | None]] = [(ev.NodesJoined(2), None)]
    recorded += [(ev.Boundary(), Decision(forgotten=True))]
    for event, decided in recorded:
        replayed.replay(event, 0, decided)
    assert replayed.machine.changes.disturbed is Why.RESTARTED
    assert said(replayed.handle(ev.JobSubmitted(Job(1, 1, 60, 0)), 0)) == []
    assert said(replayed.handle(ev.Boundary(), 0)) == ["start 1 on 1 (limit 0.00006 s): FITS, free_procs 2"]
    assert drive.state.records == {}


# --- in a journal -----------------------------------------------------------------------------------------------------


@given(seed=seeds, named=st.booleans())
def test_events_and_instructions_can_be_read_again(seed: int, named: bool) -> None:
    for _, (_, event), instructions in live(policy_named("conservative"), seed, 40, named=named):
        assert on_paper(event, ev.AnyEvent) == event
        assert on_paper(instructions, list[AnyInstruction]) == instructions


def test_the_reasons_of_another_version_can_be_read() -> None:
    assert on_paper({"why": "words that nobody uses any more"}, Reason).why is Why.OTHER
    assert on_paper({"why": "FITS"}, Reason).why is Why.FITS
