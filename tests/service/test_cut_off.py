"""A scheduler that is cut off from a whole lab: whose jobs are lost, whose go on, and how they are adopted."""

from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

from kit.service import ME, Agent, Cluster, Running, running

from cosched.wire import messages as wire

#: n1 is in the scheduler's own lab, n2 and n3 are in the other.
LABS = {"n1": "a", "n2": "b", "n3": "b"}


async def up(stack: AsyncExitStack, service: Running, *nodes: str, **hello: Any) -> list[Agent]:
    return [await stack.enter_async_context(service.agent(each, cluster=LABS[each], **hello)) for each in nodes]


def report(job_id: int, **more: Any) -> dict[str, Any]:
    return {"groups": (wire.GroupReport(job_id, 1, "running", 2, **more),)}


async def inside(service: Running) -> int:
    """A job that runs on n2 and n3."""
    job_id = await service.submit(tasks=3)
    job = await service.job_in(job_id, "running")
    assert {share.name for share in job.nodes} == {"n2", "n3"}
    return job_id


async def states(service: Running) -> dict[str, str]:
    return {node["name"]: node["state"] for node in (await service.get("/v1/nodes"))["nodes"]}


async def test_jobs_wholly_there_go_on_and_are_adopted_others_are_lost_and_nothing_starts_there(
    make_cluster: Callable[..., Cluster],
) -> None:
    async with running(make_cluster(lease="5s"), still=True) as service, AsyncExitStack() as stack:
        first, _, _ = await up(stack, service, "n1", "n2", "n3")
        stays = await inside(service)
        across = await service.submit(tasks=2, components=[1, 1])
        await service.job_in(across, "running")
        await service.passes(6, first)
        lost = await service.job_in(across, "node lost")
        assert lost.failure is not None
        assert lost.failure.node in ("n2", "n3")
        assert await states(service) == {"n1": "up", "n2": "lost", "n3": "lost"}
        assert (await service.job(stays)).state == "running"
        assert "goes on there" in await service.logged("job cut off", f'"job":{stays}')
        waits = await service.submit(tasks=3)
        own = await service.submit(tasks=1)
        await service.job_in(own, "running")
        assert (await service.job(waits)).state == "queued"
        async with AsyncExitStack() as mended:
            second, third = await up(mended, service, "n2", "n3", **report(stays))
            assert (await service.job(stays)).state == "running"
            assert not second.heard_already(wire.Prepare)
            assert not second.heard_already(wire.Kill)
            await service.passes(6, first, second, third)
            assert (await service.job(stays)).state == "running"
            by_node = {"n2": second, "n3": third}
            leader = by_node[(await service.job(stays)).nodes[0].name]
            await leader.ends(stays, wire.Exit(status=0))
            await service.job_in(stays, "completed")
            await service.job_in(waits, "running")


async def test_a_job_that_asked_for_it_runs_again(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(lease="5s"), still=True) as service, AsyncExitStack() as stack:
        first, _, _ = await up(stack, service, "n1", "n2", "n3")
        across = await service.submit(tasks=2, components=[1, 1], requeue=True)
        await service.job_in(across, "running")
        await service.passes(6, first)
        await service.job_in(across, "queued")
        async with AsyncExitStack() as mended:
            await up(mended, service, "n2", "n3")
            again = await service.job_in(across, "running")
            assert [step.state for step in again.history].count("running") == 2


async def test_one_node_alone_is_lost_with_its_jobs(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(lease="5s"), still=True) as service, AsyncExitStack() as stack:
        first, _, third = await up(stack, service, "n1", "n2", "n3")
        job_id = await inside(service)
        await service.passes(6, first, third)
        await service.job_in(job_id, "node lost")
        assert await states(service) == {"n1": "up", "n2": "lost", "n3": "up"}


async def test_a_node_that_does_not_come_back_with_its_lab_is_lost(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(lease="5s"), still=True) as service, AsyncExitStack() as stack:
        first, _, _ = await up(stack, service, "n1", "n2", "n3")
        job_id = await inside(service)
        await service.passes(6, first)
        async with AsyncExitStack() as mended:
            (second,) = await up(mended, service, "n2", **report(job_id))
            assert (await service.job(job_id)).state == "running"
            await service.passes(6, first, second)
            lost = await service.job_in(job_id, "node lost")
            assert lost.failure is not None
            assert lost.failure.node == "n3"


async def test_a_job_cancelled_meanwhile_is_ended_there_when_the_lab_is_back(
    make_cluster: Callable[..., Cluster],
) -> None:
    async with running(make_cluster(lease="5s"), still=True) as service, AsyncExitStack() as stack:
        first, _, _ = await up(stack, service, "n1", "n2", "n3")
        job_id = await inside(service)
        await service.passes(6, first)
        await service.post(f"/v1/jobs/{job_id}/cancel")
        await service.job_in(job_id, "cancelled")
        async with service.agent("n2", cluster="b", answers=False, joins=False, **report(job_id)) as back:
            await back.heard(wire.Kill)


async def test_an_operator_who_removes_a_node_of_it_ends_the_wait(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(lease="5s", operators=[ME]), still=True) as service, AsyncExitStack() as stack:
        first, _, _ = await up(stack, service, "n1", "n2", "n3")
        job_id = await inside(service)
        await service.passes(6, first)
        assert (await service.job(job_id)).state == "running"
        await service.post("/v1/nodes/n2/remove", {})
        await service.job_in(job_id, "node lost")


async def test_it_is_not_waited_for_longer_than_it_may_run(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(lease="5s"), still=True) as service, AsyncExitStack() as stack:
        first, _, _ = await up(stack, service, "n1", "n2", "n3")
        job_id = await service.submit(tasks=3, time_limit_s=10)
        await service.job_in(job_id, "running")
        await service.passes(14, first)
        assert (await service.job(job_id)).state == "running"
        await service.passes(9, first)
        lost = await service.job_in(job_id, "node lost")
        assert lost.failure is not None
        assert lost.failure.message == "it was cut off for longer than its time limit"


async def test_a_scheduler_that_is_started_anew_meanwhile_waits_for_it_too(
    make_cluster: Callable[..., Cluster],
) -> None:
    cluster = make_cluster(lease="5s")
    async with running(cluster, still=True) as service, AsyncExitStack() as stack:
        first, _, _ = await up(stack, service, "n1", "n2", "n3")
        job_id = await inside(service)
        await service.passes(6, first)
        assert await states(service) == {"n1": "up", "n2": "lost", "n3": "lost"}
    async with running(cluster, still=True) as service, AsyncExitStack() as stack:
        (first,) = await up(stack, service, "n1")
        await service.passes(7, first)
        assert (await service.job(job_id)).state == "running"
        async with AsyncExitStack() as mended:
            second, third = await up(mended, service, "n2", "n3", **report(job_id))
            await service.passes(6, first, second, third)
            assert (await service.job(job_id)).state == "running"
            assert not second.heard_already(wire.Run)


async def test_in_a_cluster_of_one_lab_all_silent_nodes_are_lost(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(lease="5s"), still=True) as service, service.agent("n1"), service.agent("n2"):
        job_id = await service.submit(tasks=4)
        await service.job_in(job_id, "running")
        await service.passes(6)
        await service.job_in(job_id, "node lost")
