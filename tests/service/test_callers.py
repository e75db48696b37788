"""Who asks: another real user on the Unix socket, users and nodes over TLS; and what each may not."""

import asyncio
import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest
from kit.service import ME, Cluster, Running
from kit.waiting import BOUND_S

from cosched.wire import messages as wire

GOOD: dict[str, Any] = {"script": "#!/bin/sh\ntrue\n", "directory": "/tmp"}


class TestOthers:
    """Identity by peer credentials: a process of another real user on the same socket."""

    def curl(self, service: Running, *arguments: str) -> asyncio.Future[str]:
        for command in ("curl", "setpriv"):
            if shutil.which(command) is None:
                pytest.skip(f"needs {command}")
        if os.geteuid() != 0:
            pytest.skip("needs root, to be another user")
        nobody = pwd.getpwnam("nobody")
        as_nobody = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
        call = ["curl", "-sS", "-m", f"{BOUND_S}", "-w", "\n%{http_code}", "--unix-socket", str(service.cluster.socket)]
        *options, path = arguments
        whole = [*as_nobody, *call, *options, f"http://localhost{path}"]
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(
            None, lambda: subprocess.run(whole, capture_output=True, text=True, check=True).stdout
        )

    async def test_they_see_the_state_and_no_more(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            job_id = await service.submit(environment={"SECRET": "hush"}, name="mine")
            await service.job_in(job_id, "running")
            await agent.ends(job_id, wire.Exit(status=1), b"a secret\n")
            mine = await service.job_in(job_id, "failed")
            body, status = (await self.curl(service, f"/v1/jobs/{job_id}")).rsplit("\n", 1)
            assert status == "200"
            theirs = json.loads(body)
            assert (theirs["state"], theirs["user"]) == ("failed", ME)
            assert theirs["directory"] == ""
            assert theirs["failure"] is None
            assert mine.failure is not None
            assert mine.failure.tail == ["a secret"]
            assert "hush" not in body
            assert "a secret" not in body

    @pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
    async def test_they_change_nothing(self, service: Running, verb: str) -> None:
        async with service.agent("n1"):
            job_id = await service.submit(hold=True)
            body, status = (await self.curl(service, "-X", "POST", f"/v1/jobs/{job_id}/{verb}")).rsplit("\n", 1)
            assert status == "403"
            assert json.loads(body)["message"] == f"job {job_id} is {ME}'s; nobody may not {verb} it"
            assert (await service.job(job_id)).state == "waiting"

    async def test_they_read_no_output(self, service: Running) -> None:
        async with service.agent("n1"):
            job_id = await service.submit(hold=True)
            body, status = (await self.curl(service, f"/v1/jobs/{job_id}/output")).rsplit("\n", 1)
            assert status == "403"
            assert "may not read the output of it" in json.loads(body)["message"]

    async def test_their_own_jobs_are_theirs(self, service: Running) -> None:
        async with service.agent("n1"):
            sent = json.dumps(GOOD | {"hold": True})
            body, status = (await self.curl(service, "-d", sent, "/v1/jobs")).rsplit("\n", 1)
            assert status == "201"
            made = json.loads(body)
            assert made["user"] == "nobody"
            body, _ = (await self.curl(service, "-X", "POST", f"/v1/jobs/{made['job_id']}/cancel")).rsplit("\n", 1)
            assert json.loads(body)["state"] == "cancelled"

    async def test_they_drain_nothing(self, service: Running) -> None:
        body, status = (await self.curl(service, "-X", "POST", "/v1/nodes/n1/drain")).rsplit("\n", 1)
        assert status == "403"
        assert json.loads(body)["message"] == "nodes are drained and resumed by operators; nobody is none"


class TestOverTls:
    async def ask(self, service: Running, kind: str, name: str, path: str, method: str = "GET") -> tuple[int, Any]:
        context = service.cluster.certificate(kind, name)
        url = f"https://127.0.0.1:{service.service.port}{path}"
        async with (
            aiohttp.ClientSession() as session,
            session.request(method, url, ssl=context, server_hostname="scheduler", json=GOOD) as answer,
        ):
            return answer.status, await answer.json()

    async def test_a_user_is_who_the_certificate_says(self, service: Running) -> None:
        async with service.agent("n1", answers=False):
            status, made = await self.ask(service, "user", "ada", "/v1/jobs", "POST")
            assert (status, made["user"]) == (201, "ada")
            status, problem = await self.ask(service, "user", "bob", f"/v1/jobs/{made['job_id']}/cancel", "POST")
            assert (status, problem["message"]) == (403, f"job {made['job_id']} is ada's; bob may not cancel it")

    @pytest.mark.parametrize("path", ["/v1/jobs", "/healthz", "/metrics", "/v1/openapi.json", "/page/static/main.js"])
    async def test_a_node_is_no_user(self, service: Running, path: str) -> None:
        status, problem = await self.ask(service, "node", "n1", path)
        assert (status, problem["message"]) == (403, "the API is for users; this is the certificate of node 'n1'")

    async def test_nobody_without_a_certificate_of_ours(
        self, service: Running, make_cluster: Callable[..., Cluster]
    ) -> None:
        other = make_cluster()
        context = other.certificate("user", "ada")
        context.check_hostname = False
        context.verify_mode = 0  # type: ignore[assignment]
        url = f"https://127.0.0.1:{service.service.port}/v1/jobs"
        async with aiohttp.ClientSession() as session:
            with pytest.raises(aiohttp.ClientError):
                await session.get(url, ssl=context)
