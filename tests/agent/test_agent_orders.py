"""Orders to a real agent with a real guard, from a scheduler that says what the test says, over real TLS."""

import os
import pwd
from typing import Any

import pytest
from kit.agents import Cluster, Scheduler, free_port, until
from kit.routes import EPOCH, Route

from cosched.wire import messages as wire

HOME = pwd.getpwnam("root").pw_dir
SCRIPT = b"""#!/bin/sh
echo "$COSCHED_NODE $HOME $@"
cat "$COSCHED_NODE_FILE"
echo "no such thing" >&2
exit 3
"""
pytestmark = pytest.mark.asyncio(loop_scope="module")

SAYS_INTERFACE = b"#!/bin/sh\necho $INTERFACE\n"


async def ended(scheduler: Scheduler, node: str, job_id: int, n: int = 3) -> wire.GroupEnded:
    await scheduler.order(wire.Kill, job_id, n, node=node, grace_us=100_000)
    return await scheduler.next(node, wire.GroupEnded, job_id=job_id)


async def test_a_jobs_life_on_one_node(cluster: Cluster) -> None:
    node = cluster.node("a")
    async with cluster.scheduler() as scheduler:
        fence = scheduler.fence
        await scheduler.tell("a", cluster.prepare(fence, 5, "a"))
        await scheduler.next("a", wire.Prepared, order=wire.OrderId(5, 1, 1))
        await scheduler.order(wire.Run, 5, 2, script=SCRIPT, arguments=("x", "y z"))
        started = await scheduler.next("a", wire.Started)
        assert started.pid > 1
        program = await scheduler.next("a", wire.ProgramEnded)
        assert (program.exit, program.error_tail) == (wire.Exit(3, None, "own"), b"no such thing\n")
        assert await scheduler.output("a", 5) == f"a {HOME} x y z\nlocalhost slots=1\n".encode()
        assert await scheduler.output("a", 5, "stderr") == b"no such thing\n"
        group = await ended(scheduler, "a", 5)
        assert group.cpu_us >= 0
        await scheduler.order(wire.Forget, 5, 4)
        assert await scheduler.output("a", 5) == f"a {HOME} x y z\nlocalhost slots=1\n".encode()
        await scheduler.order(wire.Discard, 5, 5)
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
        await scheduler.order(wire.Run, 5, 2, script=SAYS_INTERFACE, arguments=())
        await scheduler.next("a", wire.ProgramEnded)
        assert await scheduler.output("a", 5) == b"lo\n"


async def test_output_is_read_in_bounded_pieces_while_the_job_runs(route: Route) -> None:
    cluster, scheduler, job = route.cluster, route.scheduler, route.number()
    fence = scheduler.fence
    await scheduler.tell("a", cluster.prepare(fence, job, "a"))
    await scheduler.next("a", wire.Prepared)
    script = b"#!/bin/sh\nhead -c 300000 /dev/zero\nexec sleep 600\n"
    await scheduler.order(wire.Run, job, 2, script=script, arguments=())
    await scheduler.next("a", wire.Started)
    sizes = []
    offset, number = 0, 0
    while offset < 300_000:
        number += 1
        await scheduler.tell("a", wire.ReadOutput(number, job, 1, "stdout", offset, 1 << 30))
        chunk = await scheduler.next("a", wire.OutputChunk, request=number)
        assert not chunk.final
        assert len(chunk.data) <= wire.MAX_CHUNK_BYTES
        if chunk.data:
            sizes.append(len(chunk.data))
        offset += len(chunk.data)
    assert sum(sizes) == 300_000
    assert len(sizes) > 1
    await ended(scheduler, "a", job)
    killed = await scheduler.next("a", wire.ProgramEnded)
    assert killed.exit.cause == "killed"
    await scheduler.tell("a", wire.ReadOutput(99, job, 1, "stdout", 300_000, 1000))
    last = await scheduler.next("a", wire.OutputChunk, request=99)
    assert (last.final, last.size, last.data) == (True, 300_000, b"")
    await scheduler.tell("a", wire.ReadOutput(100, job, 1, "stdlog", 0, 1000))
    assert (await scheduler.next("a", wire.OutputChunk, request=100)).error


async def test_the_users_own_path_for_output_is_opened_by_the_guard(route: Route) -> None:
    cluster, scheduler, job = route.cluster, route.scheduler, route.number()
    out = route.place / "out"
    await scheduler.tell("a", cluster.prepare(scheduler.fence, job, "a"))
    await scheduler.next("a", wire.Prepared)
    await scheduler.order(wire.Run, job, 2, script=SCRIPT, arguments=(), output=str(out))
    assert (await scheduler.next("a", wire.ProgramEnded)).error_tail == b"no such thing\n"
    assert out.read_text().startswith(f"a {HOME}")
    await scheduler.tell("a", wire.ReadOutput(1, job, 1, "stdout", 0, 1000))
    assert (await scheduler.next("a", wire.OutputChunk)).error == f"stdout was written to {out}"
    await ended(scheduler, "a", job)


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"user": "no-such-user"}, "user", "no-such-user"),
        ({"directory": "/no/such/place"}, "directory", "/no/such/place"),
    ],
)
async def test_the_guards_reasons_reach_the_scheduler(
    route: Route, change: dict[str, Any], code: str, message: str
) -> None:
    cluster, scheduler, job = route.cluster, route.scheduler, route.number()
    await scheduler.tell("a", cluster.prepare(scheduler.fence, job, "a", **change))
    refused = await scheduler.next("a", wire.Refused)
    assert refused.code == code
    assert message in refused.message
    await ended(scheduler, "a", job)


async def test_a_grant_that_was_not_signed_is_refused(route: Route) -> None:
    cluster, scheduler, job = route.cluster, route.scheduler, route.number()
    grant = cluster.grant(job, ("a",), epoch=EPOCH)[:-1] + b"x"
    await scheduler.tell("a", cluster.prepare(scheduler.fence, job, "a", grant=grant))
    refused = await scheduler.next("a", wire.Refused)
    assert (refused.code, "a signature that is not" in refused.message) == ("failed", True)


async def test_what_is_no_message_is_refused_counted_and_logged_once(route: Route) -> None:
    node, cluster, scheduler, job = route.a, route.cluster, route.scheduler, route.number()
    await until(lambda: "a" in scheduler.links, "the agent to join")
    link = scheduler.links["a"]
    for nonsense in (b"", b"\xc1", b"\x81\xa4type\xa6Reboot", os.urandom(1000)) * 5:
        await link.send(nonsense)
    await link.send("text")
    await scheduler.tell("a", cluster.prepare(scheduler.fence, job, "a"))
    await scheduler.next("a", wire.Prepared)
    await ended(scheduler, "a", job)
    assert node.log.read_text().count("refused, message") == 1


async def test_a_message_that_is_too_long_costs_the_link_and_nothing_else(route: Route) -> None:
    node, scheduler = route.a, route.scheduler
    await until(lambda: "a" in scheduler.links, "the agent to join")
    said = len(scheduler.hellos)
    await scheduler.links["a"].send(bytes(wire.MAX_FRAME_BYTES + 1))
    await until(lambda: len(scheduler.hellos) > said, "the agent to come back")
    assert "refused, oversized" in node.log.read_text()
