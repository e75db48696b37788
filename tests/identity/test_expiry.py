"""Certificates that expire: what runs goes on for two weeks more, nothing new starts there; a renewed one ends that."""

import asyncio
import re
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp
import pytest
from kit.agents import DEADLINE_S
from kit.service import ME, Agent, Cluster, Running, running
from websockets.exceptions import InvalidStatus

from cosched.identity import tls
from cosched.identity.authority import issue
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.service import app
from space_scheduler.service.core.worker import Post

LIFE = timedelta(days=30)


def late(files: Cluster, node: str, by: timedelta) -> str:
    """Give a node a certificate that has been over for so long; the day."""
    shutil.rmtree(files.path / f"node-{node}", ignore_errors=True)
    now = datetime.now(UTC)
    issue(files.identity, "node", node, files.path / f"node-{node}", life=LIFE, now=now - LIFE - by)
    return f"{now - by:%Y-%m-%d}"


async def state(service: Running, node: str) -> tuple[str, str]:
    (found,) = [each for each in (await service.get("/v1/nodes"))["nodes"] if each["name"] == node]
    return found["state"], found["reason"]


async def in_state(service: Running, agent: Agent, wanted: tuple[str, str]) -> None:
    """Wait until the node is in that state, by its heartbeats."""
    deadline_s = time.monotonic() + DEADLINE_S
    while (found := await state(service, agent.node)) != wanted:
        assert time.monotonic() < deadline_s, f"{found}; the log: {service.log.getvalue()}"
        await agent.beat()
        await asyncio.sleep(0.05)


@asynccontextmanager
async def with_job(service: Running, job_id: int) -> AsyncIterator[Agent]:
    """An agent that comes back and has a job that runs."""
    group = wire.GroupReport(job_id, 1, "running", 1 << 21)
    async with service.agent("n1", groups=(group,)) as agent:
        yield agent


async def test_jobs_go_on_beyond_the_end_and_a_renewed_certificate_ends_it(files: Cluster) -> None:
    issue(files.identity, "node", "n1", files.path / "node-n1", now=datetime.now(UTC) - 2 * LIFE)  # older than the next
    async with running(files) as service:
        async with service.agent("n1") as agent:
            await service.until(lambda: bool(service.service.book.entry("n1").size), "up")
            job_id = await service.runs()
        day = late(files, "n1", timedelta(days=3))
        async with with_job(service, job_id) as agent:
            await in_state(service, agent, ("draining", f"certificate: expired on {day}"))
            waiting = await service.submit()
            assert (await service.job(job_id)).state == "running"
            refused = await service.post("/v1/nodes/n1/resume", status=409)
            assert refused["message"].startswith(f"node n1: its certificate expired on {day}")
        shutil.rmtree(files.path / "node-n1")
        async with with_job(service, job_id) as agent:
            await in_state(service, agent, ("up", ""))
            assert (await service.job(job_id)).state == "running"
            assert (await service.job_in(waiting, "starting", "running")).nodes[0].name == "n1"
            document = (await service.get("/v1/nodes"))["nodes"][0]
            assert datetime.fromisoformat(document["certificate_until"]) - datetime.now(UTC) > timedelta(days=700)


async def test_who_calls_again_with_it_is_not_taken_for_renewed_meanwhile() -> None:
    """Between the call and the next look at all certificates its heartbeats put the node back into service."""
    files, posted = Cluster(operators=[ME], heartbeat="50s"), list[ev.Event]()  # too rare a look to come in between
    day = late(files, "n1", timedelta(days=3))
    try:
        async with running(files) as service:
            rules = service.service.shell
            rules.record = lambda _, happened, effects: posted.extend(
                each.event for each in effects if isinstance(each, Post)
            )
            entry = service.service.book.entry("n1")
            async with service.agent("n1") as agent:
                link = service.service.link
                link._look_at_certificate("n1", link.sessions["n1"], time.time())
                await in_state(service, agent, ("drained", f"certificate: expired on {day}"))
            for _ in range(2):
                async with service.agent("n1") as agent:
                    await service.until(lambda: entry.beat is not None, "heard")
            assert [each for each in posted if isinstance(each, ev.NodeDrained | ev.NodeResumed)] == [
                ev.NodeDrained("n1", entry.reason)
            ]
    finally:
        files.close()


async def test_it_expires_while_the_link_is_open(files: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "_FORETELL_S", 0.1)
    issue(files.identity, "node", "n1", files.path / "node-n1", life=timedelta(hours=1))
    async with running(files) as service, service.agent("n1") as agent:
        await in_state(service, agent, ("up", ""))
        entry = service.service.book.entry("n1")
        expires_s, entry.expires_s = entry.expires_s, time.time() - 1
        day = f"{datetime.fromtimestamp(entry.expires_s, UTC):%Y-%m-%d}"
        await in_state(service, agent, ("drained", f"certificate: expired on {day}"))
        expires = service.service.certificates.expiries()
        assert set(expires) == {"scheduler", "authority", "node n1"}
        assert expires["node n1"] == expires_s
        line = await service.logged("certificate expires", "node n1")
        assert "days_left" in line


async def test_what_is_measured_is_what_is_known(files: Cluster) -> None:
    """Of users nothing, and of a certificate that counts no more nothing: it can be renewed by nobody."""

    async def measured() -> set[str]:
        service.service.metrics._made.clear()
        text = await service.text("/metrics")
        return set(re.findall('certificate_expiry_timestamp_seconds{identity="(.*?)"}', text))

    async with running(files) as service:
        async with service.agent("n1"), service.dial("node", "n2"):
            assert (await service.answer_to("ada", "/v1/cluster"))[0] == 200
            assert set(service.service.certificates.expiries()) == {
                *("scheduler", "authority", "node n1", "node n2", "user ada"),
            }
            assert await measured() == {"scheduler", "authority", "node/n1", "node/n2"}
        await service.post("/v1/certificates/revoke", {"kind": "node", "name": "n1"})
        assert await measured() == {"scheduler", "authority", "node/n2"}


async def test_after_its_grace_a_node_is_told_why_it_is_not_let_in(files: Cluster) -> None:
    day = late(files, "n1", timedelta(days=15))
    async with running(files) as service:
        with pytest.raises(InvalidStatus) as refused:
            async with service.dial("node", "n1"):
                pass
        assert refused.value.response.status_code == 403
        body = (refused.value.response.body or b"").decode()
        assert "that of node 'n1' expired on " in body
        assert day[:4] in body


async def test_an_open_link_ends_with_the_grace(files: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(files) as service, service.agent("n1") as agent:
        await in_state(service, agent, ("up", ""))
        monkeypatch.setitem(tls.GRACE_S, "node", 0.0)
        service.service.book.entry("n1").expires_s = time.time() - 1
        async with asyncio.timeout(DEADLINE_S):
            await agent.connection.wait_closed()
        await service.logged("message refused: certificate", "expired on")


async def test_a_user_is_refused_with_the_day(files: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    begun = datetime.now(UTC) - LIFE - timedelta(days=1)
    issue(files.identity, "user", "ada", files.path / "user-ada", life=LIFE, now=begun)
    async with running(files) as service:
        context: Any = files.certificate("user", "ada")
        url = f"https://127.0.0.1:{service.service.port}/v1/cluster"
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, ssl=context, server_hostname="scheduler") as answer,
        ):
            assert answer.status == 403
            assert "that of user 'ada' expired on " in (await answer.json())["message"]
