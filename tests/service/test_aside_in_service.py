"""Jobs that the pass sets aside, in the service: journalled, recovered, replayed, shown and counted."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from kit.journals import SCRIPT, Driven, never_asked, recovered, state_bytes
from kit.loads import SECOND
from kit.mutants import FailsFor
from prometheus_client import CollectorRegistry

from cosched.config.cluster import ClusterConfig
from cosched.model.job import Job, JobState
from cosched.model.node import Node
from cosched.monitoring import series
from space_scheduler.eligibility.set_aside import SetAside
from space_scheduler.machine import events as ev
from space_scheduler.policy.interface import Policy
from space_scheduler.policy.presets import compose
from space_scheduler.replay import replay
from space_scheduler.service.api import documents
from space_scheduler.service.core.journalled import JournalledCore
from space_scheduler.service.journal.records import Explained, JobRecord, Transition, View
from space_scheduler.service.metrics.jobs import JobSeries
from space_scheduler.service.page.rows import Rows

pytestmark = pytest.mark.usefixtures("sets_aside")

WORDS = "set aside by the pass: planning fails with this job in it; it is tried again"
PROBLEM = "ZeroDivisionError: division by zero"


def failing(how: str = "raises", select: str = "conservative") -> FailsFor:
    """Every third job makes it fail, while an odd number of processors is free."""
    policy = compose("fcfs", select)
    return FailsFor(policy, lambda job: job.id % 3 == 0, how, lambda snapshot: snapshot.free_procs % 2 == 1)


@pytest.mark.parametrize("how", ["raises", "names", "misplaces"])
@pytest.mark.parametrize("snapshot_every", [7, 1 << 60])
def test_recovery_has_the_same_jobs_set_aside_and_asks_no_policy(tmp_path: Path, how: str, snapshot_every: int) -> None:
    made = Driven(tmp_path / "journal.db", failing(how), seed=5, snapshot_every=snapshot_every)
    aside = 0
    for _ in range(120):
        made.step()
        aside += bool(made.core.state.machine.jobs.aside.jobs)
    assert aside > 10
    made.crash()
    core = recovered(made.path, never_asked(made.policy))
    assert isinstance(core, JournalledCore)
    core.state.validate()
    assert state_bytes(core.state) == made.known[made.journal.seq]
    assert [*core.state.machine.jobs.aside] == [*made.core.state.machine.jobs.aside]


def test_killed_again_and_again_it_decides_as_one_that_lives_on(tmp_path: Path) -> None:
    lives = Driven(tmp_path / "lives.db", failing(), seed=8)
    dies = Driven(tmp_path / "dies.db", failing(), seed=8)
    for at in range(100):
        lives.step()
        dies.step()
        if at % 9 == 8:
            dies.crash()
            dies.open()
        assert state_bytes(dies.core.state) == state_bytes(lives.core.state)


def test_journal_replays_to_the_same_decisions(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", failing(), seed=7)
    for _ in range(150):
        made.step()
    made.crash()

    def same(_run: object) -> Policy:
        return failing()

    found = replay(made.path, same)
    assert found.agrees, found.difference
    other = replay(made.path, lambda _run: compose("fcfs", "conservative"))
    assert not other.agrees


def test_change_of_policy_tries_them_again(tmp_path: Path) -> None:
    policy = FailsFor(compose("fcfs", "jfirst"), lambda job: True)
    made = Driven(tmp_path / "journal.db", policy, seed=1)
    core = made.core
    core.submit(Job(0, 1, 60 * SECOND, 0, memory_bytes=1), SCRIPT, "ann", made.clock.now_us())
    core.decide(made.clock.now_us())
    made.commit()
    assert core.view(decided_us=0, accepting=True, problem="").aside.keys() == {1}
    made.time.pass_by(2 * SECOND)
    easy = compose("fcfs", "backfill(1)")
    core.choose(easy, "easy", None, core.rules, made.clock.now_us())
    core.decide(made.clock.now_us())
    made.commit()
    assert core.records[1].state is JobState.STARTING
    assert not core.view(decided_us=0, accepting=True, problem="").aside


def test_order_that_fails_for_a_job_that_is_set_aside_is_refused_when_chosen(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", FailsFor(compose("fcfs", "jfirst"), lambda job: True), seed=1)
    core = made.core
    core.submit(Job(0, 1, 60 * SECOND, 0, memory_bytes=1), SCRIPT, "ann", made.clock.now_us())
    core.decide(made.clock.now_us())
    made.commit()
    picky = FailsFor(compose("fcfs", "jfirst"), lambda job: False)
    picky.order = lambda job, rank: (1 // 0, rank)
    with pytest.raises(Exception, match="cannot order the queue: ZeroDivisionError"):
        core.choose(picky, "picky", None, core.rules, made.clock.now_us())
    core.view(decided_us=0, accepting=True, problem="")


def test_try_with_nodes_that_sleep_goes_past_such_a_job(tmp_path: Path) -> None:
    """Which nodes are to be woken is asked of a copy of the state: a job that fails hid all others."""
    made = Driven(tmp_path / "journal.db", FailsFor(compose("fcfs", "backfill(0)"), lambda job: job.procs == 2), seed=1)
    core, now_us = made.core, made.clock.now_us()
    for name in ("ant", "bee", "cat"):
        core.take_in(ev.NodeDrained(name), now_us)
    for procs in (2, 1):
        core.submit(Job(0, procs, 60 * SECOND, 0, memory_bytes=1), SCRIPT, "ann", now_us)
    assert core.wanted([Node("dog", 4, 8 << 30)], now_us) == ("dog",)


# what is shown


def when(core_us: int) -> datetime:
    return datetime(2026, 11, 21, tzinfo=UTC) + timedelta(microseconds=core_us)


RECORD = JobRecord(
    job=Job(3, 1, 60 * SECOND, 0), user="ann", submission=SCRIPT, state=JobState.QUEUED, submit_us=0,
    history=(Transition(1, 0, JobState.QUEUED),),
)  # fmt: skip
ASIDE = SetAside(3, 5 * SECOND, 9 * SECOND, PROBLEM, 2, 4)


@pytest.mark.parametrize("own", [True, False])
def test_error_is_shown_to_the_jobs_user_and_the_rest_to_everybody(own: bool) -> None:
    numbers = "since=2026-11-21T00:00:05.000+00:00, tries=2"
    document = documents.job_doc(RECORD, when, 10 * SECOND, own=own, aside=ASIDE)
    assert document.reason is not None
    assert document.reason.text == f"{WORDS} ({numbers})" + (f": {PROBLEM}" if own else "")
    explained = Explained(JobState.QUEUED, ASIDE.reason, 5 * SECOND, "JobSubmitted job 3", PROBLEM)
    told = documents.explanation(RECORD, explained, when, own=own, reshaping=False)
    assert told.reason == document.reason
    assert told.cause.startswith("JobSubmitted job 3; tried again when its request, the nodes")
    assert PROBLEM not in told.cause


def test_page_has_it_in_its_place_and_says_so() -> None:
    clock = SimpleNamespace(when=when, now_us=lambda: 0)
    rows = Rows(ClusterConfig(name="c"), None, clock, lambda: "easy")  # type: ignore[arg-type]
    view = View(jobs={3: RECORD}, line=[((0,), RECORD.job)])
    assert rows.jobs(view)[3].why == ""
    assert rows.jobs(View(jobs=view.jobs, line=view.line, aside={3: ASIDE}))[3].why == WORDS
    assert rows.jobs(view)[3].why == "", "and no more when it is back"


def test_series_counts_them() -> None:
    values = JobSeries(CollectorRegistry()).collect(View(aside={3: ASIDE, 4: ASIDE}), [], 0)
    assert values[series.JOBS_SET_ASIDE] == 2
