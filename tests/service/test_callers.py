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


async def test_another_user_on_the_socket_sees_the_state_and_changes_nothing_of_others(service: Running) -> None:
    """Identity by peer credentials: a process of another real user on the same socket."""
    for command in ("curl", "setpriv"):
        if shutil.which(command) is None:
            pytest.skip(f"needs {command}")
    if os.geteuid() != 0:
        pytest.skip("needs root, to be another user")
    nobody = pwd.getpwnam("nobody")
    become = ["setpriv", f"--reuid={nobody.pw_uid}", f"--regid={nobody.pw_gid}", "--clear-groups"]
    call = ["curl", "-sS", "-m", f"{BOUND_S}", "-w", "\n%{http_code}", "--unix-socket", str(service.cluster.socket)]

    async def curl(*arguments: str) -> tuple[int, str, Any]:
        *options, path = arguments
        whole = [*become, *call, *options, f"http://localhost{path}"]
        ended = await asyncio.to_thread(subprocess.run, whole, capture_output=True, text=True, check=True)
        body, status = ended.stdout.rsplit("\n", 1)
        return int(status), body, json.loads(body)

    async with service.agent("n1") as agent:
        job_id = await service.runs(environment={"SECRET": "hush"}, name="mine")
        await agent.ends(job_id, wire.Exit(status=1), b"a secret\n")
        mine = await service.job_in(job_id, "failed")
        assert mine.failure is not None
        assert mine.failure.tail == ["a secret"]
        status, body, theirs = await curl(f"/v1/jobs/{job_id}")
        assert (status, theirs["state"], theirs["user"], theirs["directory"]) == (200, "failed", ME, "")
        assert theirs["failure"] is None
        assert "hush" not in body
        assert "a secret" not in body
        held = await service.submit(hold=True)
        for verb in ("cancel", "hold", "release"):
            status, _, problem = await curl("-X", "POST", f"/v1/jobs/{held}/{verb}")
            assert (status, problem["message"]) == (403, f"job {held} is {ME}'s; nobody may not {verb} it")
        assert (await service.job(held)).state == "waiting"
        status, _, problem = await curl(f"/v1/jobs/{held}/output")
        assert (status, "may not read the output of it" in problem["message"]) == (403, True)
        status, _, made = await curl("-d", json.dumps(GOOD | {"hold": True}), "/v1/jobs")
        assert (status, made["user"]) == (201, "nobody")
        assert (await curl("-X", "POST", f"/v1/jobs/{made['job_id']}/cancel"))[2]["state"] == "cancelled"
        status, _, problem = await curl("-X", "POST", "/v1/nodes/n1/drain")
        assert (status, problem["message"]) == (403, "nodes are drained and resumed by operators; nobody is none")


class TestOverTls:
    async def test_a_user_is_who_the_certificate_says(self, service: Running) -> None:
        async with service.agent("n1", answers=False):
            status, text = await service.answer_to("ada", "/v1/jobs", "POST", GOOD)
            made = json.loads(text)
            assert (status, made["user"]) == (201, "ada")
            status, text = await service.answer_to("bob", f"/v1/jobs/{made['job_id']}/cancel", "POST")
            assert status == 403
            assert json.loads(text)["message"] == f"job {made['job_id']} is ada's; bob may not cancel it"

    async def test_a_node_is_no_user(self, service: Running) -> None:
        for path in ("/v1/jobs", "/healthz", "/metrics", "/v1/openapi.json", "/page/static/main.js"):
            status, text = await service.answer_to("n1", path, kind="node")
            assert status == 403
            assert json.loads(text)["message"] == "the API is for users; this is the certificate of node 'n1'"

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
