"""A desk outside of its owner's hours is closed, not drained: a state that all views show and promises count on."""

import asyncio
from datetime import UTC, datetime, timedelta

import msgspec
from kit.page import entered, events
from kit.service import DEADLINE_S, Running
from prometheus_client.parser import text_string_to_metric_families
from service.test_asleep import journalled
from service.test_owners import WHY, node
from service.test_service_core import Rules

from cosched.model.desk import ContractReason, DeskReport
from cosched.model.job import JobState
from cosched.model.node import Node, Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.api import Explanation, NodeList, SetAsideList
from space_scheduler.machine import events as ev
from space_scheduler.service.launch.nodes import ASLEEP
from space_scheduler.service.launch.owners import drained_by_node
from space_scheduler.service.launch.values import Heard, InJournal

HOURS = "it is outside of the hours in which parallel work may run at this desk (18:00-08:00)"
FRIDAY_NOON = datetime(2026, 11, 27, 12, 0, 0, tzinfo=UTC).astimezone()


def there() -> Rules:
    rules = Rules(JobState.RUNNING, "n1")
    rules.comes("n1", wire.GroupReport(1, 1, "running", 2))
    rules.feed(InJournal(ev.NodeJoined(Node("n1", 2, 1 << 30)), (), {}))
    return rules


def says(
    rules: Rules, paused: str = "", opens_s: float | None = None, *, asleep: bool = False, disk: str = ""
) -> list[ev.Event]:
    """What the core is told after the messages of a second."""
    reason = ContractReason.ASLEEP if asleep else ContractReason.PAUSED if paused else ContractReason.RELAXED
    report = wire.DeskReported(DeskReport(reason, opens_s=opens_s, disk=disk))
    beat = wire.Heartbeat(Usage(), Presence.AWAY, paused=paused)
    return journalled(rules, [effect for each in (report, beat) for effect in rules.feed(Heard("n1", each))])


def at(rules: Rules, moment: datetime) -> Rules:
    rules.core.book.entry("n1").heard_at = moment
    return rules


def opens(hours: float) -> str:
    return f"closed: until {(FRIDAY_NOON + timedelta(hours=hours)).astimezone():%a %H:%M}"


def test_hours_close_a_node_until_they_begin_and_the_core_is_told_when() -> None:
    rules = at(there(), FRIDAY_NOON)
    assert says(rules, HOURS, 7 * 3600.0) == [ev.NodeDrained("n1", opens(7), (7 * 3600 + 10) * 1_000_000)]
    entry = rules.core.book.entry("n1")
    assert (entry.state(busy=False), entry.state(busy=True)) == ("closed", "closed")
    assert entry.contract_reason is ContractReason.CLOSED
    for later_s in range(1, 4):  # the time to go on is told with a second's jitter
        at(rules, FRIDAY_NOON + timedelta(seconds=later_s))
        assert says(rules, HOURS, 7 * 3600.0 - later_s + 0.9) == []
    assert says(rules, HOURS, 8 * 3600.0 - 3) == [ev.NodeDrained("n1", opens(8), (8 * 3600 + 7) * 1_000_000)]
    assert says(rules) == [ev.NodeResumed("n1")]
    assert entry.state(busy=False) == "up"


def test_node_is_closed_before_its_clock_is_known() -> None:
    (closed,) = says(there(), HOURS, 3600.0)
    assert closed == ev.NodeDrained("n1", "closed: outside of its owner's hours", 3_610_000_000)


def test_node_without_room_on_its_disk_is_drained_until_it_has_room_again() -> None:
    rules = there()
    full = "the disk of /var/lib/cosched is full: 0 MiB are free, new work needs 64: make room there"
    assert says(rules, disk=full) == [ev.NodeDrained("n1", f"disk: {full}")]
    assert drained_by_node(rules.core.book.entry("n1"))
    assert says(rules, disk=full) == says(rules, WHY, disk=full) == []
    assert says(rules) == [ev.NodeResumed("n1")]


def test_pause_outside_of_hours_is_a_pause_and_its_end_closes_again() -> None:
    rules = at(there(), FRIDAY_NOON)
    says(rules, HOURS, 3600.0)
    assert says(rules, WHY) == [ev.NodeDrained("n1", f"paused: {WHY}")]
    assert rules.core.book.entry("n1").state(busy=False) == "drained"
    assert says(rules, HOURS, 3600.0) == [ev.NodeDrained("n1", opens(1), 3_610_000_000)]


def test_closed_machine_that_sleeps_is_asleep_and_closed_again_when_it_wakes() -> None:
    rules = at(there(), FRIDAY_NOON)
    says(rules, HOURS, 3600.0)
    assert says(rules, HOURS, asleep=True) == [ev.NodeDrained("n1", ASLEEP)]
    rules.comes("n1")
    at(rules, FRIDAY_NOON)
    assert says(rules, HOURS, 3600.0) == [ev.NodeDrained("n1", opens(1), 3_610_000_000)]


def test_operators_drain_stays_when_hours_begin() -> None:
    rules = at(there(), FRIDAY_NOON)
    rules.feed(InJournal(ev.NodeDrained("n1", "new disk"), (), {}))
    assert says(rules, HOURS, 3600.0) == []
    assert rules.core.book.entry("n1").state(busy=False) == "drained"
    assert says(rules) == []


async def explained(service: Running, job_id: int) -> Explanation:
    return msgspec.convert(await service.get(f"/v1/jobs/{job_id}/explain"), Explanation)


async def test_closed_desk_is_shown_as_closed_everywhere(service: Running) -> None:
    async with service.agent("n1") as agent:
        await agent.say(wire.DeskReported(DeskReport(ContractReason.PAUSED, opens_s=3600.0)))
        await agent.beat(paused=HOURS)
        await service.until(lambda: service.service.book.entry("n1").drained, "closed")
        shown = await node(service)
        assert (shown.state, shown.availability) == ("closed", "not_available")
        assert shown.reason.startswith("closed: until ")
        job_id = await service.submit()
        async with asyncio.timeout(DEADLINE_S):
            while (told := await explained(service, job_id)).promised_start is None:
                await asyncio.sleep(0.01)
        assert told.reason.why == "nodes_closed"
        assert "opens=" in told.reason.text
        async with events(service, await entered(service)) as stream:
            _, whole = await stream.next("all")
        (row,) = [each for each in whole["nodes"] if each[0] == "n1"]
        assert row[1] == "closed"
        assert row[3].startswith("until "), "the state says that it is closed"
        (job,) = [each for each in whole["jobs"] if each[0] == job_id]
        assert job[11] == told.reason.text.partition(" (")[0], "as 'queue' has it"
        rows = msgspec.convert(await service.get("/v1/set-aside"), SetAsideList).set_aside
        assert [(each.name, each.by, each.back) for each in rows] == [("n1", "owner", "its owner's hours begin")]
        assert msgspec.convert(await service.get("/v1/nodes"), NodeList).nodes[0].state == "closed"
        found = {each.name: each for each in text_string_to_metric_families(await service.text("/metrics"))}
        holds = {
            (name, *each.labels.values())
            for name in ("cosched_node_state", "cosched_node_contract_reason")
            for each in found[name].samples
            if each.labels["node"] == "n1" and each.value
        }
        assert holds == {("cosched_node_state", "n1", "closed"), ("cosched_node_contract_reason", "n1", "closed")}
        assert [each.value for each in found["cosched_node_paused"].samples] == [0]
        assert [each.value for each in found["cosched_nodes"].samples if each.labels["state"] == "closed"] == [1]
