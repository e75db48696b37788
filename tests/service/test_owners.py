"""A node whose owner has paused parallel work is drained until he resumes, whoever else drains and resumes."""

from collections.abc import Callable
from pathlib import Path

import msgspec
from kit.disks import no_file_may_grow
from kit.service import Agent, Cluster, Running, running

from cosched.config import coefficients
from cosched.model.contract import SocialContract
from cosched.model.coscheduling import Mode
from cosched.model.node import Node, Owner, Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.api import NodeDoc, NodeList
from space_scheduler.machine.events import NodeDrained, NodeResumed, OwnerCame
from space_scheduler.service.launch.nodes import NodeEntry
from space_scheduler.service.launch.owners import AtDesks, Owners
from space_scheduler.service.launch.sharing import stretch

WHY = "ann has paused parallel work at this desk"


async def node(service: Running) -> NodeDoc:
    return msgspec.convert(await service.get("/v1/nodes"), NodeList).nodes[0]


async def shown(service: Running, agent: Agent, state: str, paused: str = "") -> NodeDoc:
    """The node in that state, while its agent goes on with its heartbeats."""
    entry = service.service.book.entry(agent.node)
    await agent.beat(paused=paused)
    await service.until(lambda: entry.state(busy=False) == state, f"{state}: {entry.reason}")
    for _ in range(3):  # and it stays so
        await agent.beat(paused=paused)
    return await node(service)


async def test_what_an_owner_does_while_the_disk_is_full_is_journalled_later(cluster: Cluster) -> None:
    """Seed 109 of the simulated faults: it was refused like an operator's wish, and never asked for again."""
    async with running(cluster) as service, service.agent("n1") as agent:
        with no_file_may_grow(Path(cluster.config.state) / "journal.db"):
            await agent.beat(paused=WHY)
            await service.until(lambda: not service.service.host.view().accepting, "refused")
            await agent.beat(paused=WHY)
        await shown(service, agent, "drained", WHY)
        with no_file_may_grow(Path(cluster.config.state) / "journal.db"):
            await agent.beat()
            await service.until(lambda: not service.service.host.view().accepting, "refused")
        await shown(service, agent, "up")


async def present(service: Running, agent: Agent, presence: Presence, *, owned: bool) -> None:
    """The core knows who is there, while the agent goes on with its heartbeats."""
    entry = service.service.book.entry(agent.node)
    await agent.beat(presence)
    await service.until(lambda: (entry.owner is not None) is owned, f"owned {owned}")
    for _ in range(3):
        await agent.beat(presence)


async def test_where_the_policy_looks_at_owners_it_is_told_of_them(make_cluster: Callable[..., Cluster]) -> None:
    contract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=4)
    cluster = make_cluster(policy="3dbf-light", contract=contract)
    async with running(cluster) as service:
        async with service.agent("n1", owner=contract) as agent:
            await present(service, agent, Presence.PRESENT, owned=True)
            job_id = await service.runs(kind="cpu", tasks=2)
            core = service.service.host._core.state
            # two tasks on one of two CPUs, which the contract leaves; what an owner costs a task; and he computes on a
            # quarter of one CPU, an eighth of what there is
            costs = coefficients.read().permille(Mode.NONE)["cpu"]
            assert core.records[job_id].rate_ppm == round(500_000 / (1 + costs["owner"] / 1000) * 0.875)
            await present(service, agent, Presence.AWAY, owned=False)
            assert core.records[job_id].rate_ppm == 1_000_000
            await present(service, agent, Presence.UNKNOWN, owned=True)
        events = [line for line in service.log.getvalue().splitlines() if "OwnerCame" in line]
        assert len(events) <= 2
    async with running(cluster) as service:
        assert service.service.book.entry("n1").owner is not None


def test_where_nodes_are_shared_a_limit_is_as_much_later_as_sharing_may_cost(
    make_cluster: Callable[..., Cluster],
) -> None:
    contract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=4)
    assert stretch(make_cluster(policy="easy", contract=contract).config) == 1.0
    assert stretch(make_cluster(policy="3dbf-light").config) == 2.0, "one task on a CPU, half of which an owner has"
    shared = make_cluster(policy="3dbf-light", contract=contract).config
    costs = coefficients.read().permille(Mode.NONE).values()
    assert stretch(shared) == 8 * (1 + 3 * max(cost for each in costs for cost in each.values()) / 1000)


def test_the_memory_that_is_used_at_a_desk_is_told_in_steps_that_last() -> None:
    entry, desks = NodeEntry("n"), AtDesks()
    entry.hello = wire.Hello(1, "n", "boot", 2, 16 << 30, "127.0.0.1", 1, "test", owner=SocialContract(mpl=4))
    entry.known = True

    def says(gigabytes: float) -> Owner | None:
        usage = Usage(cpu_local=0.1, memory_local_bytes=round(gigabytes * (1 << 30)))
        entry.beat = wire.Heartbeat(usage, Presence.PRESENT)
        if isinstance(event := desks.event(entry, entry.beat), OwnerCame):
            entry.owner = event.owner
            return event.owner
        return None

    assert says(3.4) == Owner(0, 3 << 30)
    assert [says(each) for each in (3.6, 3.7, 2.4, 3.6, 3.7)] == [None] * 5, "not three quarters of a step away"
    assert [says(5.2), says(5.2), says(3.1), says(5.2), says(5.2), says(5.2)] == [None] * 5 + [Owner(0, 5 << 30)]
    offers = entry.offers(SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=2))
    assert offers == Node("n", 4, 8 << 30, 2, 500, 8 << 30, 16 << 30)
    assert offers.memory_beside(None) == offers.memory_beside(Owner(0, 5 << 30)) == 8 << 30
    assert offers.memory_beside(Owner(0, 12 << 30)) == 4 << 30, "what is used there is not for jobs"


async def test_other_policies_are_not_told(service: Running) -> None:
    async with service.agent("n1") as agent:
        for _ in range(5):
            await agent.beat(Presence.PRESENT)
        await service.beaten("n1", Presence.PRESENT)
        assert service.service.book.entry("n1").owner is None


async def test_a_pause_drains_also_after_a_restart_and_its_end_resumes(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    async with running(cluster) as service, service.agent("n1") as agent:
        assert (await shown(service, agent, "drained", WHY)).reason == f"paused: {WHY}"
        job_id = await service.submit()
        assert (await service.job_in(job_id, "queued")).state == "queued"
    async with running(cluster) as service:
        assert (await node(service)).reason == f"paused: {WHY}"
        async with service.agent("n1") as agent:
            assert (await shown(service, agent, "up")).reason == ""
            await service.job_in(job_id, "running")


def test_an_operator_cannot_resume_against_the_owner_and_his_drain_outlasts_the_owners() -> None:
    entry, owners = NodeEntry("n"), Owners()
    entry.known = True
    paused, goes_on = (wire.Heartbeat(Usage(), Presence.AWAY, paused=why) for why in (WHY, ""))
    for heartbeats in (0, 1):  # between the drain and an operator's resumption
        assert owners.event(entry, paused) == NodeDrained("n", f"paused: {WHY}")
        entry.drained, entry.reason = True, f"paused: {WHY}"
        assert [owners.event(entry, paused) for _ in range(heartbeats)] == [None] * heartbeats
        entry.drained, entry.reason = False, ""
        owners.resumed("n")
    assert owners.event(entry, paused) == NodeDrained("n", f"paused: {WHY}")
    entry.drained, entry.reason = True, "new disk"
    assert [owners.event(entry, beat) for beat in (paused, goes_on, paused, goes_on)] == [None] * 4


def test_a_pause_that_ends_while_a_guard_was_away_waits_for_what_is_left_there() -> None:
    """Else a new job's tasks came beside those of one that had been given up. (Found by simulated faults.)"""
    entry, owners = NodeEntry("n"), Owners()
    entry.known = entry.drained = True
    entry.reason = f"paused: {WHY}"
    entry.stale = {(4, 1)}
    entry.beat = wire.Heartbeat(Usage(), Presence.AWAY)
    assert owners.event(entry, entry.beat) is None, "job 4 is still there"
    entry.stale = set()
    assert owners.event(entry, entry.beat) == NodeResumed("n")
