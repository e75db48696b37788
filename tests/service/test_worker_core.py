"""When the worker accepts, commits, answers and decides: its effects, one after the other, without a thread."""

from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

from cosched.errors import Failed
from space_scheduler.machine import events as ev
from space_scheduler.machine.record import UnknownJob
from space_scheduler.service.core import worker as fx
from space_scheduler.service.core.worker import NotAccepting, Request, Steps, Work, WorkerCore
from space_scheduler.service.journal.records import Facts

S = 1_000_000


REPORT, QUESTION, NOTE = fx.Post(ev.JobLaunched(1)), fx.Explain(1), fx.Annotate(1, Facts())
_numbers = count()


def work(request: Request[Any] = REPORT, *, wish: bool = False) -> Work:
    return Work(next(_numbers), request, wish)


class Carried:
    """Carries effects out as it is told to; ``effects`` are the names of those that it was given."""

    def __init__(self) -> None:
        self.now_us = 0
        self.timer_us: int | None = None
        self.outcomes: dict[type, Callable[[Any], fx.Outcome]] = {
            fx.Look: lambda _: fx.Moment(self.now_us, self.now_us / S, self.timer_us),
            fx.Apply: lambda effect: fx.Answer(effect.work, "done"),
            fx.Commit: lambda _: [],
            fx.Decide: lambda _: True,
        }
        self.effects: list[str] = []
        self.recorded: list[fx.Effect] = []
        self.answers: list[fx.Answer] = []
        self.seen: fx.Publish | None = None

    def follow(self, steps: Steps[None]) -> list[str]:
        self.effects, outcome = [], None
        while True:
            try:
                effect = steps.send(outcome)
            except StopIteration:
                return self.effects
            self.recorded.append(effect)
            if not isinstance(effect, fx.Look):
                self.effects.append(type(effect).__name__)
            if isinstance(effect, fx.HandOut):
                self.answers += effect.answers
            if isinstance(effect, fx.Publish):
                self.seen = effect
            outcome = self.outcomes.get(type(effect), lambda _: None)(effect)


@pytest.fixture
def carried() -> Carried:
    return Carried()


def test_what_came_in_together_is_one_commit_and_answered_after_it(carried: Carried) -> None:
    rules = WorkerCore(50_000)
    first, second = work(), work()
    effects = ["Apply", "Apply", "Commit", "Publish", "HandOut", "Decide", "Commit"]
    assert carried.follow(rules.turn([first, second])) == effects
    assert [each.work for each in carried.answers] == [first, second]


def test_effects_of_equal_requests_are_equal_and_printed_alike() -> None:
    runs = [Carried(), Carried()]
    requests: list[fx.Request[Any]] = [REPORT, QUESTION, NOTE]
    for each in runs:
        works = [Work(number, request) for number, request in enumerate(requests)]
        each.follow(WorkerCore(50_000).turn(works))
    assert runs[0].recorded == runs[1].recorded
    assert str(runs[0].recorded) == str(runs[1].recorded)
    assert " at 0x" not in str(runs[0].recorded)


def test_a_pass_waits_for_its_interval_and_the_timer_asks_for_one(carried: Carried) -> None:
    rules = WorkerCore(50_000)
    assert "Decide" in carried.follow(rules.turn([]))
    carried.now_us = 20_000
    assert "Decide" not in carried.follow(rules.turn([work()]))
    for timer_us in (None, 10_000, 20_000, 40_000):
        pause_s = rules.pause_s(fx.Moment(20_000, 0.02, timer_us))
        assert pause_s == pytest.approx(0.03), "the thread sleeps, also where the policy's timer is over"
    carried.now_us = 50_000
    assert "Decide" in carried.follow(rules.turn([]))
    assert rules.pause_s(fx.Moment(50_000, 0.05, None)) is None
    carried.now_us = carried.timer_us = S
    assert "Decide" in carried.follow(rules.turn([]))
    assert "Decide" not in carried.follow(rules.turn([work(NOTE)]))


def test_it_wakes_for_a_snapshot_though_nothing_happens(carried: Carried) -> None:
    rules = WorkerCore(50_000)
    carried.follow(rules.turn([]))
    assert rules.pause_s(fx.Moment(0, 0.0, None)) is None
    assert rules.pause_s(fx.Moment(0, 0.0, None, save_us=3600 * S)) == 60.0, "a suspension does not count as waited"
    assert rules.pause_s(fx.Moment(0, 0.0, None, save_us=5 * S)) == 5.0
    assert rules.pause_s(fx.Moment(9 * S, 9.0, None, save_us=5 * S)) == 0.0
    carried.outcomes[fx.Look] = lambda _: fx.Moment(9 * S, 9.0, None, save_us=5 * S)
    assert "PackSnapshot" in carried.follow(rules.turn([]))
    assert rules.pause_s(fx.Moment(9 * S, 9.0, None, packing=True, save_us=5 * S)) is None, "it is on its way"


def test_while_nothing_can_be_written_wishes_are_refused_reports_wait_and_questions_are_answered(
    carried: Carried,
) -> None:
    rules = WorkerCore(50_000)
    carried.follow(rules.turn([]))
    carried.now_us = S
    carried.outcomes[fx.Commit] = lambda _: Failed("the disk is full")
    wish, report, question = work(wish=True), work(), work(QUESTION)
    assert carried.follow(rules.turn([wish, report]))[:4] == ["Apply", "Apply", "Commit", "Say"]
    assert [(each.work, type(each.error)) for each in carried.answers] == [(wish, NotAccepting)]
    assert carried.seen is not None
    assert not carried.seen.accepting
    assert rules.pause_s(fx.Moment(S, 1.0, None)) == 1.0
    carried.follow(rules.turn([question]))
    assert carried.answers[-1] == fx.Answer(question, "done")
    carried.now_us = 2 * S
    carried.outcomes[fx.Probe] = lambda _: Failed("it is full still")
    assert carried.follow(rules.turn([])) == ["Probe"]
    carried.now_us = 3 * S
    del carried.outcomes[fx.Probe]
    carried.outcomes[fx.Commit] = lambda _: []
    effects = carried.follow(rules.turn([]))
    assert effects[:2] == ["Probe", "Say"]
    assert "Decide" in effects
    assert carried.answers[-1] == fx.Answer(report, "done")
    assert carried.seen.accepting


def test_a_policy_that_fails_is_asked_again_later_and_later(carried: Carried) -> None:
    rules = WorkerCore(50_000)
    carried.outcomes[fx.Decide] = lambda _: ZeroDivisionError("division by zero")
    effects = carried.follow(rules.turn([]))
    assert effects == ["Commit", "Decide", "Say", "Recover", "Publish"]
    assert carried.seen is not None
    assert carried.seen.problem == "the policy fails, nothing is started: ZeroDivisionError: division by zero"
    for after_s in (1, 2, 4):
        pause_s = rules.pause_s(fx.Moment(carried.now_us, carried.now_us / S, None))
        assert pause_s == pytest.approx(after_s)
        assert "Decide" not in carried.follow(rules.turn([work()]))
        carried.now_us += after_s * S
        assert "Decide" in carried.follow(rules.turn([]))


def test_question_that_breaks_is_its_askers_and_the_state_stays(carried: Carried) -> None:
    """One job that cannot be explained: each list of the queue would have the state built anew from the journal."""
    rules = WorkerCore(50_000)
    breaks, after = work(QUESTION), work()
    outcomes: dict[int, fx.Outcome] = {breaks.number: KeyError("shape")}
    carried.outcomes[fx.Apply] = lambda effect: outcomes.get(effect.work.number, fx.Answer(effect.work, "done"))
    effects = carried.follow(rules.turn([breaks, after]))
    assert "Recover" not in effects
    assert "Say" in effects
    told = {each.work.number: each for each in carried.answers}
    assert str(told[breaks.number].error) == "KeyError: 'shape'"
    assert told[after.number].value == "done"


def test_what_breaks_the_core_is_undone_and_what_came_before_it_is_kept(carried: Carried) -> None:
    rules = WorkerCore(50_000)
    before, breaks, after = work(), work(), work()
    misfit = work()
    outcomes: dict[int, fx.Outcome] = {
        breaks.number: KeyError("x"),
        misfit.number: fx.Answer(misfit, error=UnknownJob(7)),
    }
    carried.outcomes[fx.Apply] = lambda effect: outcomes.get(effect.work.number, fx.Answer(effect.work, "done"))
    effects = carried.follow(rules.turn([before, breaks, misfit, after]))
    assert effects[:6] == ["Apply", "Apply", "Say", "Commit", "Publish", "HandOut"]
    assert effects[6:10] == ["Recover", "Apply", "Apply", "Commit"]
    told = {each.work.number: each for each in carried.answers}
    assert told[before.number].value == told[after.number].value == "done"
    assert isinstance(told[breaks.number].error, Failed)
    assert isinstance(told[misfit.number].error, UnknownJob)
