"""The live host: accepted is journalled, decided is journalled before it is done, and nothing kills it."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kit.disks import no_file_may_grow
from kit.drive import policy_named
from kit.journals import SCRIPT, HandTime, recovered
from kit.loads import SECOND
from kit.mutants import Mutant
from kit.waiting import BOUND_S

from cosched.errors import Failed
from cosched.model.job import Job, JobState
from cosched.model.node import Node
from cosched.wire.messages import Exit
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Kill, SetTimer, Start
from space_scheduler.machine.record import IllegalTransition, Infeasible, UnknownJob
from space_scheduler.policy.interface import Plan, PlannedStart, Policy, Snapshot
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.core import worker as fx
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.core.journalled import JournalledCore, Settings
from space_scheduler.service.core.worker import NotAccepting
from space_scheduler.service.journal.records import Committed, Facts, View
from space_scheduler.service.journal.schema import JournalRefused


class Live:
    """A host and all it has handed on."""

    def __init__(
        self, path: Path, policy: Policy | str = "easy", *, pass_interval_us: int = 50_000, **settings: object
    ) -> None:
        self.committed: list[Committed] = []
        self.problems: list[str] = []
        made = policy_named(policy) if isinstance(policy, str) else policy
        name = policy if isinstance(policy, str) else "a test's"
        self.host = CoreHost(
            Settings(path, made, name, **settings),  # type: ignore[arg-type]
            pass_interval_us=pass_interval_us,
            on_committed=self.committed.append,
            on_problem=self.problems.append,
        )

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not condition():
                await asyncio.sleep(0.002)

    async def submit(self, procs: int = 1, estimate_s: int = 60, **given: object) -> int:
        job = Job(0, procs, estimate_s * SECOND, 0)
        return await self.host.submit(job, SCRIPT, "ann", **given)  # type: ignore[arg-type]

    def state(self, job_id: int) -> JobState:
        return self.host.view().jobs[job_id].state

    def instructions(self) -> list[object]:
        return [instruction for each in self.committed for instruction in each.instructions]

    def started(self) -> list[int]:
        return [each.job.id for each in self.instructions() if isinstance(each, Start)]


@asynccontextmanager
async def living(path: Path, policy: Policy | str = "easy", **settings: object) -> AsyncIterator[Live]:
    live = Live(path, policy, **settings)  # type: ignore[arg-type]
    found = await live.host.start()
    try:
        if found.epoch == 1:
            for name in ("ant", "bee"):
                await live.host.post(ev.NodeJoined(Node(name, 2, 8 << 30)))
        yield live
    finally:
        await live.host.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def held(view: View) -> Counter[str]:
    """How many processors jobs hold on each node."""
    allocations = [record.allocation for record in view.jobs.values() if record.allocation is not None]
    found: Counter[str] = Counter()
    for share in (share for each in allocations for share in each.nodes):
        found[share.node] += share.procs
    return found


async def test_a_job_from_submission_to_its_end(path: Path) -> None:
    async with living(path) as live:
        host = live.host
        job_id = await live.submit(3)
        assert job_id == 1
        await live.until(live.started)
        start = next(each for each in live.instructions() if isinstance(each, Start))
        assert [(share.node, share.tasks) for share in start.allocation.nodes] == [("ant", 2), ("bee", 1)]
        assert held(host.view()) == {"ant": 2, "bee": 1}
        assert live.state(1) is JobState.STARTING
        await host.post(ev.JobLaunched(1))
        await host.ask(fx.Annotate(1, Facts(cpu_us={"ant": 10}, output="/tmp/out")))
        ended = await host.post(
            ev.JobEnded(1, JobState.FAILED), note="script ended", facts=Facts(exit=Exit(status=3), cpu_us={"bee": 20})
        )
        assert [step.state for _, step in ended.transitions] == [JobState.FAILED]
        assert host.view().jobs == {}
        assert host.view().ended == {JobState.FAILED: 1}
        await host.ask(fx.Annotate(1, Facts(cpu_us={"ant": 15})))
        record = await host.job(1)
    assert record.user == "ann"
    assert record.submission == SCRIPT
    assert [step.state.value for step in record.history] == ["queued", "starting", "running", "failed"]
    assert record.history[1].reason is not None
    assert record.history[1].reason.why is Why.FITS
    assert record.history[3].note == "script ended"
    assert record.attempt == 1
    assert record.submit_us <= record.start_us <= record.end_us  # type: ignore[operator]
    assert record.facts == Facts(exit=Exit(status=3), cpu_us={"ant": 15, "bee": 20}, output="/tmp/out")


async def test_what_does_not_fit_is_its_posters_and_changes_nothing(path: Path) -> None:
    async with living(path) as live:
        host = live.host
        with pytest.raises(Infeasible, match="more processors than the machine has"):
            await live.submit(5)
        for event in (ev.JobLaunched(7), ev.JobCancelled(7)):
            with pytest.raises(UnknownJob):
                await host.post(event)
        with pytest.raises(UnknownJob):
            await host.ask(fx.Annotate(7, Facts()))
        with pytest.raises(KeyError, match="cow"):
            await host.post(ev.NodeDrained("cow"))
        first = await live.submit()
        await live.until(live.started)
        with pytest.raises(IllegalTransition, match="its story"):
            await host.post(ev.JobReleased(first))
        with pytest.raises(ValueError, match="not a terminal state"):
            await host.post(ev.JobEnded(first, JobState.RUNNING))
        with pytest.raises(ValueError, match="the host's own"):
            await host.post(ev.Boundary())
        assert first == 1
        assert live.state(1) is JobState.STARTING
        for question in (host.job(9), host.explain(9)):
            with pytest.raises(UnknownJob):
                await question
    core = recovered(path)
    assert isinstance(core, JournalledCore)
    assert list(core.records) == [1]


async def test_held_at_submission_it_waits_until_released(path: Path) -> None:
    async with living(path) as live:
        held, free = await live.submit(hold=True), await live.submit()
        await live.until(live.started)
        assert live.started() == [free]
        assert (await live.host.explain(held)).reason == Reason(Why.HELD)
        await live.host.post(ev.JobReleased(held), note="by ann")
        await live.until(lambda: held in live.started())
        history = (await live.host.job(held)).history
    assert [step.state.value for step in history] == ["queued", "waiting", "queued", "starting"]
    assert history[2].note == "by ann"


async def test_passes_are_coalesced_and_an_idle_host_decides_at_once(path: Path) -> None:
    class Slow(Mutant):
        def plan(self, snapshot: Snapshot) -> Plan:
            return Plan()

    hour_us = 3600 * SECOND
    async with living(path, Slow(), pass_interval_us=hour_us) as live:
        await live.until(lambda: live.host.view().passes == 1)
        for _ in range(20):
            await live.submit()
        assert live.host.view().passes == 1  # an hour has not passed
    async with living(path, Slow(), pass_interval_us=1) as live:
        await live.until(lambda: live.host.view().passes >= 2)


async def test_numbers_grow_over_restarts_and_who_posts_at_once_gets_different_ones(path: Path) -> None:
    async with living(path) as live:
        numbers = await asyncio.gather(*(live.submit() for _ in range(50)))
        assert sorted(numbers) == list(range(1, 51))
        for number in numbers:
            if live.state(number) in (JobState.QUEUED, JobState.STARTING):
                await live.host.post(ev.JobCancelled(number))
    async with living(path) as live:
        assert await live.submit() == 51
        assert live.host.fence.epoch == 2


async def test_committed_comes_in_the_journals_order_and_after_the_commit(path: Path) -> None:
    async with living(path) as live:
        await asyncio.gather(*(live.submit(estimate_s=n + 1) for n in range(30)))
        await live.until(lambda: len(live.started()) == 4)
        for job_id in live.started():
            await live.host.post(ev.JobCancelled(job_id))
        kills = [each for each in live.instructions() if isinstance(each, Kill)]
        assert [each.job_id for each in kills] == live.started()[:4]
    sequence = [each.seq for each in live.committed]
    assert sequence == list(range(1, len(sequence) + 1))


async def test_the_view_is_never_behind_an_answer(path: Path) -> None:
    async with living(path) as live:
        for _ in range(10):
            assert await live.submit() in live.host.view().jobs
        await live.until(lambda: len(live.started()) == 4)
        view = live.host.view()
        assert set(view.queue) | set(live.started()) == set(view.jobs)
        assert view.free_procs == 0
        assert set(held(view)) == {"ant", "bee"}


async def test_the_timer_wakes_it(path: Path) -> None:
    class Later(Mutant):
        """Starts a job two seconds after it came, not before."""

        def plan(self, snapshot: Snapshot) -> Plan:
            due = [job for job in snapshot.queue if job.submit_us + 2 * SECOND <= snapshot.now_us]
            late = [job.submit_us + 2 * SECOND for job in snapshot.queue if job not in due]
            starts = [PlannedStart(job, Reason(Why.RESERVATION_DUE)) for job in due]
            return Plan(starts, wake_us=min(late, default=None))

    time = HandTime()
    async with living(path, Later(), sources=time.sources(), pass_interval_us=0) as live:
        await live.submit()
        await live.until(lambda: any(isinstance(each, SetTimer) for each in live.instructions()))
        assert live.started() == []
        time.pass_by(2 * SECOND)
        live.host.wake()
        await live.until(live.started)
        assert any(isinstance(each.event, ev.TimerDue) for each in live.committed)


async def test_a_timer_that_fell_due_while_it_was_down_is_not_forgotten(path: Path) -> None:
    time = HandTime()
    async with living(path, "conservative", sources=time.sources()) as live:
        first, second = await live.submit(4, 10), await live.submit(4, 10)
        time.pass_by(SECOND)
        live.host.wake()
        await live.until(lambda: live.started() == [first])
        await live.until(lambda: live.host.view().jobs[second].promised_us)
    time.pass_by(60 * SECOND)
    async with living(path, "conservative", sources=time.sources()) as live:
        await live.until(lambda: any(isinstance(each.event, ev.TimerDue) for each in live.committed))


async def test_a_policy_that_fails_is_said_and_stops_nothing_else(path: Path) -> None:
    class Moody(Mutant):
        broken = True

        def plan(self, snapshot: Snapshot) -> Plan:
            if self.broken:
                raise ZeroDivisionError("moody")
            return policy_named("easy").plan(snapshot)

    moody = Moody()
    async with living(path, moody) as live:
        await live.until(lambda: "ZeroDivisionError: moody" in live.host.view().problem)
        assert live.host.view().accepting
        job_id = await live.submit()
        assert live.state(job_id) is JobState.QUEUED
        held = await live.submit(hold=True)
        await live.host.post(ev.JobCancelled(held))
        moody.broken = False
        await live.until(live.started)
        assert live.host.view().problem == ""
        await live.until(lambda: live.problems[-1:] == [""])
    assert "the policy fails, nothing is started" in live.problems[0]


async def test_an_order_that_fails_refuses_that_job_and_leaves_the_state_whole(path: Path) -> None:
    class Picky:
        def order(self, job: Job, rank: int) -> tuple[int, int]:
            if job.estimate_us == 13 * SECOND:
                raise ZeroDivisionError("no thirteen")
            return (0, rank)

        def plan(self, snapshot: Snapshot) -> Plan:
            return Plan()

    async with living(path, Picky()) as live:
        answers = await asyncio.gather(*(live.submit(estimate_s=s) for s in (12, 13, 14)), return_exceptions=True)
        assert [answers[0], answers[2]] == [1, 2]
        assert isinstance(answers[1], Failed)
        assert "no thirteen" in str(answers[1])
        assert live.host.view().queue == (1, 2)
    core = recovered(path)
    assert isinstance(core, JournalledCore)
    assert list(core.records) == [1, 2]


async def test_failing_order_refuses_the_release_and_answers_concurrent_requests(path: Path) -> None:
    class RaisesOnce:
        raises = False

        def order(self, job: Job, rank: int) -> tuple[int, int]:
            if self.raises and job.estimate_us == 13 * SECOND:
                self.raises = False
                raise ZeroDivisionError("no thirteen")
            return (0, rank)

        def plan(self, snapshot: Snapshot) -> Plan:
            return Plan()

    policy = RaisesOnce()
    async with living(path, policy) as live:
        held_id = await live.submit(estimate_s=13, hold=True)
        policy.raises = True
        posted = live.submit(estimate_s=12), live.host.post(ev.JobReleased(held_id)), live.submit(estimate_s=14)
        answers = await asyncio.gather(*posted, return_exceptions=True)
        assert [answers[0], answers[2]] == [2, 3]
        assert "no thirteen" in str(answers[1])
        assert live.state(held_id) is JobState.WAITING
        assert live.host.view().queue == (2, 3)


async def test_request_in_progress_is_refused_when_the_core_fails_unexpectedly(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_core: JournalledCore) -> list[Committed]:
        raise ZeroDivisionError("a fault of the core's own")

    async with living(path) as live:
        monkeypatch.setattr(JournalledCore, "commit", broken)
        async with asyncio.timeout(BOUND_S):
            with pytest.raises(NotAccepting, match="a fault of the core's own"):
                await live.submit()


async def test_difference_of_the_two_books_is_counted_and_logged_at_each_snapshot(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(JournalledCore, "compares", False)  # in production it is made for snapshots alone
    async with living(path, snapshot_every=1) as live:
        await live.submit()
        await live.until(lambda: live.started() == [1])
        assert live.host.record_differences == 0
        monkeypatch.setattr(JournalledCore, "difference", lambda _core: "job 1: queued by one, running by the other")
        await live.submit()
        await live.until(lambda: live.host.record_differences > 0)
    assert "a start may refuse the journal: job 1: queued by one, running by the other" in caplog.text


async def test_a_full_disk_stops_accepting_and_nothing_else(path: Path) -> None:
    async with living(path) as live:
        host = live.host
        running, waiting = await live.submit(4), await live.submit(4)
        await live.until(live.started)
        with no_file_may_grow(path):
            with pytest.raises(NotAccepting, match="cannot be written"):
                await live.submit()
            view = host.view()
            assert not view.accepting
            assert "nothing is accepted until it can be" in view.problem
            assert list(view.jobs) == [running, waiting]
            with pytest.raises(NotAccepting):
                await host.post(ev.JobCancelled(running))
            assert (await host.explain(waiting)).state is JobState.QUEUED  # questions are answered
            assert (await host.job(waiting)).state is JobState.QUEUED
            reports = [
                asyncio.ensure_future(host.ask(fx.Post(ev.JobLaunched(running)))),
                asyncio.ensure_future(host.ask(fx.Post(ev.JobEnded(running), note="while the disk was full"))),
            ]
            done, _ = await asyncio.wait(reports, timeout=0.2)
            assert not done  # what nodes say waits for the disk
            assert live.started() == [running]
        async with asyncio.timeout(BOUND_S):
            await asyncio.gather(*reports)
        await live.until(lambda: live.started() == [running, waiting])
        assert host.view().accepting
        await live.until(lambda: live.problems[-1:] == [""])
        assert await live.submit() == 3  # who was refused has no number
        assert (await host.job(running)).history[-1].note == "while the disk was full"
    core = recovered(path)
    assert isinstance(core, JournalledCore)
    assert list(core.records) == [2, 3]


async def test_closed_with_a_full_disk_it_ends_and_says_no(path: Path) -> None:
    live = Live(path)
    await live.host.start()
    await live.host.post(ev.NodeJoined(Node("ant", 2, 1 << 30)))
    await live.until(lambda: live.host.view().passes)
    with no_file_may_grow(path):
        report = asyncio.ensure_future(live.host.ask(fx.Post(ev.NodeLost("ant"))))
        await live.until(lambda: not live.host.view().accepting)
        await live.host.close()
        with pytest.raises(NotAccepting):
            await report
    with pytest.raises(NotAccepting, match=r"stopped|cannot be written"):
        await live.submit()


async def test_what_was_posted_before_the_close_is_answered(path: Path) -> None:
    live = Live(path)
    await live.host.start()
    await live.host.post(ev.NodeJoined(Node("ant", 2, 1 << 30)))
    posted = [asyncio.ensure_future(live.submit()) for _ in range(20)]
    await asyncio.sleep(0)
    await live.host.close()
    assert await asyncio.gather(*posted) == list(range(1, 21))
    await live.host.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "cosched-core"]


async def test_request_in_progress_is_refused_when_the_core_thread_fails(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with living(path) as live:
        monkeypatch.setattr(live.host._core, "commit", lambda: 1 // 0)
        with pytest.raises(NotAccepting, match="must be started again: integer division"):
            await live.submit()
        with pytest.raises(NotAccepting):
            await live.host.post(ev.NodeDrained("ant", "dust"))
        assert not live.host.view().accepting
        assert "must be started again" in live.problems[-1]


async def test_a_second_host_on_the_journal_is_refused(path: Path) -> None:
    async with living(path):
        second = Live(path)
        with pytest.raises(JournalRefused, match="another scheduler"):
            await second.host.start()
        await second.host.close()


async def test_history_is_the_last_to_end_first(path: Path) -> None:
    async with living(path) as live:
        host = live.host
        for user in ("ann", "bob", "ann", "bob", "ann"):
            job_id = await host.submit(Job(0, 1, SECOND, 0), SCRIPT, user, hold=True)
            assert live.state(job_id) is JobState.WAITING
        for job_id in (4, 2, 5, 1):
            await host.post(ev.JobCancelled(job_id))
        assert [record.id for record in await host.history()] == [1, 5, 2, 4]
        assert [record.id for record in await host.history(user="bob")] == [2, 4]
        assert [record.id for record in await host.history(limit=2, before=1)] == [5, 2]
        assert (await host.history(limit=1))[0].history[-1].reason == Reason(Why.CANCELLED)


async def test_a_caller_that_has_gone_disturbs_nobody(path: Path) -> None:
    async with living(path) as live:
        gone = asyncio.ensure_future(live.submit())
        await asyncio.sleep(0)
        gone.cancel()
        await live.submit()
        await live.until(lambda: len(live.host.view().jobs) == 2)


async def test_a_fresh_journal_can_begin_above_the_epochs_of_another(path: Path) -> None:
    async with living(path) as live:
        assert live.host.fence.epoch == 1
    for least, epoch in ((1000, 1000), (1, 1001), (1001, 1002)):
        again = Live(path, least_epoch=least)
        assert (await again.host.start()).epoch == again.host.fence.epoch == epoch
        await again.host.close()
