"""Events that move other jobs than the one they are about: journalled, replayed, and in the service's records alike."""

import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from kit.drive import policy_named
from kit.journals import SCRIPT, Driven, copied, recovered, state_bytes

from cosched.model.job import JobState
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Instruction
from space_scheduler.machine.machine import Machine
from space_scheduler.machine.state import SchedulerState
from space_scheduler.reasons import HELD, RELEASED
from space_scheduler.service.core.journalled import JournalledCore

Rule = Callable[[Machine, ev.Event], None]
Handler = Callable[[Machine, Any], list[Instruction] | None]


def planted(monkeypatch: pytest.MonkeyPatch, rule: Rule) -> None:
    """Have a rule of the test move jobs after each event of jobs and nodes, also when the event is replayed."""

    def with_rule(handler: Handler) -> Handler:
        def handle(machine: Machine, event: Any) -> list[Instruction] | None:
            instructions = handler(machine, event)
            rule(machine, event)
            return instructions

        return handle

    handlers: Mapping[Any, Any] = {kind: with_rule(handler) for kind, handler in SchedulerState.handlers.items()}
    monkeypatch.setattr(SchedulerState, "handlers", handlers)


def toggle(machine: Machine, job_id: int, event: ev.Event) -> None:
    """Hold a job that is queued; free one that is held."""
    jobs, record = machine.jobs, machine.jobs[job_id]
    if record.state is JobState.WAITING:
        jobs.chain.release(job_id)
        jobs.follow_rules(record, machine.now_us, RELEASED, event)
        machine.changes.submitted.append(record.job)
    elif record.state is JobState.QUEUED:
        jobs.chain.put_on_hold(job_id)
        jobs.follow_rules(record, machine.now_us, HELD, event)
        record.promise_us = None
        if record.job in machine.changes.submitted:
            machine.changes.submitted.remove(record.job)
        else:
            machine.changes.withdrawn.append(record.job)
    machine.trigger = event


def by_chance(machine: Machine, event: ev.Event) -> None:
    """Move a few jobs, chosen by the moment: the same ones in each replay."""
    chance = random.Random(machine.now_us)
    for job_id in sorted(machine.jobs.records):
        if chance.random() < 0.2:
            toggle(machine, job_id, event)


def after_first(machine: Machine, event: ev.Event) -> None:
    """Hold each job that comes while the first is alive, and free all when it has ended."""
    if isinstance(event, ev.JobSubmitted) and event.job.id != 1 and 1 in machine.jobs.records:
        toggle(machine, event.job.id, event)
    elif isinstance(event, ev.JobEnded) and event.job_id == 1:
        for job_id, record in list(machine.jobs.records.items()):
            if record.state is JobState.WAITING:
                toggle(machine, job_id, event)


def test_end_of_one_job_frees_another_in_both_books_and_the_journal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(monkeypatch, after_first)
    driven = Driven(tmp_path / "journal.db", policy="fcfs")
    core, now_us = driven.core, driven.clock.now_us()
    first = core.submit(driven.job(), SCRIPT, "ann", now_us)
    second = core.submit(driven.job(), SCRIPT, "ann", now_us)
    assert (first, core.records[second].state) == (1, JobState.WAITING)
    core.decide(now_us)
    core.take_in(ev.JobLaunched(first), now_us)
    core.take_in(ev.JobEnded(first, JobState.COMPLETED), now_us)
    assert core.records[second].state is JobState.QUEUED
    assert [(each.state, each.cause) for each in core.records[second].history[1:]] == [
        (JobState.WAITING, f"JobSubmitted job {second}"),
        (JobState.QUEUED, f"JobEnded job {first} as completed"),
    ]
    driven.commit()
    driven.crash()
    again = recovered(driven.path, policy_named("fcfs"))
    assert isinstance(again, JournalledCore), again
    assert again.records == core.records


@pytest.mark.parametrize(
    "seeds",
    [
        pytest.param((*range(12), 85), id="some"),  # 85: a job is held in the event in which its launch fails
        pytest.param(range(10_000), id="all", marks=pytest.mark.long),
    ],
)
def test_jobs_moved_by_events_of_others_are_recovered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seeds: Sequence[int]
) -> None:
    planted(monkeypatch, by_chance)
    for seed in seeds:
        path = tmp_path / f"{seed}" / "journal.db"
        path.parent.mkdir()
        driven = Driven(path, policy="conservative", seed=seed)
        for _ in range(12):
            driven.step()  # each commit compares the two books
        again = recovered(copied(path, path.parent / "copy"))
        driven.crash()
        assert isinstance(again, JournalledCore), (seed, again)
        assert again.records == driven.core.records, seed
        assert state_bytes(again.state) == state_bytes(driven.core.state), seed
