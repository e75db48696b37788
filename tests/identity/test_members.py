"""Nodes that are admitted and removed: a removed one is refused at once, by the scheduler and by the other agents."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import struct
from pathlib import Path

import msgspec
import pytest
from kit.agents import DEADLINE_S, Node, until
from kit.agents import Cluster as Nodes
from kit.command import run_here
from kit.service import Cluster, Running, running

from cosched.errors import Failed
from cosched.identity.authority import issue
from cosched.identity.tls import client_context
from cosched.model.contract import SocialContract
from cosched.wire import messages as wire
from cosched.wire.stream import Frames, Kind
from node_agent.service.commands import Wanted
from node_agent.service.rsh_proxy import Call
from space_scheduler.service.access.members import Members


def test_members_are_kept_and_a_damaged_file_is_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "members.json"
    members = Members(path, ["n1", "n2"])
    members.admit("n3")
    members.remove("n1", ["a1", "a2"])
    members.remove("n3", [])
    again = Members(path, ["n1", "n2"])
    assert (again.nodes, again.revoked) == (["n2"], ("a1", "a2"))
    assert again.was_removed("n1")
    again.admit("n1")
    assert Members(path, ["n1", "n2"]).nodes == ["n1", "n2"]
    assert Members(path, ["n1", "n2"]).is_revoked("a1"), "the name comes back, its old key does not"
    path.write_text("{")
    with pytest.raises(Failed, match="not the list of members"):
        Members(path, [])


async def joined(service: Running, *names: str) -> None:
    await service.until(lambda: all(service.service.book.entry(each).size for each in names), f"up: {names}")


async def turned_away(service: Running, name: str) -> wire.Rejected:
    """What a node is told that dials."""
    from kit.service import Agent  # noqa: PLC0415

    async with service.dial("node", name) as connection:
        agent = Agent(connection, name, answers=False)
        try:
            await agent.say(agent.hello())
            return await agent.heard(wire.Rejected)
        finally:
            agent.close()


async def test_a_removed_node_is_gone_at_once_and_its_certificate_for_good(files: Cluster) -> None:
    async with running(files) as service, service.agent("n2") as other:
        await joined(service, "n2")
        async with service.agent("n1") as agent:
            await joined(service, "n1")
            job_id = await service.submit(tasks=4)
            record = await service.job_in(job_id, "running")
            assert [share.name for share in record.nodes] == ["n1", "n2"]
            after = await service.post("/v1/nodes/n1/remove", {"serials": []})
            assert (after["nodes"], after["revoked"]) == (["n2", "n3"], 1)
            said = await agent.heard(wire.Rejected)
            assert said.removed_by == service.service.link.fence
            await agent.ends(job_id, wire.Exit(status=0))  # nothing it says counts any more
            assert len((await other.heard(wire.Revoked)).serials) == 1
            assert (await service.job_in(job_id, "node lost", "completed")).state == "node lost"
            async with asyncio.timeout(DEADLINE_S):
                await agent.connection.wait_closed()
        assert "was revoked" in (await turned_away(service, "n1")).reason
        assert [node["name"] for node in (await service.get("/v1/nodes"))["nodes"]] == ["n2", "n3"]
    async with running(files) as service:  # settings still name it: a restart brings it not back
        assert "was revoked" in (await turned_away(service, "n1")).reason
        await service.post("/v1/nodes/n1/admit")
        refused = await turned_away(service, "n1")
        assert "was revoked" in refused.reason, "the old certificate, for the name that is admitted again"
        shutil.rmtree(files.path / "node-n1")
        async with service.agent("n1"):
            await joined(service, "n1")


async def test_a_node_is_admitted_without_a_restart(files: Cluster) -> None:
    async with running(files) as service:
        assert "is not in this cluster's list of nodes" in (await turned_away(service, "n9")).reason
        assert (await service.post("/v1/nodes/n9/admit"))["nodes"] == ["n1", "n2", "n3", "n9"]
        async with service.agent("n9"):
            await joined(service, "n9")
        await service.post("/v1/nodes/n9/remove")
        refused = await turned_away(service, "n9")
        assert "was revoked" in refused.reason
        assert refused.removed_by == service.service.link.fence


async def test_certificates_that_another_machine_made_are_revoked_by_their_numbers(files: Cluster) -> None:
    """A node that is off shows none, and who removes it may have no authority at hand, as Ansible has none there."""
    async with running(files) as service:
        status, said = await removing(files, "n1", "--serial", "abc1", "--serial", "abc2")
        assert (status, said) == (0, {"n1": True})
        assert service.service.link.members.revoked == ("abc1", "abc2")
        assert (await removing(files, "n2", "n3", "--serial", "abc3"))[0] == 2, "whose would it be?"
        assert (await removing(files, "n2", "--serial", "../x"))[0] != 0
        assert service.service.link.members.revoked == ("abc1", "abc2")


async def removing(files: Cluster, *words: str) -> tuple[int, dict[str, bool]]:
    """``cosched node remove`` without a way to the host: its exit status, and which nodes were removed."""
    ended = await asyncio.to_thread(run_here, "node", "remove", *words, "--no-ssh", "--json", "--server", files.socket)
    return ended.status, {node["name"]: node["ok"] for node in json.loads(ended.out)["nodes"]} if ended.out else {}


async def test_what_is_no_node_and_no_certificate(files: Cluster) -> None:
    async with running(files) as service:
        problem = await service.post("/v1/nodes/n4/remove", status=404)
        assert problem["message"] == "there is no node 'n4'; did you mean 'n3'?"
        assert (
            "serial numbers in hexadecimal"
            in (await service.post("/v1/nodes/n1/remove", {"serials": ["../x"]}, 400))["message"]
        )
        assert "'N1' beside 'n1'" in (await service.post("/v1/nodes/N1/admit", status=400))["message"]
        assert "node name" in (await service.post("/v1/nodes/a%20b/admit", status=400))["message"]
        assert (await service.get("/v1/nodes"))["nodes"][0]["name"] == "n1"


ENDS = (Kind.EXIT, Kind.FAIL)


async def calling(node: Node, identity: Path, grant: bytes, command: str) -> tuple[Kind, bytes]:
    """Call an agent's door as node a does; the last frame."""
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", node.port, ssl=client_context(identity), server_hostname=node.name
    )
    wanted = Wanted(command, os.urandom(16).hex(), 0, 0, again=False)
    try:
        frames = Frames()
        got: list[tuple[Kind, bytes]] = []
        async with asyncio.timeout(DEADLINE_S):
            while (not got or got[-1][0] not in ENDS) and (data := await reader.read(65536)):
                for kind, piece in frames.feed(data):
                    if kind is Kind.CHALLENGE:
                        said = msgspec.msgpack.encode(Call(grant, node.name, "a", wanted, piece))
                        writer.write(struct.pack(">I", len(said)) + said)
                    else:
                        got.append((kind, piece))
        return got[-1] if got else (Kind.AWAY, b"")
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(DEADLINE_S):
                await writer.wait_closed()


def listening(node: Node) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", node.port)) == 0


def serial(identity: Path) -> str:
    from cryptography import x509  # noqa: PLC0415

    return f"{x509.load_pem_x509_certificate((identity / 'node.pem').read_bytes()).serial_number:x}"


async def test_other_agents_refuse_a_removed_node_at_once_and_over_restarts(nodes: Nodes) -> None:
    a, b = nodes.node("a", start=False), nodes.node("b")
    async with nodes.scheduler() as scheduler:
        await scheduler.tell("b", nodes.prepare(scheduler.fence, 5, "a", "b"))
        await scheduler.next("b", wire.Prepared)
        grant = nodes.grant(5, ("a", "b"))
        assert await calling(b, a.identity, grant, "true") == (Kind.EXIT, b'{"status": 0}')
        mark = b.base / "up"
        open_call = asyncio.create_task(calling(b, a.identity, grant, f"touch {mark}; exec sleep 600"))
        await until(mark.exists, "the call to run")
        await scheduler.tell("b", wire.Revoked((serial(a.identity),)))
        try:
            ended = (await open_call)[0]
        except OSError:
            ended = Kind.AWAY
        assert ended not in ENDS, "cut: it got nothing more"
        words = b"the certificate was revoked: that node was removed from the cluster"
        assert await calling(b, a.identity, grant, "true") == (Kind.FAIL, words)
    b.stop_agent()
    b.start_agent()
    await until(lambda: listening(b), "the agent to be up again")
    assert (await calling(b, a.identity, grant, "true"))[0] is Kind.FAIL
    issue(nodes.authority, "node", "a", a.base / "again")  # its name with another key is as good as new
    assert (await calling(b, a.base / "again", grant, "true"))[0] is Kind.EXIT


async def test_a_removed_nodes_jobs_end_by_its_own_schedulers_word_alone(nodes: Nodes) -> None:
    node = nodes.node("a")
    async with nodes.scheduler(epoch=3) as scheduler:
        await scheduler.tell("a", nodes.prepare(scheduler.fence, 5, "a"))
        await scheduler.next("a", wire.Prepared)
        run = wire.Run(scheduler.fence, wire.OrderId(5, 1, 2), b"#!/bin/sh\nexec sleep 600\n", ())
        await scheduler.tell("a", run)
        await scheduler.next("a", wire.Started)
        stranger, old = wire.Fence("d" * 32, 9, "x"), wire.Fence(scheduler.fence.cluster_id, 2, "y")
        for fence in (None, stranger, old):  # of another cluster, of a scheduler that was replaced: it only leaves
            left = scheduler.links["a"]
            await scheduler.tell("a", wire.Rejected("go away", fence))
            await until(lambda left=left: scheduler.links["a"] is not left, "it to come back", 60)  # type: ignore[misc]
            assert scheduler.hellos[-1].groups[0].state == "running"
        await scheduler.tell("a", wire.Rejected("removed", scheduler.fence))
        await until(lambda: not list((node.state / "attempts").iterdir()), "its jobs to end", 60)
        assert "this node was removed" in node.log.read_text()


async def test_what_a_node_says_of_its_users(nodes: Nodes) -> None:
    nodes.node("a")
    async with nodes.scheduler() as scheduler:
        scheduler.contract = SocialContract()
        await scheduler.tell("a", wire.Survey(3, ("root", "nobody", "no-such-user", "../etc", "")))
        said = await scheduler.next("a", wire.Surveyed, request=3)
        assert sorted(said.users) == ["nobody", "root"]
        assert said.users["root"].uid == 0
        assert "may not log in" in said.users["nobody"].problem
