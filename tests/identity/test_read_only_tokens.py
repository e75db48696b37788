"""A read-only token opens what monitoring reads; everything else is refused, whatever is tried, and nothing changes."""

import asyncio
import json
import re
import ssl
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yarl
from kit.command import run_here
from kit.service import Cluster, Running, running

from space_scheduler.service.access.callers import AGENTS
from space_scheduler.service.access.tokens import NoToken, Tokens
from space_scheduler.service.api import openapi

DAY_S = 86_400.0
GOOD: dict[str, Any] = {"script": "#!/bin/sh\ntrue\n", "directory": "/tmp"}
READS = {"/metrics", "/healthz", "/v1/cluster", "/v1/openapi.json"}


async def ask(service: Running, words: str, method: str, path: str, **more: Any) -> tuple[int, str]:
    """Status and text of an answer over TLS to who shows that token and no certificate; the path goes as it is."""
    context = ssl.create_default_context(cafile=service.cluster.identity / "ca.pem")
    address = yarl.URL(f"https://127.0.0.1:{service.service.port}{path}", encoded=True)
    headers = {"Authorization": f"Bearer {words}"} | more.pop("headers", {})
    async with (
        aiohttp.ClientSession() as session,
        session.request(
            method, address, ssl=context, server_hostname="scheduler", headers=headers, allow_redirects=False, **more
        ) as answer,
    ):
        return answer.status, await answer.text()


async def reader(service: Running) -> str:
    """A read-only token of an operator's."""
    made = await service.post("/v1/tokens", {"life_s": DAY_S, "label": "prometheus", "read_only": True}, 201)
    assert made["token"]["read_only"] is True
    return str(made["words"])


async def test_it_gets_what_monitoring_reads(files: Cluster) -> None:
    async with running(files) as service:
        words = await reader(service)
        for path in READS:
            status, text = await ask(service, words, "GET", path)
            assert status == 200, (path, text)
        assert "cosched_jobs" in (await ask(service, words, "GET", "/metrics"))[1]


async def test_what_it_gets_of_nodes_is_what_jobs_use(files: Cluster) -> None:
    async with running(files) as service, service.agent("n1") as agent:
        await agent.beat()
        await service.beaten("n1")
        _, text = await ask(service, await reader(service), "GET", "/metrics")
    assert set(re.findall('side="([a-z]+)"', text)) == {"parallel"}


async def test_every_other_route_and_method_is_refused_and_nothing_changes(files: Cluster) -> None:
    async with running(files) as service, service.agent("n1") as agent:
        await agent.beat()
        words = await reader(service)
        job_id = await service.submit(hold=True)
        tokens = (await service.get("/v1/tokens"))["tokens"]
        seq = service.service.host.view().seq
        tried = 0
        runner = service.service._runner
        assert runner is not None
        addresses = {each.resource.canonical for each in runner.app.router.routes() if each.resource is not None}
        assert {each.path for each in openapi.ROUTES} < addresses, "the page's are among them"
        for address in sorted(addresses):
            path = re.sub(r"{\w+}", "n1", address.replace("{id}", str(job_id)))
            for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE"):
                if method == "GET" and address in READS:
                    continue
                body = {"json": GOOD} if method == "POST" else {}
                status, text = await ask(service, words, method, path, **body)
                wanted = {403, 405} if address == AGENTS else {403}  # of agents, who come with a certificate
                assert status in wanted, (method, path, status, text)
                tried += 1
        assert tried > 150
        assert (await service.get("/v1/tokens"))["tokens"] == tokens
        assert service.service.host.view().seq == seq, "nothing was journalled"


SIMILAR = (
    "/", "/v1", "/v1/", "/no/such", "/metrics/", "//metrics", "/metrics/../v1/jobs", "/metrics/%2e%2e/v1/jobs",
    "/v1/cluster/../jobs", "/v1/cluster%2f..%2fjobs", "/%76%31/jobs", "/v1/jobs?path=/metrics", "/v1/jobs;/metrics",
    "/v1/jobs#/metrics", "/v1/tokens", AGENTS, "/V1/CLUSTER", "/metrics%00", "/metrics%0a",
)  # fmt: skip


async def test_an_address_that_only_looks_like_one_of_them_is_refused(files: Cluster) -> None:
    claims = {"X-HTTP-Method-Override": "GET", "X-Original-URL": "/metrics", "X-Forwarded-User": "root"}
    async with running(files) as service:
        words = await reader(service)
        for path, headers in product(SIMILAR, ({}, claims)):
            status, text = await ask(service, words, "GET", path, headers=headers)
            assert status in {403, 404}, (path, status, text)
            assert '"jobs"' not in text
            assert '"tokens"' not in text


async def test_it_makes_no_token_and_its_makers_other_tokens_stay_their_own(files: Cluster) -> None:
    async with running(files) as service:
        words = await reader(service)
        status, text = await ask(service, words, "POST", "/v1/tokens", json={"life_s": DAY_S})
        assert status == 403
        assert json.loads(text)["message"].startswith("reader ")
        full = (await service.post("/v1/tokens", {"life_s": DAY_S}, 201))["words"]
        assert (await ask(service, full, "GET", "/v1/jobs"))[0] == 200
        mixed = "_".join([*words.split("_")[:2], full.split("_", 2)[2]])
        assert (await ask(service, mixed, "GET", "/metrics"))[0] == 401


async def test_it_ends_when_it_is_revoked(files: Cluster) -> None:
    async with running(files) as service:
        words = await reader(service)
        await service.post(f"/v1/tokens/{words.split('_')[1]}/revoke")
        assert (await ask(service, words, "GET", "/metrics"))[0] == 401


def test_it_stays_what_it_is_over_a_restart_and_others_are_kept_as_before(tmp_path: Path) -> None:
    """A file without read-only tokens is one that an older scheduler takes."""
    path = tmp_path / "tokens.json"
    tokens = Tokens(path)
    _, full = tokens.create("ada", "", DAY_S)
    assert "read_only" not in path.read_text()
    _, words = tokens.create("ada", "", DAY_S, read_only=True)
    again = Tokens(path)
    assert (again.token_of(words).read_only, again.token_of(full).read_only) == (True, False)
    with pytest.raises(NoToken):
        again.token_of(f"{words}x")


async def test_the_command_makes_one_for_prometheus(files: Cluster, tmp_path: Path) -> None:
    async with running(files) as service:
        where = tmp_path / "credentials"
        options = ("--read-only", "--label", "p", "--into", where, "--server", files.socket)
        made = await asyncio.to_thread(run_here, "token", "create", *options)
        assert made.status == 0, made.err
        assert "for Prometheus" in made.out
        words = (where / "token").read_text().strip()
        assert (await ask(service, words, "GET", "/metrics"))[0] == 200
        assert (await ask(service, words, "GET", "/v1/nodes"))[0] == 403
