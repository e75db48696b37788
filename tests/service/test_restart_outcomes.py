"""After a restart of the scheduler: what differed is told, and what runs is adopted as what it is."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from kit.service import Cluster, Running, running
from service.test_launches import up

from cosched.wire import messages as wire


async def restart_document(service: Running) -> dict[str, Any]:
    document: dict[str, Any] = (await service.get("/v1/cluster"))["restart"]
    return document


async def test_a_restart_that_finds_everything_as_it_was_says_so(cluster: Cluster) -> None:
    async with running(cluster) as service, service.agent("n1"):
        job_id = await service.runs()
    async with running(cluster) as service:
        assert await restart_document(service) == {"jobs": 1, "awaited": ["n1"], "differed": []}
        async with service.agent("n1", groups=(wire.GroupReport(job_id, 1, "running", 2),)):
            await service.logged("restart compared", "")
            assert await restart_document(service) == {"jobs": 1, "awaited": [], "differed": []}


async def test_what_differed_is_told_node_by_node(cluster: Cluster) -> None:
    async with running(cluster) as service, AsyncExitStack() as stack:
        await up(stack, service, "n1", "n2", "n3")
        ended, forgotten = [await service.submit(tasks=2) for _ in range(2)]
        for job_id in (ended, forgotten):
            await service.job_in(job_id, "running")
    async with running(cluster) as service, AsyncExitStack() as stack:
        report = wire.GroupReport(ended, 1, "running", 2, wire.Exit(status=0))
        stray = wire.GroupReport(99, 1, "running", 2)
        for node, groups in (("n1", (report,)), ("n2", ()), ("n3", (stray,))):
            await stack.enter_async_context(service.agent(node, groups=groups))
        await service.logged("restart compared", "")
        assert sorted((await restart_document(service))["differed"]) == [
            f"job {ended} on n1: its script has ended meanwhile",
            f"job {forgotten} on n2: the node knows nothing of it",
            "job 99 (attempt 1) on n3: is not to be there any more: ended there",
        ]
        await service.job_in(ended, "completed")
        await service.job_in(forgotten, "node lost")


async def test_a_node_that_does_not_come_back_is_told_too(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(lease="5s")
    async with running(cluster, still=True) as service, service.agent("n1"):
        pass
    async with running(cluster, still=True) as service:
        await service.passes(6)
        await service.logged("restart compared", "")
        (words,) = (await restart_document(service))["differed"]
        assert words == "n1: did not come back within its lease: lost, with its jobs"


async def test_a_requeued_jobs_next_attempt_is_adopted_as_what_it_is(
    make_cluster: Callable[..., Cluster],
) -> None:
    """By a scheduler that is started anew while it is being cancelled: what the first attempt lost doesn't count."""
    cluster = make_cluster(lease="5s")
    async with running(cluster, still=True) as service, AsyncExitStack() as stack:
        async with service.agent("n1"):
            job_id = await service.runs(requeue=True)
        await service.passes(6)
        await service.job_in(job_id, "queued")
        agent = await stack.enter_async_context(service.agent("n1"))
        await service.job_in(job_id, "running")
        agent.answers = False
        await service.post(f"/v1/jobs/{job_id}/cancel")
        await agent.heard(wire.Kill)
    async with running(cluster, still=True) as service:
        groups = (wire.GroupReport(job_id, 2, "running", 2),)
        async with service.agent("n1", groups=groups) as agent:
            await agent.heard(wire.Kill)
            await service.job_in(job_id, "cancelled")
