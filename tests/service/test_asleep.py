"""A machine that is about to be suspended is asleep, not lost: nothing starts there, and its jobs have its lease."""

from typing import Any

from kit.service import Cluster, running
from service.test_owners import WHY, node
from service.test_service_core import Rules

from cosched.model.desk import ContractReason, DeskReport
from cosched.model.job import JobState
from cosched.model.node import Node, Presence, Usage
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.service.core.worker import Post
from space_scheduler.service.launch.nodes import ASLEEP
from space_scheduler.service.launch.values import Effect, Heard, InJournal, Ticked

GOES = DeskReport(ContractReason.ASLEEP)


def beat(*, asleep: bool, paused: str = "") -> tuple[wire.DeskReported, wire.Heartbeat]:
    """What an agent says each time."""
    report = GOES if asleep else DeskReport(ContractReason.RELAXED)
    return wire.DeskReported(report), wire.Heartbeat(Usage(), Presence.AWAY, paused=paused)


def posted(effects: list[Effect]) -> list[Any]:
    return [each.event for each in effects if isinstance(each, Post)]


def journalled(rules: Rules, effects: list[Effect]) -> list[ev.Event]:
    """Have what was posted in the journal, and what follows from that."""
    found = posted(effects)
    for event in found:
        found += journalled(rules, rules.feed(InJournal(event, (), {})))
    return found


def there(*names: str) -> Rules:
    rules = Rules(JobState.RUNNING, *names)
    for name in names:
        rules.comes(name, wire.GroupReport(1, 1, "running", 2))
        rules.feed(InJournal(ev.NodeJoined(Node(name, 2, 1 << 30)), (), {}))
        says(rules, name, asleep=False)
    return rules


def says(rules: Rules, name: str, *, asleep: bool, paused: str = "") -> list[ev.Event]:
    messages = beat(asleep=asleep, paused=paused)
    return journalled(rules, [effect for message in messages for effect in rules.feed(Heard(name, message))])


def state(rules: Rules, name: str) -> str:
    return rules.core.book.entry(name).state(busy=True)


def test_it_is_asleep_at_once_and_its_jobs_end_when_it_slept_for_a_lease() -> None:
    rules = there("n1")
    assert says(rules, "n1", asleep=True) == [ev.NodeDrained("n1", ASLEEP)]
    assert state(rules, "n1") == "asleep"
    found = [each for _ in range(7) for each in journalled(rules, tick(rules))]
    assert [each for each in found if isinstance(each, ev.NodeLost)] == [ev.NodeLost("n1")]
    (end,) = [each for each in found if isinstance(each, ev.JobEnded)]
    assert end == ev.JobEnded(1, JobState.NODE_LOST)
    assert state(rules, "n1") == "asleep", "and not lost"


def tick(rules: Rules) -> list[Effect]:
    rules.now_s += 1
    return rules.feed(Ticked())


def test_one_that_wakes_within_its_lease_goes_on_with_its_jobs() -> None:
    rules = there("n1")
    says(rules, "n1", asleep=True)
    assert [each for _ in range(3) for each in journalled(rules, tick(rules))] == []
    rules.comes("n1", wire.GroupReport(1, 1, "running", 2))
    assert says(rules, "n1", asleep=False) == [ev.NodeResumed("n1")]
    assert state(rules, "n1") == "up"
    assert 1 in rules.core.launches.attempts


def test_a_desk_that_sleeps_again_and_again_is_not_set_aside_for_its_losses() -> None:
    rules = there("n1", "n2")
    for _ in range(4):
        says(rules, "n1", asleep=True)
        for _ in range(7):
            for message in beat(asleep=False):
                rules.feed(Heard("n2", message))
            found = journalled(rules, tick(rules))
            assert not [each for each in found if isinstance(each, ev.NodeDrained)]
        rules.comes("n1")
        rules.feed(InJournal(ev.NodeJoined(Node("n1", 2, 1 << 30)), (), {}))
        assert says(rules, "n1", asleep=False) == [ev.NodeResumed("n1")]
    assert rules.core.launches.suspects.counted["losses"] == 0


def test_a_pause_outlasts_the_sleep() -> None:
    rules = there("n1")
    assert says(rules, "n1", asleep=False, paused=WHY) == [ev.NodeDrained("n1", f"paused: {WHY}")]
    assert says(rules, "n1", asleep=True, paused=WHY) == [ev.NodeDrained("n1", ASLEEP)]
    assert state(rules, "n1") == "asleep"
    rules.comes("n1")
    assert says(rules, "n1", asleep=False, paused=WHY) == [ev.NodeDrained("n1", f"paused: {WHY}")]
    assert says(rules, "n1", asleep=False) == [ev.NodeResumed("n1")]


def test_an_operators_drain_is_not_undone_by_waking() -> None:
    rules = there("n1")
    rules.feed(InJournal(ev.NodeDrained("n1", "new disk"), (), {}))
    assert says(rules, "n1", asleep=True) == []
    assert state(rules, "n1") == "asleep"
    rules.comes("n1")
    assert says(rules, "n1", asleep=False) == []
    assert state(rules, "n1") == "draining"


async def test_documents_series_and_the_next_start_have_it(cluster: Cluster) -> None:
    async with running(cluster) as service, service.agent("n1") as agent:
        for message in beat(asleep=True):
            await agent.say(message)
        entry = service.service.book.entry("n1")
        await service.until(lambda: entry.reason == ASLEEP, "the drain")
        found = await node(service)
        assert (found.state, found.reason) == ("asleep", ASLEEP)
        text = await service.text("/metrics")
        assert 'cosched_node_state{node="n1",state="asleep"} 1.0' in text
        assert 'cosched_node_contract_reason{node="n1",reason="asleep"} 1.0' in text
    async with running(cluster) as service:
        assert (await node(service)).state == "asleep"
        async with service.agent("n1") as agent:
            for message in beat(asleep=False):
                await agent.say(message)
            entry = service.service.book.entry("n1")
            await service.until(lambda: entry.state(busy=False) == "up", "back")
