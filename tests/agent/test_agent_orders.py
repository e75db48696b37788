"""Orders to a real agent with a real guard, from a scheduler that says what the test says, over real TLS."""

import os
import pwd
from typing import Any

import pytest
from kit.agents import CLUSTER, Cluster, Scheduler, free_port, until

from cosched.wire import messages as wire

HOME = pwd.getpwnam("root").pw_dir
SCRIPT = b"""#!/bin/sh
echo "$COSCHED_NODE $HOME $@"
cat "$COSCHED_NODE_FILE"
echo "no such thing" >&2
exit 3
"""
SAYS_INTERFACE = b"#!/bin/sh\necho $INTERFACE\n"


def order(fence: wire.Fence, kind: type[wire.Order], job_id: int, n: int, **more: Any) -> Any:
    return kind(fence, wire.OrderId(job_id, 1, n), **more)


async def ended(scheduler: Scheduler, node: str, job_id: int, n: int = 3) -> wire.GroupEnded:
    await scheduler.tell(node, order(scheduler.fence, wire.Kill, job_id, n, grace_us=100_000))
    return await scheduler.next(node, wire.GroupEnded, job_id=job_id)


async def test_a_jobs_life_on_one_node(cluster: Cluster) -> None:
    node = cluster.node("a")
    async with cluster.scheduler() as scheduler:
        fence = scheduler.fence
        await scheduler.tell("a", cluster.prepare(fence, 5, "a"))
        await scheduler.next("a", wire.Prepared, order=wire.OrderId(5, 1, 1))
        await scheduler.tell("a", order(fence, wire.Run, 5, 2, script=SCRIPT, arguments=("x", "y z")))
        started = await scheduler.next("a", wire.Started)
        assert started.pid > 1
        program = await scheduler.next("a", wire.ProgramEnded)
        assert (program.exit, program.error_tail) == (wire.Exit(3, None, "own"), b"no such thing\n")
        assert await scheduler.output("a", 5) == f"a {HOME} x y z\nlocalhost slots=1\n".encode()
        assert await scheduler.output("a", 5, "stderr") == b"no such thing\n"
        group = await ended(scheduler, "a", 5)
        assert group.cpu_us >= 0
        await scheduler.tell("a", order(fence, wire.Forget, 5, 4))
        assert await scheduler.output("a", 5) == f"a {HOME} x y z\nlocalhost slots=1\n".encode()
        await scheduler.tell("a", order(fence, wire.Discard, 5, 5))
        await until(lambda: not (node.state / "spool/5.1").exists(), "the output to be discarded")
        assert await scheduler.output("a", 5) == b""
        assert [
            list(path.iterdir()) for path in (node.state / "attempts", node.state / "spool", node.run / "jobs")
        ] == [
            [],
            [],
            [],
        ]


async def test_job_gets_the_interface_of_a_node_whose_address_is_a_name(cluster: Cluster) -> None:
    """MPICH took any network of such a node, also one that the other nodes are not in."""
    cluster.node("a", launch=f'address = "localhost"\nport = {free_port()}')
    cluster.node("b", start=False)
    async with cluster.scheduler() as scheduler:
        environment = {"PATH": os.defpath, "INTERFACE": "{interface}"}
        await scheduler.tell("a", cluster.prepare(scheduler.fence, 5, "a", "b", environment=environment))
        await scheduler.next("a", wire.Prepared, order=wire.OrderId(5, 1, 1))
        await scheduler.tell("a", order(scheduler.fence, wire.Run, 5, 2, script=SAYS_INTERFACE, arguments=()))
        await scheduler.next("a", wire.ProgramEnded)
        assert await scheduler.output("a", 5) == b"lo\n"


async def test_output_is_read_in_bounded_pieces_while_the_job_runs(cluster: Cluster) -> None:
    cluster.node("a")
    async with cluster.scheduler() as scheduler:
        fence = scheduler.fence
        await scheduler.tell("a", cluster.prepare(fence, 5, "a"))
        await scheduler.next("a", wire.Prepared)
        script = b"#!/bin/sh\nhead -c 300000 /dev/zero\nexec sleep 600\n"
        await scheduler.tell("a", order(fence, wire.Run, 5, 2, script=script, arguments=()))
        await scheduler.next("a", wire.Started)
        sizes = []
        offset, number = 0, 0
        while offset < 300_000:
            number += 1
            await scheduler.tell("a", wire.ReadOutput(number, 5, 1, "stdout", offset, 1 << 30))
            chunk = await scheduler.next("a", wire.OutputChunk, request=number)
            assert not chunk.final
            assert len(chunk.data) <= wire.MAX_CHUNK_BYTES
            if chunk.data:
                sizes.append(len(chunk.data))
            offset += len(chunk.data)
        assert sum(sizes) == 300_000
        assert len(sizes) > 1
        await ended(scheduler, "a", 5)
        killed = await scheduler.next("a", wire.ProgramEnded)
        assert killed.exit.cause == "killed"
        await scheduler.tell("a", wire.ReadOutput(99, 5, 1, "stdout", 300_000, 1000))
        last = await scheduler.next("a", wire.OutputChunk, request=99)
        assert (last.final, last.size, last.data) == (True, 300_000, b"")
        await scheduler.tell("a", wire.ReadOutput(100, 5, 1, "stdlog", 0, 1000))
        assert (await scheduler.next("a", wire.OutputChunk, request=100)).error


async def test_every_order_is_obeyed_once_and_answered_again(cluster: Cluster) -> None:
    node = cluster.node("a")
    canary = node.base / "runs"
    async with cluster.scheduler() as scheduler:
        fence = scheduler.fence
        prepare = cluster.prepare(fence, 5, "a")
        run = order(
            fence, wire.Run, 5, 2, script=f"#!/bin/sh\necho >> {canary}\nexec sleep 600\n".encode(), arguments=()
        )
        answers: dict[int, list[Any]] = {1: [], 2: []}
        for _ in range(3):
            await scheduler.tell("a", prepare)
            answers[1].append(await scheduler.next("a", wire.Prepared))
        for _ in range(3):
            await scheduler.tell("a", run)
            answers[2].append(await scheduler.next("a", wire.Started))
        await scheduler.tell("a", prepare)
        answers[1].append(await scheduler.next("a", wire.Prepared))
        assert all(len(set(map(str, each))) == 1 for each in answers.values())
        await until(canary.exists, "the script to run")
        group = await ended(scheduler, "a", 5)
        await scheduler.tell("a", order(fence, wire.Kill, 5, 3, grace_us=0))
        assert await scheduler.next("a", wire.GroupEnded) == group
        assert canary.read_text() == "\n"
        await scheduler.tell("a", run)
        await scheduler.next("a", wire.Started)
        await scheduler.tell("a", order(fence, wire.Run, 5, 9, script=SCRIPT, arguments=()))
        assert (await scheduler.next("a", wire.Refused)).code == "stale"
        assert canary.read_text() == "\n"


async def test_what_was_never_prepared_cannot_run_and_is_killed_at_once(cluster: Cluster) -> None:
    cluster.node("a")
    async with cluster.scheduler() as scheduler:
        await scheduler.tell("a", order(scheduler.fence, wire.Run, 8, 2, script=SCRIPT, arguments=()))
        assert (await scheduler.next("a", wire.Refused)).code == "unknown"
        await ended(scheduler, "a", 9)
        await scheduler.tell("a", cluster.prepare(scheduler.fence, 9, "a"))  # it comes late
        assert (await scheduler.next("a", wire.Refused)).code == "stale"


async def test_a_prepared_job_without_any_command_ends_when_killed(cluster: Cluster) -> None:
    cluster.node("a")
    async with cluster.scheduler() as scheduler:
        await scheduler.tell("a", cluster.prepare(scheduler.fence, 5, "a"))
        await scheduler.next("a", wire.Prepared)
        await ended(scheduler, "a", 5)


async def test_the_users_own_path_for_output_is_opened_by_the_guard(cluster: Cluster) -> None:
    out = cluster.node("a").base / "out"
    async with cluster.scheduler() as scheduler:
        await scheduler.tell("a", cluster.prepare(scheduler.fence, 5, "a"))
        await scheduler.next("a", wire.Prepared)
        run = order(scheduler.fence, wire.Run, 5, 2, script=SCRIPT, arguments=(), output=str(out))
        await scheduler.tell("a", run)
        assert (await scheduler.next("a", wire.ProgramEnded)).error_tail == b"no such thing\n"
        assert out.read_text().startswith(f"a {HOME}")
        await scheduler.tell("a", wire.ReadOutput(1, 5, 1, "stdout", 0, 1000))
        assert (await scheduler.next("a", wire.OutputChunk)).error == f"stdout was written to {out}"


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"user": "no-such-user"}, "user", "no-such-user"),
        ({"directory": "/no/such/place"}, "directory", "/no/such/place"),
    ],
)
async def test_the_guards_reasons_reach_the_scheduler(
    cluster: Cluster, change: dict[str, Any], code: str, message: str
) -> None:
    cluster.node("a")
    async with cluster.scheduler() as scheduler:
        await scheduler.tell("a", cluster.prepare(scheduler.fence, 5, "a", **change))
        refused = await scheduler.next("a", wire.Refused)
        assert refused.code == code
        assert message in refused.message
        await ended(scheduler, "a", 5)


async def test_a_grant_that_does_not_fit_the_order_is_refused(cluster: Cluster) -> None:
    cluster.node("a")
    grants = {
        "a signature that is not": cluster.grant(5, ("a",))[:-1] + b"x",
        "is for job 6": cluster.grant(6, ("a",)),
        "does not name a": cluster.grant(5, ("b",)),
        "is for user 'daemon'": cluster.grant(5, ("a",), "daemon"),
        "of epoch 9": cluster.grant(5, ("a",), epoch=9),
    }
    async with cluster.scheduler() as scheduler:
        for n, (words, grant) in enumerate(grants.items(), 1):
            await scheduler.tell("a", cluster.prepare(scheduler.fence, 5, "a", n=n, grant=grant))
            refused = await scheduler.next("a", wire.Refused)
            assert refused.code == "failed"
            assert words in refused.message


async def test_orders_of_another_origin_are_refused(cluster: Cluster) -> None:
    cluster.node("a")
    async with cluster.scheduler(epoch=4) as scheduler:
        for fence in (
            wire.Fence(CLUSTER, 3, "instance-3"),
            wire.Fence(CLUSTER, 4, "its double"),
            wire.Fence(CLUSTER, 5, "not yet"),
            wire.Fence("another", 4, "instance-4"),
        ):
            await scheduler.tell("a", cluster.prepare(fence, 5, "a"))
            assert (await scheduler.next("a", wire.Refused)).code == "fenced"


async def test_what_is_no_message_is_refused_counted_and_logged_once(cluster: Cluster) -> None:
    node = cluster.node("a")
    async with cluster.scheduler() as scheduler:
        await until(lambda: "a" in scheduler.links, "the agent to join")
        link = scheduler.links["a"]
        for nonsense in (b"", b"\xc1", b"\x81\xa4type\xa6Reboot", os.urandom(1000)) * 5:
            await link.send(nonsense)
        await link.send("text")
        await scheduler.tell("a", cluster.prepare(scheduler.fence, 5, "a"))
        await scheduler.next("a", wire.Prepared)
        assert node.log.read_text().count("refused, message") == 1


async def test_a_message_that_is_too_long_costs_the_link_and_nothing_else(cluster: Cluster) -> None:
    node = cluster.node("a")
    async with cluster.scheduler() as scheduler:
        await until(lambda: "a" in scheduler.links, "the agent to join")
        await scheduler.links["a"].send(bytes(wire.MAX_FRAME_BYTES + 1))
        await until(lambda: len(scheduler.hellos) == 2, "the agent to come back")
        assert "refused, oversized" in node.log.read_text()
