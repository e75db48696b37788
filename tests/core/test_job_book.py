"""The table of a job's life: each legal step moves the job to where its new state has it; no other step is made."""

from itertools import product
from pathlib import Path

import pytest

from cosched.model.allocation import Allocation
from cosched.model.job import TERMINAL, TRANSITIONS, Job, JobState
from space_scheduler.machine.events import JobSubmitted
from space_scheduler.machine.holding import KINDS, NEXT, NOTHING, Holding, Occupying, Released
from space_scheduler.machine.jobs import JobBook
from space_scheduler.machine.record import IllegalTransition, Record, UnknownJob
from space_scheduler.policy.order import fcfs

HOLDING = (JobState.STARTING, JobState.RUNNING, JobState.ENDING)
#: By which steps a new job comes to be in a state.
WAYS = {
    JobState.QUEUED: [],
    JobState.WAITING: [JobState.WAITING],
    JobState.STARTING: [JobState.STARTING],
    JobState.RUNNING: [JobState.STARTING, JobState.RUNNING],
    JobState.ENDING: [JobState.STARTING, JobState.ENDING],
}


def book_with(state: JobState) -> tuple[JobBook, Record]:
    """Jobs 1, 2 and 3 wait; then job 2 becomes what is asked."""
    book = JobBook(fcfs)
    for number in (1, 2, 3):
        job = Job(number, 2, 10, 0)
        book.enter(job, 0, JobSubmitted(job))
    record = book[2]
    for step in WAYS[state]:
        book.become(record, step, 1)
        if step is JobState.STARTING:
            record.end_us = 10
            book.hold(record, Occupying(Allocation(2)), 1)
    return book, record


def is_where_its_state_has_it(book: JobBook, record: Record) -> None:
    queued = [1, 2, 3] if record.state is JobState.QUEUED else [1, 3]
    assert [job.id for job in book.queue] == queued
    assert book.ends == ([(10, 2, 2)] if record.state in HOLDING and record.holding.counted else [])
    assert (2 in book.records) == (record.state not in TERMINAL)


@pytest.mark.parametrize(
    ("was", "released", "state"),
    [*product(WAYS, [False], JobState), *product(HOLDING, [True], JobState)],
)
def test_each_step(was: JobState, released: bool, state: JobState) -> None:
    book, record = book_with(was)
    if released:
        book.hold(record, Released(record.allocation), 1)
    is_where_its_state_has_it(book, record)
    story = record.story
    if state in TRANSITIONS[was]:
        book.become(record, state, 5)
        if state is JobState.STARTING:
            record.end_us = 10
            book.hold(record, Occupying(Allocation(2)), 5)
        elif state is JobState.QUEUED and was in HOLDING:
            book.wait_again(record, record.job, 5)
        assert record.story == (*story, (5, state))
    else:
        with pytest.raises(IllegalTransition, match=f"job 2 cannot go from {was} to {state}"):
            book.become(record, state, 5)
        assert (record.state, record.story) == (was, story)
    is_where_its_state_has_it(book, record)


def test_who_waits_again_waits_at_the_old_place_as_another_job() -> None:
    book, record = book_with(JobState.STARTING)
    again = Job(2, 2, 10, 0, avoid=("n1",))
    book.become(record, JobState.QUEUED, 7)
    book.wait_again(record, again, 7)
    assert list(book.queue)[1] is again is record.job
    assert (record.holding, record.started_us, record.end_us, record.overruns) == (NOTHING, None, 0, 0)


def test_who_has_ended_is_not_known() -> None:
    book, record = book_with(JobState.RUNNING)
    book.become(record, JobState.COMPLETED, 9)
    with pytest.raises(UnknownJob, match="job 2 is not queued"):
        book[2]


def _kind(kind: type[Holding]) -> str:
    return kind.__name__.lower()


def diagram() -> str:
    """The state diagram of docs/design/core.md, from the tables."""
    lines = []
    for state, steps in TRANSITIONS.items():
        if steps:
            lines.append(f"{state:10} → " + " · ".join(each for each in JobState if each in steps))
            lines.append(" " * 13 + "holds: " + " · ".join(_kind(each) for each in NEXT if each in KINDS[state]))
    lines.append("")
    for kind, following in NEXT.items():
        lines.append(f"{_kind(kind):10} → " + " · ".join(_kind(each) for each in NEXT if each in following))
    return "\n".join(lines)


def test_state_diagram_in_docs_is_drawn_from_the_tables() -> None:
    page = Path(__file__).parents[2] / "docs/design/core.md"
    assert f"```text\n{diagram()}\n```" in page.read_text()


@pytest.mark.parametrize(("was", "then"), [*product(NEXT, NEXT)])
def test_holding_follows_only_by_the_table(was: type[Holding], then: type[Holding]) -> None:
    book, record = book_with(JobState.RUNNING)
    one = Allocation(1)
    was_holding, holding = ((kind(one, one) if "old" in kind.__struct_fields__ else kind(one)) for kind in (was, then))  # type: ignore[call-arg]
    record.holding, book.ends = was_holding, [(10, 2, 1)] if was.counted else []
    if was.changing:
        book.changing[2] = record
    if then not in NEXT[was]:
        with pytest.raises(AssertionError, match="job 2: "):
            book.hold(record, holding, 5)
        assert record.holding is was_holding
        return
    book.hold(record, holding, 5)
    assert (record.holding, book.ends) == (holding, [(10, 2, 1)] if then.counted else [])
    assert (2 in book.changing) == then.changing
