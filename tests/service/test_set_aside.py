"""Launches that fail are tried on other nodes, and nodes on which they fail again and again are set aside."""

from collections.abc import Callable
from contextlib import AsyncExitStack

import msgspec
from kit.service import ME, Agent, Cluster, Running, order_id, running

from cosched.config.cluster import LaunchSettings, SetAside
from cosched.wire import messages as wire
from cosched.wire.api import NodeDoc, NodeList


async def up(stack: AsyncExitStack, service: Running, *nodes: str) -> list[Agent]:
    return [await stack.enter_async_context(service.agent(each)) for each in nodes]


async def shown(service: Running, name: str) -> NodeDoc:
    nodes = msgspec.convert(await service.get("/v1/nodes"), NodeList).nodes
    return next(each for each in nodes if each.name == name)


async def launch_failed(service: Running, **given: object) -> int:
    """A job whose launch fails on the first node, and runs on another."""
    job_id = await service.submit(**given)
    await service.job_in(job_id, "running")
    return job_id


async def test_a_refused_launch_goes_to_another_node_and_tells_its_story(service: Running) -> None:
    async with AsyncExitStack() as stack:
        first, second = await up(stack, service, "n1", "n2")
        first.refuses[wire.Prepare] = "directory"
        job_id = await service.submit(tasks=2)
        await service.job_in(job_id, "running")
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


async def test_the_whole_gang_is_launched_anew_without_the_silent_one(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(launch_timeout="10s")) as service, AsyncExitStack() as stack:
        first, second, third = await up(stack, service, "n1", "n2", "n3")
        second.hung = (wire.Prepare,)
        job_id = await service.submit(tasks=4)
        await first.heard(wire.Prepare)
        await second.heard(wire.Prepare)
        await service.passes(10, first)
        done = await service.job_in(job_id, "running")
        assert [share.name for share in done.nodes] == ["n1", "n3"]
        assert done.history[2].note == "no answer within 10 s from n2"
        peers = [[peer.name for peer in prepare.peers] for prepare in first.heard_already(wire.Prepare)]
        assert peers == [["n1", "n2"], ["n1", "n3"]]
        assert len(first.heard_already(wire.Run)) == 1
        assert not second.heard_already(wire.Run)
        assert third.heard_already(wire.Prepare)[0].order.attempt == 2


async def test_a_script_that_may_have_run_is_not_run_again(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(launch_timeout="10s")) as service, AsyncExitStack() as stack:
        first, second = await up(stack, service, "n1", "n2")
        first.hung = (wire.Run,)
        job_id = await service.submit()
        await first.heard(wire.Run)
        await service.passes(10)
        done = await service.job_in(job_id, "launch failed")
        assert done.failure is not None
        assert done.failure.message == "n1 did not start the script within 10 s"
        assert not second.received[1:], "nothing but its welcome"


async def test_with_no_other_node_it_has_failed(service: Running) -> None:
    async with AsyncExitStack() as stack:
        (first,) = await up(stack, service, "n1")
        first.refuses[wire.Prepare] = "user"
        done = await service.job_in(await service.submit(), "launch failed")
        assert done.failure is not None
        assert done.failure.message == "n1 refused: user is what it is"


async def test_a_restart_knows_where_a_launch_has_failed(cluster: Cluster) -> None:
    async with running(cluster) as service, AsyncExitStack() as stack:
        first, _ = await up(stack, service, "n1", "n2")
        await service.post("/v1/nodes/n2/drain")
        first.refuses[wire.Prepare] = "directory"
        job_id = await service.submit()
        await service.until(lambda: service.service.host.view().jobs[job_id].job.avoid == ("n1",), "retried")
        explained = await service.get(f"/v1/jobs/{job_id}/explain")
        assert explained["reason"]["why"] == "avoids_nodes"
        assert "node=n1" in explained["reason"]["text"]
    async with running(cluster) as service, AsyncExitStack() as stack:
        await up(stack, service, "n1")
        assert (await service.get(f"/v1/jobs/{job_id}/explain"))["reason"]["why"] == "avoids_nodes"
        await up(stack, service, "n2")
        await service.post("/v1/nodes/n2/resume")
        done = await service.job_in(job_id, "running")
        assert [share.name for share in done.nodes] == ["n2"]


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
        assert 'cosched_nodes_set_aside_total{cause="launches"} 1.0' in await metrics(service)
        first.hung = ()
        assert (await service.post("/v1/nodes/n1/resume"))["state"] == "up"
        await service.job_in(await service.submit(), "running")
        assert first.heard_already(wire.Run)


async def test_what_a_job_brings_upon_itself_is_not_held_against_a_node(service: Running) -> None:
    async with AsyncExitStack() as stack:
        first, _ = await up(stack, service, "n1", "n2")
        first.refuses[wire.Prepare] = "user"
        for _ in range(4):
            await launch_failed(service)
            for job in (await service.get("/v1/jobs"))["jobs"]:
                await service.post(f"/v1/jobs/{job['job_id']}/cancel")
                await service.job_in(job["job_id"], "cancelled")
        assert (await shown(service, "n1")).state == "up"


async def test_one_good_launch_and_it_is_forgotten(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster()) as service, AsyncExitStack() as stack:
        first, _ = await up(stack, service, "n1", "n2")
        for _ in range(3):
            for code in ("failed", "failed", ""):
                first.refuses = {wire.Prepare: code}
                job_id = await launch_failed(service)
                await service.post(f"/v1/jobs/{job_id}/cancel")
                await service.job_in(job_id, "cancelled")
        assert (await shown(service, "n1")).state == "up"


async def test_never_more_than_half_of_the_nodes(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(set_aside=SetAside(failed_launches=1), launch=LaunchSettings(retries=0))
    async with running(cluster) as service, AsyncExitStack() as stack:
        agents = await up(stack, service, "n1", "n2", "n3")
        for agent in agents:
            agent.refuses[wire.Prepare] = "failed"
        for _ in range(4):
            await service.job_in(await service.submit(), "launch failed")
        states = [(await shown(service, name)).state for name in ("n1", "n2", "n3")]
        assert states == ["drained", "up", "up"]


async def test_a_node_that_comes_and_goes_is_set_aside(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(lease="5s", operators=[ME])
    async with running(cluster, still=True) as service, AsyncExitStack() as stack:
        (steady,) = await up(stack, service, "n1")
        book = service.service.book
        for _ in range(3):
            assert not book.entry("n2").drained
            async with AsyncExitStack() as visit:
                await up(visit, service, "n2")
            await service.passes(6, steady)
            await service.until(lambda: book.entry("n2").size is None, "lost")
        await service.until(lambda: book.entry("n2").drained, "set aside")
        node = await shown(service, "n2")
        assert node.reason == "set aside: it was lost 3 times within 1 h"
        async with service.agent("n2"):
            await service.until(lambda: book.entry("n2").connected, "back")
            assert (await shown(service, "n2")).state == "drained"
            assert (await service.post("/v1/nodes/n2/resume"))["reason"] == ""
        assert (await shown(service, "n1")).state == "up"


async def test_cuts_shorter_than_a_lease_are_nothing(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster()) as service:
        for _ in range(6):
            async with AsyncExitStack() as visit:
                await up(visit, service, "n1")
            await service.until(lambda: not service.service.book.entry("n1").connected, "cut")
        assert not service.service.book.entry("n1").drained


async def metrics(service: Running) -> str:
    async with service.http.get("/metrics") as answer:
        return await answer.text()
