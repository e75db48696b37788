"""What a running scheduler exports is what ``cosched.monitoring.series`` says: neither more nor less."""

from collections.abc import Callable
from itertools import product

import pytest
from kit.service import ME, Cluster, Running, running
from prometheus_client.parser import text_string_to_metric_families

from cosched.config.cluster import MonitoringSettings
from cosched.linux.wakeups import BOUNDS_S
from cosched.model.desk import ContractReason, DeskReport, Pressure, Wakeups
from cosched.model.node import Presence, Usage
from cosched.monitoring import series
from cosched.wire import messages as wire
from space_scheduler.service.metrics.decisions import REASONS

REPORT = DeskReport(
    ContractReason.PRESSURE,
    1.0,
    2,
    Pressure(0.5, 0.25, 0.125),
    Wakeups((3, 2, *[0] * (len(BOUNDS_S) - 2), 1), 1_500_000),
)
BEAT = wire.Heartbeat(Usage(1, 1, 1, 1, 1, 1), Presence.PRESENT, limited_cpus=0.25)
#: What would say of a desk by its name what its owner does.
BY_DESK = {
    *(series.NODE_AVAILABLE, series.NODE_CONTRACT_REASON, series.NODE_CONTRACT_CPUS, series.NODE_LIMITED_CPUS),
    *(series.NODE_PAUSES, series.NODE_PAUSED, series.NODE_PRESSURE, series.NODE_OWNER_WAKEUP),
    *(series.NODE_CPUS_USED, series.NODE_MEMORY_USED),
}


async def fresh(service: Running) -> str:
    """What is exported now, and not half a second ago."""
    service.service.metrics._made.clear()
    return await service.text("/metrics")


def families(text: str) -> dict[str, tuple[str, str, set[frozenset[tuple[str, str]]]]]:
    """Kind, help and the label sets of each family; a counter has its whole name, a bucket's bound is no label."""
    found = {}
    for each in text_string_to_metric_families(text):
        name = f"{each.name}_total" if each.type == "counter" else each.name
        labels = {frozenset((key, value) for key, value in one.labels.items() if key != "le") for one in each.samples}
        found[name] = (each.type, each.documentation, labels)
    return found


async def test_what_is_exported_is_what_is_listed(service: Running) -> None:
    listed = {each.name: each for each in series.ALL}
    assert len(listed) == len(series.ALL)
    async with service.agent("n1", cluster="lab-a") as agent:
        await agent.say(wire.DeskReported(REPORT))
        await agent.say(BEAT)
        await service.beaten("n1", Presence.PRESENT)
        found = families(await service.text("/metrics"))
    assert set(found) == set(listed)
    for name, (kind, documentation, labels) in found.items():
        each = listed[name]
        assert kind == each.kind, name
        assert name in {one.name for one in series.PROCESS} or documentation == each.help, name
        assert labels, f"{name} has no series"
        assert all({key for key, _ in one} == set(each.label_names) for one in labels), name


async def test_every_fixed_value_has_its_series_from_the_start(service: Running) -> None:
    """Before anything has happened: a panel or an alert needs no ``or vector(0)``."""
    found = families(await service.text("/metrics"))
    nodes = ("n1", "n2", "n3")
    for each in series.ALL:
        fixed = [label for label in each.labels if label.values or label.name == "node"]
        heard = each.name.startswith("cosched_node_") and each not in (
            *(series.NODE_STATE, series.NODE_AVAILABLE, series.NODE_TASKS, series.NODE_TASKS_LIMIT),
            *(series.NODE_LAST_HEARD, series.NODE_CONTRACT_REASON),
        )
        if heard or len(fixed) != len(each.labels):
            continue  # of nodes that were heard; or with values that are not known beforehand
        expected = {
            frozenset(zip(each.label_names, values, strict=True))
            for values in product(*(label.values or nodes for label in each.labels))
        }
        assert found[each.name][2] == expected, each.name
    decided = {(dict(one)["kind"], dict(one)["reason"]) for one in found[series.INSTRUCTIONS.name][2]}
    assert decided == {(kind.__name__, why.name.lower()) for kind, whys in REASONS.items() for why in whys}
    assert {"kind", "JobEnded"} <= {part for one in found[series.EVENTS.name][2] for pair in one for part in pair}


@pytest.mark.parametrize("presence", [Presence.PRESENT, Presence.UNKNOWN])
async def test_scrape_names_no_user_at_a_desk(service: Running, presence: Presence) -> None:
    """Somebody there, and a desk of which nothing is known, are one and the same: limited."""
    async with service.agent("n1") as agent:
        await agent.say(wire.Heartbeat(Usage(), presence, presence_source="input: tty1 of ada"))
        await service.beaten("n1", presence)
        text = await service.text("/metrics")
    assert 'cosched_node_available{availability="limited",node="n1"} 1.0' in text
    for word in ("present", "away", "ada", "tty1", "input"):
        assert f'"{word}' not in text


async def test_what_an_owner_feels_and_which_contract_is_in_force(service: Running) -> None:
    async with service.agent("n1") as agent:
        await agent.say(wire.DeskReported(REPORT))
        await agent.say(BEAT)
        await service.beaten("n1", Presence.PRESENT)
        text = await service.text("/metrics")
    for line in (
        'contract_reason{node="n1",reason="armed"} 1.0',
        'contract_reason{node="n1",reason="paused"} 0.0',
        'contract_reason{node="n2",reason="agent_silent"} 1.0',
        'contract_cpus{node="n1"} 1.0',
        'limited_cpus{node="n1"} 1.0',  # not the quarter that says that somebody is there and waits
        'pauses_total{node="n1"} 2.0',
        'pressure_ratio{node="n1",resource="memory"} 0.25',
        'owner_wakeup_seconds_bucket{le="0.0001",node="n1"} 3.0',
        'owner_wakeup_seconds_bucket{le="0.01",node="n1"} 5.0',
        'owner_wakeup_seconds_bucket{le="+Inf",node="n1"} 6.0',
        'owner_wakeup_seconds_sum{node="n1"} 1.5',
        'owner_wakeup_seconds_count{node="n1"} 6.0',
    ):
        assert f"\ncosched_node_{line}\n" in text
    assert 'cosched_cluster_available{availability="limited",lab="test"}' in text


async def test_counts_by_cluster_alone_name_no_desk(make_cluster: Callable[..., Cluster]) -> None:
    settings = MonitoringSettings(aggregate="cluster")
    async with running(make_cluster(operators=[ME], monitoring=settings)) as service, service.agent("n1") as agent:
        await agent.say(wire.DeskReported(REPORT))
        await agent.say(BEAT)
        await service.beaten("n1", Presence.PRESENT)
        text = await service.text("/metrics")
    assert not any(f"\n{each.name}" in text for each in BY_DESK)
    assert 'cosched_cluster_available{availability="limited",lab="test"} 1.0' in text
    assert 'cosched_cluster_available{availability="not_available",lab="test"} 2.0' in text
    assert 'cosched_node_state{node="n1",state="up"} 1.0' in text, "that it is there is told"


async def test_what_strangers_ask_for_makes_no_series(service: Running) -> None:
    """Addresses, methods and statuses are bounded: whoever may ask could make as many series as they like."""
    await service.text("/metrics")
    before = {name: len(labels) for name, (_, _, labels) in families(await fresh(service)).items()}
    for number in range(40):
        for method in ("GET", "POST", f"M{number}"):
            async with service.http.request(method, f"/no/such/{number}?x={number}") as answer:
                assert answer.status in {400, 404}
    after = {name: len(labels) for name, (_, _, labels) in families(await fresh(service)).items()}
    assert after[series.HTTP_REQUESTS.name] - before[series.HTTP_REQUESTS.name] <= len(series.HTTP_METHODS)
    assert {name for name in after if after[name] != before[name]} <= {series.HTTP_REQUESTS.name}
