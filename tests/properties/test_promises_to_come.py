"""No promise that is shown lies in the past, whatever overruns: the host asks for a pass when a job is overdue."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.drive import policy_named
from kit.script import Author, Step

from cosched.model.job import JobState
from cosched.model.time import FOREVER_US
from space_scheduler.machine import events as ev
from space_scheduler.machine.explain import promise_to_come
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.select.early_end import EarlyEnd
from space_scheduler.progress import Sharing

#: How long after a predicted end the host asks for a pass.
OVERDUE_AFTER_US = 7
POLICIES = ["easy", "sjbf", "backfill(3)", "fpfs(2)", *(f"conservative({choice})" for choice in EarlyEnd)]


class Punctual(Author):
    """Writes what happens to a live host: a pass follows each event, and is made at the times when one is due."""

    undecided = False

    def due_us(self, state: SchedulerState) -> int:
        timer_us = FOREVER_US if self.timer_us is None else self.timer_us
        return min(timer_us, state.overdue_at_us(OVERDUE_AFTER_US))

    def next(self, state: SchedulerState) -> Step:
        until_us = self.now_us + self.random.choice((0, 0, 0, 1, 5, 10, 30, 70_000_000, 3_000_000_000))
        event: ev.Event | None = ev.Boundary(name_overdue=True)
        if self.undecided:
            until_us = self.now_us
        elif (due_us := self.due_us(state)) > until_us:
            event = self._about(state, self.random.random()) or event
        else:
            until_us = max(self.now_us, due_us)
            if self.timer_us is not None and self.timer_us <= until_us:
                event, self.timer_us = ev.TimerDue(), None
        assert event is not None
        self.undecided, self.now_us = not isinstance(event, ev.Boundary), until_us
        return until_us, event


def checked(state: SchedulerState, now_us: int) -> None:
    """What is shown of all jobs that wait, then."""
    for job_id, record in state.records.items():
        if record.state is not JobState.QUEUED:
            continue
        for name, value in state.explain(job_id, now_us).numbers.items():
            assert value >= 0 or not name.endswith("_us")
            assert name != "promised_us" or value > now_us
            assert name != "since_us" or value <= now_us
        shown_us = promise_to_come(record.promise_us, now_us)
        assert shown_us is None or shown_us > now_us
        assert record.promise_us is None or record.promise_us + OVERDUE_AFTER_US >= now_us


class Late(Punctual):
    """A host that makes no pass when a job is overdue."""

    def due_us(self, state: SchedulerState) -> int:
        return FOREVER_US if self.timer_us is None else self.timer_us


def lived(policy: str, seed: int, *, named: bool, by: type[Punctual] = Punctual) -> None:
    sharing = Sharing() if named and policy == "easy" and seed % 2 else None
    state = SchedulerState(policy_named(policy), MachineRules(sharing=sharing))
    author, clock = by(seed, named=named), Random(seed)
    for at_us, event in author.begin():
        author.hear(state.handle(event, at_us))
    for _ in range(60):
        at_us, event = author.next(state)
        author.hear(state.handle(event, at_us))
        if author.undecided:
            continue
        due_us = author.due_us(state)
        assert due_us > at_us  # passes are not asked for again and again
        for record in state.records.values():
            if record.state is JobState.QUEUED and record.promise_us is not None:
                assert record.promise_us > at_us  # what was promised has moved with what is overdue
        checked(state, clock.randint(at_us, min(due_us, at_us + 100_000_000)))


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("policy", POLICIES)
@given(seed=st.integers(0, 1 << 32))
def test_no_shown_promise_is_past_and_none_stays_past(policy: str, named: bool, seed: int) -> None:
    lived(policy, seed, named=named)


@pytest.mark.parametrize("named", [False, True])
def test_host_that_makes_no_pass_for_overdue_jobs_is_caught(named: bool) -> None:
    def many() -> None:
        for seed in range(200):
            lived("easy", seed, named=named, by=Late)

    with pytest.raises(AssertionError):
        many()
