"""Certificates that count no more: refused from that moment on, and after a restart; what is open on them is closed."""

import asyncio
import shutil
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from identity.test_members import turned_away
from kit.agents import DEADLINE_S, until
from kit.agents import Cluster as Nodes
from kit.command import called
from kit.service import ME, Agent, Cluster, Running, running

from cosched.errors import BadInput, NeedsRepair
from cosched.identity.authority import serials_of
from cosched.wire import messages as wire
from space_scheduler.service.access.members import Members

LONG_WAIT = "/v1/jobs/1/wait?timeout_s=200"


@asynccontextmanager
async def calling(service: Running, context: ssl.SSLContext) -> AsyncIterator[aiohttp.ClientSession]:
    """Somebody who asks over TLS, all on one connection."""
    connector = aiohttp.TCPConnector(ssl=context, limit=1)
    timeout = aiohttp.ClientTimeout(total=DEADLINE_S)
    base = f"https://127.0.0.1:{service.service.port}"
    async with aiohttp.ClientSession(base, connector=connector, timeout=timeout) as session:
        yield session


async def asked(session: aiohttp.ClientSession, path: str, body: Any = None) -> tuple[int, Any]:
    data = msgspec.json.encode(body) if body is not None else None
    method = "POST" if body is not None else "GET"
    async with session.request(method, path, data=data, server_hostname="scheduler") as answer:
        return answer.status, await answer.json()


def last_serial(files: Cluster, kind: Any, name: str) -> str:
    return serials_of(files.identity, kind, name)[-1]


async def test_a_revoked_user_is_out_at_once_and_a_new_certificate_lets_in_again(files: Cluster) -> None:
    async with running(files) as service:
        job_id = await service.submit(hold=True)
        context = files.certificate("user", "ada")
        async with calling(service, context) as waiting, calling(service, files.certificate("user", "bob")) as bob:
            open_request = asyncio.create_task(asked(waiting, LONG_WAIT))
            assert (await asked(bob, "/v1/cluster"))[0] == 200
            await service.until(lambda: bool(service.service.certificates.of("user", "ada")), "ada is known")
            answered = await service.post("/v1/certificates/revoke", {"kind": "user", "name": "ada"})
            assert answered == {"serials": [last_serial(files, "user", "ada")], "closed": 1}
            assert (await open_request)[0] == 403, "it is asked anew, and refused"
            async with calling(service, context) as again:
                status, problem = await asked(again, "/v1/cluster")
            assert (status, problem["message"]) == (403, "the certificate of user 'ada' was revoked")
            assert (await asked(bob, f"/v1/jobs/{job_id}"))[0] == 200, "others' connections stay"
    async with running(files) as service:
        async with calling(service, context) as again:
            assert (await asked(again, "/v1/cluster"))[0] == 403, "over a restart"
        shutil.rmtree(files.path / "user-ada")
        async with calling(service, files.certificate("user", "ada")) as renewed:
            assert (await asked(renewed, "/v1/cluster"))[0] == 200
        listed = (await service.get("/v1/certificates"))["certificates"]
        mine = [(each["serial"], each["revoked"], each["until"] is None) for each in listed if each["name"] == "ada"]
        old, new = serials_of(files.identity, "user", "ada")
        assert sorted(mine) == sorted([(new, False, False), (old, True, True)])


async def test_one_certificate_of_several_by_its_number(files: Cluster) -> None:
    async with running(files) as service:
        first = files.certificate("user", "ada")
        shutil.rmtree(files.path / "user-ada")
        async with (
            calling(service, first) as one,
            calling(service, files.certificate("user", "ada")) as other,
        ):
            assert (await asked(one, "/v1/cluster"))[0] == (await asked(other, "/v1/cluster"))[0] == 200
            old, _ = serials_of(files.identity, "user", "ada")
            body = {"kind": "user", "name": "ada", "serials": [old], "only": True}
            assert (await service.post("/v1/certificates/revoke", body)) == {"serials": [old], "closed": 1}
            assert (await asked(other, "/v1/cluster"))[0] == 200
            assert (await asked(one, "/v1/cluster"))[0] == 403


async def test_only_operators_revoke_and_only_what_there_is(files: Cluster) -> None:
    async with running(files) as service:
        async with calling(service, files.certificate("user", "ada")) as ada:
            status, problem = await asked(ada, "/v1/certificates/revoke", {"kind": "user", "name": ME})
            assert (status, problem["message"]) == (
                403,
                "certificates are listed and revoked by operators; ada is none",
            )
            assert (await asked(ada, "/v1/certificates"))[0] == 403
        post = service.post
        words = "no certificate of user 'eve' is known here: name its serial number"
        assert (await post("/v1/certificates/revoke", {"kind": "user", "name": "eve"}, 404))["message"] == words
        for body in (
            {"kind": "user", "name": "../x", "serials": ["a1"]},
            {"kind": "king", "name": "eve", "serials": ["a1"]},
            {"kind": "user", "name": "eve", "serials": ["A1"]},
            {"kind": "user", "name": "eve", "serials": ["a1"] * 1001},
            {"kind": "user", "name": "eve", "serial": "a1"},
        ):
            await post("/v1/certificates/revoke", body, 400)
        assert not (files.path / "state" / "members.json").exists()


async def test_a_nodes_certificate_is_revoked_and_the_node_stays(files: Cluster) -> None:
    async with running(files) as service, service.agent("n2") as other:
        async with service.agent("n1") as agent:
            await service.until(lambda: bool(service.service.book.entry("n1").size), "up")
            answered = await service.post("/v1/certificates/revoke", {"kind": "node", "name": "n1"})
            serial = last_serial(files, "node", "n1")
            assert answered == {"serials": [serial], "closed": 1}
            assert (await other.heard(wire.Revoked)).serials == (serial,)
            async with asyncio.timeout(DEADLINE_S):
                await agent.connection.wait_closed()
        shutil.rmtree(files.path / "node-n1")
        async with service.agent("n1"):
            await service.until(lambda: service.service.book.entry("n1").connected, "back with another key")


async def test_newer_certificate_of_a_node_revokes_the_one_before(files: Cluster) -> None:
    async with running(files) as service, service.agent("n2") as other, service.dial("node", "n1") as old_desk:
        agent = Agent(old_desk, "n1", answers=False)
        await agent.say(agent.hello())
        await agent.heard(wire.Welcome)
        (files.path / "node-n1").rename(files.path / "old-disk")
        async with service.agent("n1"):  # laid out anew while the old one is still connected
            old, _ = serials_of(files.identity, "node", "n1")
            assert (await other.heard(wire.Revoked)).serials == (old,)
            async with asyncio.timeout(DEADLINE_S):
                await old_desk.wait_closed()
        agent.close()
    (files.path / "node-n1").rename(files.path / "new-disk")
    (files.path / "old-disk").rename(files.path / "node-n1")
    async with running(files) as service:
        assert "was revoked" in (await turned_away(service, "n1")).reason
        listed = (await service.get("/v1/certificates"))["certificates"]
        assert [each["serial"] for each in listed if each["revoked"]] == [old]
        (files.path / "node-n1").rename(files.path / "old-disk")
        (files.path / "new-disk").rename(files.path / "node-n1")
        async with service.agent("n1") as agent:
            assert agent.heard_already(wire.Welcome)[0].revoked == (old,)


def test_node_certificate_older_than_the_newest_shown_is_refused(tmp_path: Path) -> None:
    members = Members(tmp_path / "members.json", ["n1", "n2"])
    assert not members.shown("n1", "b2", 20.0)
    assert not members.shown("n2", "c3", 5.0), "each node has its own"
    again = Members(tmp_path / "members.json", ["n1", "n2"])
    with pytest.raises(BadInput, match=r"older than b2, .* identity revoke node n1 --serial b2"):
        again.shown("n1", "a1", 10.0)  # never shown before, so on no list
    assert not again.shown("n1", "b2", 20.0)
    assert [*again.revoked] == []
    assert again.shown("n1", "d4", 30.0)
    assert again.revoked == ("b2",)
    again.revoke("node", "n1", ["d4"])  # as the remedy says: it was made by a clock that was ahead
    assert not again.shown("n1", "e5", 15.0)
    (tmp_path / "newest.json").write_text("{")
    with pytest.raises(NeedsRepair, match=r"newest\.json"):
        Members(tmp_path / "members.json", [])


def test_agents_are_not_told_of_users_and_older_software_refuses_them_too(tmp_path: Path) -> None:
    members = Members(tmp_path / "members.json", ["n1"])
    members.remove("n1", ["a1"])
    members.revoke("user", "ada", ["b2", "a1"])
    members.revoke("scheduler", "head", ["c3"])
    again = Members(tmp_path / "members.json", ["n1"])
    assert again.revoked == ("a1", "c3")
    assert again.revocations() == {"a1": ("node", "n1"), "b2": ("user", "ada"), "c3": ("scheduler", "head")}
    assert set(msgspec.json.decode((tmp_path / "members.json").read_bytes())) == {"admitted", "removed", "revoked"}


async def test_agents_leave_a_scheduler_whose_certificate_was_revoked(nodes: Nodes) -> None:
    node = nodes.node("a")
    async with nodes.scheduler() as scheduler:
        serial = serials_of(nodes.authority, "scheduler", "scheduler")[-1]
        await scheduler.tell("a", wire.Revoked((serial,)))
        link = scheduler.links["a"]
        await link.close()
        await until(lambda: "its certificate was revoked" in node.log.read_text(), "the agent to refuse it")
        assert scheduler.links["a"] is link


async def test_the_command_lists_and_revokes_all_that_were_issued(
    files: Cluster, capfd: pytest.CaptureFixture[str]
) -> None:
    server = ("--server", str(files.socket))
    authority = ("--authority", str(files.identity))
    async with running(files) as service:
        async with calling(service, files.certificate("user", "ada")) as ada:
            await asked(ada, "/v1/cluster")
        shutil.rmtree(files.path / "user-ada")
        files.certificate("user", "ada")  # never shown
        serials = serials_of(files.identity, "user", "ada")
        ended = await called(capfd, "identity", "revoke", "user", "ada", *authority, *server)
        assert (ended.status, ended.err) == (0, "")
        assert ended.out.startswith(f"user ada: revoked {', '.join(serials)}")
        listed = msgspec.json.decode((await called(capfd, "identity", "list", *authority, *server, "--json")).out)
        assert {each["serial"] for each in listed["certificates"] if each["revoked"]} == set(serials)
        assert {each["name"] for each in listed["certificates"]} == {"ada", "scheduler"}
        assert all(each["until"] for each in listed["certificates"])
        assert set(listed["expires"]) == {"scheduler", "authority"}
        ended = await called(capfd, "identity", "revoke", "user", "eve", *server)
        assert (ended.status, "no certificate of user 'eve' is known here" in ended.err) == (2, True)
    assert (await called(capfd, "identity", "list", *server)).status == 1
    ended = await called(capfd, "identity", "list", *authority, *server)
    assert (ended.status, "which were revoked is not known" in ended.out) == (0, True)
