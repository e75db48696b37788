"""The work that a job has done, from what its nodes measure: limits, ends that move, nodes that tell nothing."""

import json
import sqlite3
from contextlib import closing

import pytest
from kit.service import Agent, Cluster, Running, running
from service.test_service_core import Rules, posted, sent

from cosched.model.contract import SocialContract
from cosched.model.job import JobState
from cosched.model.node import Presence, Usage
from cosched.model.time import US_PER_S
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.service.core.worker import Post
from space_scheduler.service.journal.clock import boottime_s
from space_scheduler.service.launch.values import Effect, Heard
from space_scheduler.service.launch.work_done import WorkDone

MINUTE_US = 60 * US_PER_S
SHARED = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=2)


def work(*nodes: str, limit_us: int = 10 * MINUTE_US, left_us: float | None = None, rate: float = 1.0) -> WorkDone:
    return WorkDone(limit_us, nodes or ("a",), 0.0, left_us, rate)


def halves(done: WorkDone, node: str, from_s: int, until_s: int, ran: float) -> None:
    """Reports of one node, a second apart: its threads ran that part of the time in which they wanted to."""
    for second in range(from_s, until_s + 1):
        done.heard(node, round(ran * second * US_PER_S), round((1 - ran) * second * US_PER_S), second, paused=False)


def test_a_job_does_what_its_slowest_node_does() -> None:
    done = work("a", "b")
    for second in range(101):
        done.heard("a", second * US_PER_S, 0, second, paused=False)
        done.heard("b", second * US_PER_S // 4, second * US_PER_S * 3 // 4, second, paused=False)
    assert done.done_us == pytest.approx(25 * US_PER_S, abs=US_PER_S)


def test_who_wants_no_cpu_is_held_back_by_nobody_and_who_is_paused_does_nothing() -> None:
    done = work()
    for second in range(11):
        done.heard("a", 7, 7, second, paused=False)
    assert done.done_us == 10 * US_PER_S
    for second in range(10, 21):
        done.heard("a", 7, 7, second, paused=True)
    assert done.done_us == 10 * US_PER_S
    done.heard("a", 7, 7, 21, paused=False)
    done.heard("a", 7, 7, 22, paused=False)
    assert done.done_us == 12 * US_PER_S


def test_a_node_that_tells_nothing_goes_as_the_core_predicts_and_one_that_counts_anew_keeps_its_rate() -> None:
    done = work(rate=0.25)
    done.heard("a", -1, -1, 40, paused=False)
    assert done.done_us == 10 * US_PER_S
    assert done.news() is None
    halves(done, "a", 40, 50, 0.5)
    before_us = done.done_us
    done.heard("a", 0, 0, 51, paused=False)  # its agent was restarted
    done.heard("a", US_PER_S // 2, US_PER_S // 2, 52, paused=False)
    assert done.done_us - before_us == pytest.approx(US_PER_S, abs=10), "the rate of before, until two totals are known"


def test_the_core_is_told_when_an_end_moves_by_a_hundredth_and_ten_seconds_and_not_before() -> None:
    done = work(limit_us=100 * MINUTE_US)  # a hundredth is a minute
    told = []
    for second in range(601):
        done.heard("a", second * US_PER_S // 2, second * US_PER_S // 2, second, paused=False)
        if (done_us := done.news()) is not None:
            done.told(done_us, second)
            told.append(second)
    assert len(told) == 4, told
    assert done.done_us == pytest.approx(300 * US_PER_S, rel=0.01)
    short = work(limit_us=MINUTE_US)
    halves(short, "a", 0, 19, 0.5)
    assert short.news() is None, "nine seconds"
    halves(short, "a", 20, 23, 0.5)
    assert short.news() is not None


def test_a_model_that_is_right_is_told_nothing_and_one_that_changes_is_followed() -> None:
    done = work(limit_us=10 * MINUTE_US, rate=0.5)
    halves(done, "a", 0, 300, 0.5)
    assert done.news() is None
    done.rate_changed(1.0, 300)
    for second in range(301, 500):
        done.heard("a", (150 + second - 300) * US_PER_S, 150 * US_PER_S, second, paused=False)
        assert done.news() is None
    assert not done.over


def test_a_job_goes_on_after_a_restart_with_what_the_core_knows_and_is_over_at_its_limit() -> None:
    done = work(limit_us=MINUTE_US, left_us=10 * US_PER_S)
    assert done.done_us == 50 * US_PER_S
    halves(done, "a", 0, 19, 0.5)
    early = done.over
    assert not early
    halves(done, "a", 20, 22, 0.5)
    assert done.over
    assert done.news() is None, "it is ended, not predicted"


def test_a_job_that_shares_its_node_is_ended_when_it_has_done_the_work_of_its_limit() -> None:
    rules = Rules(JobState.STARTING, policy="normal", contract=SHARED, lease="1d", launch_timeout="1d")
    rules.journalled(rules.comes("n1", wire.GroupReport(1, 1, "running", 1)))

    def at(second: int) -> list[Effect]:
        rules.now_s = 100.0 + second
        half_us = second * US_PER_S // 2
        sign = wire.JobSigns(1, 1, "nothing", 0, (), ran_us=half_us, queued_us=half_us)
        return rules.feed(Heard("n1", wire.Heartbeat(Usage(), Presence.AWAY, jobs=(sign,))))

    told = [effect for second in range(0, 116, 5) for effect in at(second)]
    assert sent(told, wire.Kill) == [], "half as fast as alone: its limit of a minute is not reached"
    assert [event.done_us for event in posted(told, ev.JobProgress)], "the core hears of it"
    assert sent(at(130), wire.Kill) == [("n1", 1)]
    (end,) = [each for each in rules.feed(Heard("n1", wire.GroupEnded(1, 1))) if isinstance(each, Post)]
    assert end.event == ev.JobEnded(1, JobState.TIMED_OUT)
    assert end.facts is not None
    assert end.facts.failure is not None
    assert end.facts.failure.message == "it has done the work of its time limit, 1 min"


async def test_an_end_that_moves_is_journalled_and_heartbeats_as_such_are_not_and_a_restart_goes_on() -> None:
    cluster = shared()
    try:
        async with running(cluster) as service, service.agent("n1") as agent:
            clock = Moved(service)
            job_id = await service.runs(time_limit_s=1000)
            for second in range(0, 101, 2):
                clock.forward_s = second
                await says(service, agent, job_id, second * US_PER_S // 2, second * US_PER_S // 2)
            await service.service.shell.settle()
            explained = await service.get(f"/v1/jobs/{job_id}/explain")
            assert explained["coscheduling"]["done_s"] == pytest.approx(50, abs=6)
            # by the core it has gone at full speed: 50 s of work too much, in steps of at least 10 s
            assert 3 <= len(told(cluster)) <= 5, told(cluster)
            assert told(cluster)[-1] == pytest.approx(45 * US_PER_S, abs=6 * US_PER_S)
        async with running(cluster) as service, service.agent("n1", groups=running_there(job_id)):
            await service.job_in(job_id, "running")
            launch = service.service.launches.attempts[job_id]
            assert launch.work is not None
            assert launch.work.done_us == pytest.approx(told(cluster)[-1], abs=30 * US_PER_S)
    finally:
        cluster.close()


def shared() -> Cluster:
    """A cluster where two tasks share a CPU, whose nodes are not given up when a test moves the clock."""
    return Cluster(policy="normal", contract=SHARED, lease="1d", launch_timeout="1d")


class Moved:
    """Has the service's clock for leases and work say that so much time has passed, and no more."""

    def __init__(self, service: Running) -> None:
        self.forward_s, began_s = 0.0, boottime_s()
        service.service.shell.now_s = lambda: began_s + self.forward_s


def told(cluster: Cluster) -> list[int]:
    """The work that the journal has of jobs, event by event."""
    with closing(sqlite3.connect(cluster.path / "state/journal.db")) as journal:
        rows = journal.execute("SELECT event FROM events WHERE event LIKE '%JobProgress%' ORDER BY seq").fetchall()
    return [json.loads(event)["done_us"] for (event,) in rows]


def running_there(job_id: int) -> tuple[wire.GroupReport, ...]:
    return (wire.GroupReport(job_id, 1, "running", 2),)


async def says(service: Running, agent: Agent, job_id: int, ran_us: int, queued_us: int) -> None:
    """A heartbeat, and the service has heard it."""
    sign = wire.JobSigns(job_id, 1, "nothing", 0, (), ran_us=ran_us, queued_us=queued_us)
    await agent.say(wire.Heartbeat(Usage(), Presence.AWAY, "tty", None, True, jobs=(sign,), raises=ran_us + 1))
    entry = service.service.book.entry(agent.node)
    await service.until(lambda: entry.beat is not None and entry.beat.raises == ran_us + 1, "heard")
