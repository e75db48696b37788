"""What a node says of its contract and of what its owner feels: which reason, within which bounds, to whom."""

import asyncio
import math
import threading
from pathlib import Path

import msgspec
import pytest
from kit.agents import Cluster, until
from kit.waiting import BOUND_S

from cosched.config.node import load_node
from cosched.errors import BadInput
from cosched.linux.process import boottime_us
from cosched.model.desk import (
    MOST_BUCKETS,
    PUBLIC_REASONS,
    ContractReason,
    DeskReport,
    Pressure,
    Wakeups,
    public_reason,
)
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from node_agent.core.lease import Lease
from node_agent.policy.contract import Arm, Relax, decided, reason_of
from node_agent.service import desk_watch
from node_agent.service.card import Card
from node_agent.service.desk_watch import Desk
from node_agent.service.guard import Guard
from node_agent.service.job_lookup import JobLookup

S = 1_000_000
BEAT = wire.Heartbeat(Usage(), Presence.AWAY)


def reason(wanted: Arm | Relax, armed: bool = True, **others: bool) -> ContractReason:
    return reason_of(wanted, armed=armed, **{"tight": False, "paused": False, "guarded": True} | others)


def test_the_reason_is_that_of_what_is_in_force() -> None:
    there, unknown = (decided(each, 0, 10 * S, S, S) for each in (Presence.PRESENT, Presence.UNKNOWN))
    away, silent = (decided(Presence.AWAY, heard, 10 * S, 11 * S, S) for heard in (10 * S, None))
    assert reason(there) is ContractReason.PRESENT
    assert reason(there, tight=True) is ContractReason.PRESSURE
    assert reason(unknown, tight=True) is ContractReason.UNKNOWN
    assert reason(silent) is ContractReason.SCHEDULER_SILENT
    assert reason(away, armed=False) is ContractReason.RELAXED
    assert reason(away) is ContractReason.NOT_RELAXED, "the guard has not lifted it"
    assert reason(away, armed=False, paused=True) is ContractReason.PAUSED
    assert reason(there, guarded=False) is ContractReason.NO_GUARD


def test_what_others_may_know_of_a_reason_says_nothing_of_a_person() -> None:
    personal = {ContractReason.PRESENT, ContractReason.UNKNOWN, ContractReason.PRESSURE}
    assert {public_reason(each) for each in personal} == {"armed"}
    assert {public_reason(each) for each in ContractReason} == set(PUBLIC_REASONS)
    assert len(PUBLIC_REASONS) == len(ContractReason) - len(personal) + 1


def test_a_report_travels_and_leaves_the_heartbeat_as_it_was() -> None:
    report = DeskReport(ContractReason.PRESENT, 1.0, 3, Pressure(memory=0.25), Wakeups((5, 0, 1), 1700))
    assert wire.from_agent(wire.encode(wire.DeskReported(report))) == wire.DeskReported(report)
    assert set(msgspec.msgpack.decode(wire.encode(BEAT))) == {"type", "usage", "presence"}


@pytest.mark.parametrize(
    "report",
    [
        {"reason": "asleep since noon"},
        {"reason": "present", "pauses": -1},
        {"reason": "present", "pressure": [math.nan, 0.0, 0.0]},
        {"reason": "present", "pressure": {"cpu": math.nan, "memory": 0.0, "io": 0.0}},
        {"reason": "present", "pressure": {"cpu": 1.5, "memory": 0.0, "io": 0.0}},
        {"reason": "present", "contract_cpus": math.inf},
        {"reason": "present", "contract_cpus": -1.0},
        {"reason": "present", "wakeups": {"counts": [1] * (MOST_BUCKETS + 1), "late_us": 1}},
        {"reason": "present", "wakeups": {"counts": [-1], "late_us": 1}},
        {"reason": "present", "wakeups": {"counts": [1], "late_us": -1}},
        {"reason": "present", "wakeups": {"counts": [1 << 63], "late_us": 1}},
    ],
)
def test_what_no_agent_says_is_refused(report: dict[str, object]) -> None:
    frame = msgspec.msgpack.encode({"type": "DeskReported", "report": report})
    with pytest.raises(BadInput):
        wire.from_agent(frame)


def unasked_desk(cluster: Cluster, **settings: str) -> Desk:
    """Of a node that does not run."""
    config = load_node(cluster.node("a", start=False, **settings).config)
    guard = Guard("/nowhere/guard.sock", lambda message: None, lambda: asyncio.sleep(0))
    return Desk(config, guard, JobLookup(guard, config.cgroup.cosched, Path(config.cgroup.mount)), Lease())


@pytest.mark.parametrize(
    ("preset", "presence", "hears", "look_s"),
    [
        ("desktop", Presence.AWAY, False, 0.5),
        ("desktop", Presence.AWAY, True, 5.0),
        ("desktop", Presence.PRESENT, False, 5.0),
        ("dedicated", Presence.AWAY, False, 5.0),
    ],
)
async def test_agent_looks_twice_a_second_where_an_arrival_would_not_be_heard(
    cluster: Cluster, preset: str, presence: Presence, hears: bool, look_s: float
) -> None:
    """And at least every five seconds elsewhere, however seldom it is told to."""
    desk = unasked_desk(cluster, presence=f'preset = "{preset}"\npoll_s = 60')
    desk.watched = desk.watched._replace(presence=presence)
    desk.sources.guard_tells = hears
    assert desk.next_look_s() == look_s


async def test_contract_counts_as_not_in_force_while_no_guard_is_there(cluster: Cluster) -> None:
    desk = unasked_desk(cluster)
    desk.armed, desk.limited_cpus = True, 1.0
    await desk._tell_guard()
    assert (desk.heartbeat().armed, desk.heartbeat().limited_cpus) == (False, None)
    assert desk.heartbeat().guard == desk._guard.problem != ""


async def test_desk_outside_of_its_hours_reports_when_they_begin(cluster: Cluster) -> None:
    desk = unasked_desk(cluster)
    at_us = boottime_us()
    desk.take({"paused": "outside", "paused_until_us": at_us + 100 * S, "closed": True})
    assert desk.report().opens_s == pytest.approx(100, abs=60)
    desk.take({"paused": "outside", "paused_until_us": at_us - 100 * S, "closed": True})
    assert desk.report().opens_s == 0, "the guard has not looked at its clock yet"
    desk.take({"paused": "by ann", "paused_until_us": at_us + 100 * S, "closed": False})
    assert desk.report().opens_s is None
    desk.take({"paused": "by ann", "paused_until_us": None})  # a guard of an earlier version
    assert desk.report().opens_s is None


async def test_an_agent_tells_of_its_contract_and_of_pressure(cluster: Cluster) -> None:
    cluster.node("a")
    async with cluster.scheduler() as scheduler:
        await until(lambda: (beat := scheduler.beats.get("a")) and beat.armed, "the contract to be in force")
        report = scheduler.reports["a"]
        assert report.reason in {ContractReason.PRESENT, ContractReason.UNKNOWN}
        assert report.contract_cpus == scheduler.beats["a"].limited_cpus == 1.0
        assert report.pauses == 0


async def test_a_desk_that_takes_part_in_nothing_tells_nothing_of_its_owner(cluster: Cluster) -> None:
    node = cluster.node("a", start=False, presence="away_after_s = 1.0\npoll_s = 0.2\nbusy_cpus = 1e6")
    node.config.write_text("parallel = false\n" + node.config.read_text())
    with node.at_keyboard() as press:
        async with cluster.scheduler() as scheduler:
            await until(lambda: (beat := scheduler.beats.get("a")) and beat.paused, "the guard's word")
            for _ in range(10):
                press()
                scheduler.beats.pop("a", None)
                await until(lambda: "a" in scheduler.beats, "a heartbeat")
                beat = scheduler.beats["a"]
                assert (beat.usage, beat.presence, beat.presence_source) == (Usage(), Presence.UNKNOWN, "")
                assert scheduler.reports["a"] == DeskReport(ContractReason.PAUSED)
    assert "terminals" not in node.log.read_text(), "nobody was looked for"


async def test_of_a_desk_that_takes_part_in_nothing_no_word_is_told_but_what_it_ends(cluster: Cluster) -> None:
    """Whom its owner bans is nobody's business then: nothing starts here in any case."""
    desk, told = unasked_desk(cluster), list[wire.OwnersWord]()
    desk.tell_word = told.append
    banned = {"word": {"bans": ["bob"], "cpu_ratio": 0.5, "ended": []}}
    desk.decided(banned)
    assert told == [desk.word] == [wire.OwnersWord(0.5, ("bob",))]
    desk._config = msgspec.structs.replace(desk._config, parallel=False)
    desk.word = wire.NO_WORD
    desk.decided(banned)
    assert (desk.word, len(told)) == (wire.NO_WORD, 1)
    desk.decided({"word": {**banned["word"], "ended": [[5, 1]]}})
    assert told[1:] == [wire.OwnersWord(ended=((5, 1),))]


async def test_a_card_that_takes_its_time_keeps_nothing_waiting(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name service may hang, and the desk has to be watched meanwhile."""
    config = load_node(cluster.node("a", start=False).config)
    guard = Guard("/nowhere/guard.sock", lambda message: None, lambda: asyncio.sleep(0))
    desk = Desk(config, guard, JobLookup(guard, config.cgroup.cosched, Path(config.cgroup.mount)), Lease())
    found, asked = threading.Event(), []

    def slow_card(host: str) -> Card:
        asked.append(host)
        assert found.wait(BOUND_S)
        return Card("eth9", "52:54:00:12:34:56", "10.0.0.255")

    monkeypatch.setattr(desk_watch, "card_of", slow_card)
    at_us = boottime_us()
    desk.decided({"wake": [[0, 1], [at_us - S, at_us + 100 * S], [at_us + 200 * S, at_us + 300 * S]]})
    desk.asleep = True
    for _ in range(3):
        desk._look_for_card()
        assert desk.report() == DeskReport(ContractReason.ASLEEP), "told without it"
        await asyncio.sleep(0)
    found.set()
    await until(lambda: desk.report().wakeable is not None, "the card")
    wakeable = desk.report().wakeable
    assert wakeable is not None
    assert (wakeable.mac, wakeable.broadcast, asked) == ("52:54:00:12:34:56", "10.0.0.255", [config.launch.address])
    (first, second) = wakeable.spans
    assert first[0] == 0.0
    assert first[1] == pytest.approx(100, abs=50)
    assert second == pytest.approx((200, 300), abs=50)
    desk.decided({"wake": None})
    assert desk.report().wakeable is None, "taken back"
