"""A node whose owner has paused parallel work is drained until he resumes, whoever else drains and resumes."""

from collections.abc import Callable

import msgspec

from cosched.wire.api import NodeDoc, NodeList
from tests.kit.service import Agent, Cluster, Running, running

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


async def up(service: Running, agent: Agent) -> None:
    await service.until(lambda: service.service.book.entry(agent.node).size is not None, "up")


async def test_a_pause_drains_and_its_end_resumes(service: Running) -> None:
    async with service.agent("n1") as agent:
        await up(service, agent)
        assert (await shown(service, agent, "drained", WHY)).reason == f"paused: {WHY}"
        job_id = await service.submit()
        assert (await service.job_in(job_id, "queued")).state == "queued"
        assert (await shown(service, agent, "up")).reason == ""
        await service.job_in(job_id, "running")


async def test_an_operator_cannot_resume_against_the_owner(service: Running) -> None:
    async with service.agent("n1") as agent:
        await up(service, agent)
        await shown(service, agent, "drained", WHY)
        await service.post("/v1/nodes/n1/resume", {}, 200)
        assert (await shown(service, agent, "drained", WHY)).reason == f"paused: {WHY}"


async def test_an_operators_drain_stays_when_the_owner_resumes(service: Running) -> None:
    async with service.agent("n1") as agent:
        await up(service, agent)
        await service.post("/v1/nodes/n1/drain", {"reason": "new disk"}, 200)
        assert (await shown(service, agent, "drained", WHY)).reason == "new disk"
        assert (await shown(service, agent, "drained")).reason == "new disk"


async def test_a_restarted_scheduler_knows_whose_drain_it_is(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster()
    async with running(cluster) as service, service.agent("n1") as agent:
        await up(service, agent)
        await shown(service, agent, "drained", WHY)
    async with running(cluster) as service:
        assert (await node(service)).reason == f"paused: {WHY}"
        async with service.agent("n1") as agent:
            await agent.beat()
            entry = service.service.book.entry("n1")
            await service.until(lambda: not entry.drained, "resumed")
