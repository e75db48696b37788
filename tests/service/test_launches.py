"""Jobs over the real service and link, with agents that do as a test says: every way a job goes and ends."""

from collections.abc import Callable
from contextlib import AsyncExitStack

import msgspec
from kit.service import ME, Agent, Cluster, Running, order_id, running

from cosched.identity.grants import load_grant_pub
from cosched.wire import messages as wire
from cosched.wire.grant import verified
from space_scheduler.service.discard import Discarder


async def up(stack: AsyncExitStack, service: Running, *nodes: str, answers: bool = True) -> list[Agent]:
    return [await stack.enter_async_context(service.agent(each, answers=answers)) for each in nodes]


async def test_a_job_runs_on_two_nodes_and_ends_well(service: Running) -> None:
    async with AsyncExitStack() as stack:
        first, second = await up(stack, service, "n1", "n2")
        job_id = await service.submit(
            tasks=4, name="pair", time_limit_s=60, environment={"X": "y"}, arguments=("a", "b"), memory_bytes=1 << 20
        )
        prepare = await first.heard(wire.Prepare)
        other = await second.heard(wire.Prepare)
        assert [(peer.name, peer.tasks) for peer in prepare.peers] == [("n1", 2), ("n2", 2)]
        assert prepare.peers == other.peers
        assert (prepare.user, prepare.tasks, prepare.directory) == (ME, 2, "/tmp")
        assert (prepare.memory_bytes, prepare.limit_us, prepare.grace_us) == (1 << 20, 60_000_000, 1_000_000)
        assert prepare.environment["X"] == "y"
        assert prepare.environment["COSCHED_JOB_ID"] == str(job_id)
        service.cluster.certificate("node", "n1")
        grant = verified(prepare.grant, load_grant_pub(service.cluster.path / "node-n1"))
        assert (grant.job_id, grant.attempt, grant.user, grant.nodes) == (job_id, 1, ME, ("n1", "n2"))
        assert (grant.cluster_id, grant.epoch) == (prepare.fence.cluster_id, prepare.fence.epoch)

        run = await first.heard(wire.Run)
        assert run.script == b"#!/bin/sh\ntrue\n"
        assert run.arguments == ("a", "b")
        assert not second.heard_already(wire.Run)
        await service.job_in(job_id, "running")

        await first.ends(job_id, wire.Exit(status=0))
        done = await service.job_in(job_id, "completed")
        assert done.exit_status == 0
        assert done.cpu_s == 3.0
        assert [(share.name, share.tasks) for share in done.nodes] == [("n1", 2), ("n2", 2)]
        assert [step.state for step in done.history] == ["queued", "starting", "running", "completed"]
        assert done.history[1].reason is not None
        assert done.history[1].reason.why == "fits"
        assert done.failure is None
        await first.heard(wire.Forget)
        await second.heard(wire.Forget)


async def test_a_lost_node_ends_its_jobs_and_its_neighbours_part(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(lease="5s")
    async with running(cluster, still=True) as service, AsyncExitStack() as stack:
        first, _ = await up(stack, service, "n1", "n2")
        job_id = await service.runs(tasks=4)
        await service.passes(6, first)  # n2 says nothing any more
        done = await service.job_in(job_id, "node lost")
        assert done.failure is not None
        assert (done.failure.node, done.failure.message) == ("n2", "n2 was not heard for 5 s")
        assert first.heard_already(wire.Kill)
        shown = {node["name"]: node for node in (await service.get("/v1/nodes"))["nodes"]}
        assert (shown["n1"]["state"], shown["n2"]["state"]) == ("up", "lost")
        assert (await service.get("/v1/cluster"))["procs"] == 2
        # it comes back with what it still has: that is ended before it counts again
        async with service.agent(
            "n2", answers=False, joins=False, groups=(wire.GroupReport(job_id, 1, "running", 1),)
        ) as back:
            await back.heard(wire.Kill)
            assert service.service.book.entry("n2").size is None
            await back.say(wire.GroupEnded(job_id, 1))
            await back.heard(wire.Forget)


async def test_orders_that_were_not_answered_are_given_again_under_the_same_number(service: Running) -> None:
    async with service.agent("n1", answers=False) as agent:
        job_id = await service.submit()
        before = await agent.heard(wire.Prepare)
    await service.logged("agent disconnected", "n1")
    async with service.agent("n1", answers=False) as agent:
        again = await agent.heard(wire.Prepare)
        assert again.order == before.order
        await agent.say(wire.Prepared(again.order))
        run = await agent.heard(wire.Run)
    await service.until(lambda: not service.service.book.entry("n1").connected, "disconnected")
    async with service.agent("n1", groups=(wire.GroupReport(job_id, 1, "prepared", 1),)) as agent:
        assert (await agent.heard(wire.Run)).order == run.order
        await service.job_in(job_id, "running")


class TestRestart:
    """The scheduler ends and starts anew on the same journal: what runs goes on, nothing is launched twice."""

    async def test_a_running_job_is_adopted(self, cluster: Cluster) -> None:
        async with running(cluster) as service, service.agent("n1"):
            job_id = await service.runs()
            waiting = await service.submit(tasks=2)
        async with running(cluster) as service:
            assert (await service.job(job_id)).state == "running"
            async with service.agent("n1", groups=(wire.GroupReport(job_id, 1, "running", 2),)) as agent:
                welcome = agent.heard_already(wire.Welcome)[0]
                assert welcome.fence.epoch == 2
                await agent.ends(job_id, wire.Exit(status=0))
                await service.job_in(job_id, "completed")
                await service.job_in(waiting, "running")
                prepared = agent.heard_already(wire.Prepare)
                assert [each.order.job_id for each in prepared] == [waiting]
                assert prepared[0].fence.epoch == 2

    async def test_a_job_that_was_starting_goes_on_with_orders_of_higher_numbers(self, cluster: Cluster) -> None:
        async with running(cluster) as service, service.agent("n1", answers=False) as agent:
            job_id = await service.submit()
            before = await agent.heard(wire.Prepare)
        groups = (wire.GroupReport(job_id, 1, "prepared", 1),)
        async with running(cluster) as service, service.agent("n1", groups=groups) as agent:
            assert (await agent.heard(wire.Run)).order == order_id(job_id, 1, 1, epoch=2)
            assert not agent.heard_already(wire.Prepare)
            assert before.order == order_id(job_id, 1, 1)
            await service.job_in(job_id, "running")

    async def test_a_drained_node_stays_drained(self, cluster: Cluster) -> None:
        async with running(cluster) as service, service.agent("n1"):
            drained = await service.post("/v1/nodes/n1/drain", {"reason": "new disk"})
            assert (drained["state"], drained["reason"]) == ("drained", "new disk")
        async with running(cluster) as service:
            (shown, *_) = (await service.get("/v1/nodes"))["nodes"]
            assert (shown["name"], shown["state"], shown["reason"]) == ("n1", "drained", "new disk")


async def test_an_owners_own_contract_cuts_what_is_offered(service: Running) -> None:
    owner = {"cpu_ratio": 0.5, "memory_ratio": 0.25, "mpl": 1}
    contract = msgspec.convert(owner, type(service.cluster.config.contract))
    async with service.agent("n1", procs=4, memory_bytes=8 << 30, owner=contract):
        size = service.service.book.entry("n1").size
        assert size is not None
        assert (size.procs, size.memory_bytes) == (4, 2 << 30)


async def test_what_a_submission_leaves_open_is_the_clusters(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(default_memory="512MiB", default_time="2min")
    async with running(cluster) as service, service.agent("n1") as agent:
        job_id = await service.submit()
        prepare = await agent.heard(wire.Prepare)
        assert (prepare.memory_bytes, prepare.limit_us) == (512 << 20, 120_000_000)
        assert (await service.job(job_id)).memory_bytes == 512 << 20


async def test_output_that_was_kept_long_enough_is_discarded_once(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(keep_output="100ms")
    async with running(cluster) as service, service.agent("n1") as agent:
        job_id = await service.runs()
        host, parts = service.service.host, service.service
        discarder = Discarder(cluster.config, host, parts.shell, parts.link, parts.log)
        assert await discarder.look() == 0, "it runs"
        await agent.ends(job_id, wire.Exit(status=0))
        await service.job_in(job_id, "completed")
        ended_us = (await host.job(job_id)).end_us or 0
        await service.until(lambda: host.clock.now_us() > ended_us + 100_000, "kept long enough")
        assert await discarder.look() == 1
        assert (await agent.heard(wire.Discard)).order == order_id(job_id, 1, 5)
        assert await discarder.look() == 0


async def test_output_on_a_node_that_is_away_is_discarded_later(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(keep_output="100ms")
    async with running(cluster) as service:
        async with service.agent("n1") as agent:
            job_id = await service.runs()
            await agent.ends(job_id, wire.Exit(status=0))
            await service.job_in(job_id, "completed")
        await service.until(lambda: not service.service.book.entry("n1").connected, "away")
        host, parts = service.service.host, service.service
        discarder = Discarder(cluster.config, host, parts.shell, parts.link, parts.log)
        ended_us = (await host.job(job_id)).end_us or 0
        await service.until(lambda: host.clock.now_us() > ended_us + 100_000, "kept long enough")
        assert await discarder.look() == 0
        async with service.agent("n1") as agent:
            assert await discarder.look() == 1
            await agent.heard(wire.Discard)
