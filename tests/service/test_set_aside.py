"""Launches that fail are tried on other nodes, and nodes on which they fail again and again are set aside."""

from collections.abc import Callable
from contextlib import AsyncExitStack

import msgspec
from kit.service import ME, Agent, Cluster, Running, order_id, running

from cosched.wire import messages as wire
from cosched.wire.api import NodeDoc, NodeList


async def up(stack: AsyncExitStack, service: Running, *nodes: str) -> list[Agent]:
    return [await stack.enter_async_context(service.agent(each)) for each in nodes]


async def shown(service: Running, name: str) -> NodeDoc:
    nodes = msgspec.convert(await service.get("/v1/nodes"), NodeList).nodes
    return next(each for each in nodes if each.name == name)


async def test_a_refused_launch_goes_to_another_node_and_tells_its_story(service: Running) -> None:
    async with AsyncExitStack() as stack:
        first, second = await up(stack, service, "n1", "n2")
        first.refuses[wire.Prepare] = "directory"
        job_id = await service.runs(tasks=2)
        await second.say(wire.ProgramEnded(job_id, 2, wire.Exit(status=0)))
        done = await service.job_in(job_id, "completed")
        assert [step.state for step in done.history] == [
            "queued", "starting", "queued", "starting", "running", "completed",
        ]  # fmt: skip
        again = done.history[2]
        assert again.note == "n1 refused: directory is what it is"
        assert again.reason is not None
        assert again.reason.why == "launch_retried"
        assert "node=n1, failed_launches=1, launch_retries=2" in again.reason.text
        assert (done.failure, done.exit_status) == (None, 0)
        assert [share.name for share in done.nodes] == ["n2"]
        assert not first.heard_already(wire.Run)
        assert [(run.order.job_id, run.order.attempt) for run in second.heard_already(wire.Run)] == [(job_id, 2)]
        assert (await first.heard(wire.Forget)).order == order_id(job_id, 1, 3)


async def test_a_node_where_launches_fail_is_set_aside_and_taken_back(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(launch_timeout="10s", operators=[ME])
    async with running(cluster) as service, AsyncExitStack() as stack:
        first, *_ = await up(stack, service, "n1", "n2", "n3")
        first.hung = (wire.Prepare,)
        jobs = []
        for _ in range(3):
            assert (await shown(service, "n1")).state != "drained"
            jobs.append(await service.submit(tasks=1))
            await first.heard(wire.Prepare)
            await service.passes(10)
            await service.job_in(jobs[-1], "running")
        await service.until(lambda: service.service.book.entry("n1").drained, "set aside")
        node = await shown(service, "n1")
        assert (node.state, node.reason) == (
            "drained",
            "set aside: 3 launches in a row have failed there, the last: no answer within 10 s from n1",
        )
        await service.logged("node set aside", "n1")
        assert 'cosched_nodes_set_aside_total{cause="launches"} 1.0' in await service.text("/metrics")
        first.hung = ()
        assert (await service.post("/v1/nodes/n1/resume"))["state"] == "up"
        await service.runs()
        assert first.heard_already(wire.Run)
