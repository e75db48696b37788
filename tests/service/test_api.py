"""The HTTP API over a real Unix socket and real TLS: what is told, what is refused and with which words."""

import asyncio
import json
import os
import pwd
import shutil
import subprocess
from collections.abc import Callable
from io import BytesIO
from typing import Any

import aiohttp
import pytest

from cosched.wire import messages as wire
from tests.kit.service import ME, Cluster, Running, running

GOOD: dict[str, Any] = {"script": "#!/bin/sh\ntrue\n", "directory": "/tmp"}


async def joined(service: Running, *nodes: str) -> None:
    await service.until(lambda: all(service.service.book.entry(each).size for each in nodes), f"up: {nodes}")


BAD = [
    ("script", {"script": ""}, 400, "submission: script: found ''; expected a script"),
    ("script", {"script": "echo hello"}, 400, "its first line is 'echo hello'; expected a script whose first"),
    ("script", {"script": "\x7fELF\x02\0"}, 400, "its first line is"),
    ("script", {"script": "#!/bin/sh\0\n"}, 400, "its first line is"),
    ("script", {"script": "#!\n"}, 400, "its first line is '#!'"),
    ("script", {"script": "#!/bin/sh\r\ntrue\r\n"}, 400, "its lines end with CR LF"),
    ("script", {"script": "#!/bin/sh\n" + "#" * (1 << 20)}, 413, "1048586 bytes; expected at most 1048576"),
    ("script", {"script": 7}, 400, "submission: script: found 7; expected str"),
    ("arguments", {"arguments": ["a", "b\0"]}, 400, "submission: arguments[1]: a NUL character in it"),
    ("arguments", {"arguments": ["a" * 200_000]}, 413, "200001 bytes; expected at most 131072"),
    ("tasks", {"tasks": 0}, 400, "submission: tasks: found 0; expected a number of tasks of at least 1"),
    ("tasks", {"tasks": -3}, 400, "submission: tasks: found -3"),
    ("tasks", {"tasks": "four"}, 400, "submission: tasks: found 'four'; expected int"),
    ("tasks", {"tasks": True}, 400, "submission: tasks: found True; expected int"),
    ("time_limit_s", {"time_limit_s": 0}, 400, "time_limit_s: found 0.0; expected more than 0, at most 86400"),
    ("time_limit_s", {"time_limit_s": 1e9}, 400, "at most 86400 (1 d)"),
    ("time_limit_s", {"time_limit_s": 1e-9}, 400, "expected more than 0"),
    ("memory_bytes", {"memory_bytes": 0}, 400, "memory_bytes: found 0; expected a number of bytes of at least 1"),
    ("kind", {"kind": "cpi"}, 400, "submission: kind: found 'cpi'; expected cpu or comm; did you mean 'cpu'?"),
    ("directory", {"directory": "tmp"}, 400, "submission: directory: found 'tmp'; expected an absolute path"),
    ("directory", {"directory": "/a\0b"}, 400, "expected a path of at most 4096 bytes"),
    ("output", {"output": "logs/"}, 400, "submission: output: found 'logs/'; expected the path of a file"),
    ("error", {"error": ""}, 400, "submission: error: found ''"),
    ("name", {"name": "a\nb"}, 400, "submission: name: found 'a\\nb'; expected at most 128 printable characters"),
    ("name", {"name": "x" * 129}, 400, "expected at most 128 printable characters"),
    ("environment", {"environment": {"A-B": "1"}}, 400, "environment.'A-B': not a variable's name"),
    ("environment", {"environment": {"A": "x\0"}}, 400, "environment.A: a value with a NUL character"),
    ("environment", {"environment": {"A": 1}}, 400, "submission: environment[...]: found {'A': 1}; expected str"),
    ("taks", {"taks": 4}, 400, "submission: taks: unknown key; expected one of script, arguments"),
    ("user", {"user": "root"}, 400, "submission: user: unknown key"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "change", "status", "words"), BAD)
async def test_a_bad_submission(service: Running, key: str, change: dict[str, Any], status: int, words: str) -> None:
    problem = await service.post("/v1/jobs", GOOD | change, status)
    assert words in problem["message"]
    assert key in problem["where"] or key == "environment"
    assert (await service.get("/v1/jobs"))["jobs"] == []


async def test_an_unknown_key_has_its_nearest(service: Running) -> None:
    problem = await service.post("/v1/jobs", GOOD | {"taks": 4}, 400)
    assert problem["nearest"] == "tasks"


async def test_a_body_that_is_no_submission(service: Running) -> None:
    async with service.http.post("/v1/jobs", data=b'{"script": ') as answer:
        assert answer.status == 400
        assert (await answer.json())["message"].startswith("body: not JSON: ")
    problem = await service.post("/v1/jobs", [], 400)
    assert problem["message"] == "submission: a list; expected keys and values"
    async with service.http.post("/v1/jobs", data=BytesIO(b"[" * 100_000)) as answer:
        assert answer.status == 400
    missing = await service.post("/v1/jobs", {"script": "#!/bin/sh\n"}, 400)
    assert "directory" in missing["message"]


async def test_a_body_that_is_too_long(service: Running) -> None:
    async with service.http.post("/v1/jobs", data=BytesIO(b" " * ((8 << 20) + 1))) as answer:
        assert answer.status == 413
        assert "longer than the 8388608 bytes" in (await answer.json())["message"]


async def test_a_job_that_could_never_start(make_cluster: Callable[..., Cluster]) -> None:
    remedy = "jobs over several nodes need user namespaces: sysctl kernel.apparmor_restrict_unprivileged_userns=0"
    cluster = make_cluster(max_nodes_per_job=1, note=remedy)
    async with running(cluster) as service, service.agent("n1"), service.agent("n2"):
        await joined(service, "n1", "n2")
        wide = await service.post("/v1/jobs", GOOD | {"tasks": 9}, 422)
        assert wide["found"] == "wider_than_machine"
        assert "needs more processors than the machine has (procs=9, machine_procs=4)" in wide["message"]
        assert remedy not in wide["message"]
        spans = await service.post("/v1/jobs", GOOD | {"tasks": 3}, 422)
        assert spans["found"] == "spans_nodes"
        assert spans["message"].endswith(remedy)
        large = await service.post("/v1/jobs", GOOD | {"memory_bytes": 1 << 40}, 422)
        assert large["found"] == "task_too_large"


async def test_too_many_queued(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(max_queued=2)) as service, service.agent("n1"):
        await joined(service, "n1")
        for _ in range(2):
            await service.submit(hold=True)
        problem = await service.post("/v1/jobs", GOOD, 429)
        assert "2 jobs wait already" in problem["message"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to be refused as root")
async def test_root_is_refused_unless_it_is_allowed(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(allow_root=False)) as service:
        problem = await service.post("/v1/jobs", GOOD, 403)
        assert "jobs of root are not accepted here (allow_root" in problem["message"]


async def test_a_full_journal_is_said_so(service: Running) -> None:
    async with service.agent("n1"):
        await joined(service, "n1")
        await service.submit(hold=True)
        await service.service.host.close()  # as if the core could not go on
        problem = await service.post("/v1/jobs", GOOD, 503)
        assert problem["message"]


@pytest.mark.parametrize("path", ["", "/explain", "/wait", "/output"])
@pytest.mark.parametrize(("number", "status"), [("99", 404), ("x", 400), ("0", 400), ("-1", 400), ("9" * 30, 400)])
async def test_no_such_job(service: Running, path: str, number: str, status: int) -> None:
    problem = await service.get(f"/v1/jobs/{number}{path}", status)
    words = "there is no job 99" if status == 404 else f"job: found '{number}'; expected a job's number, such as 12"
    assert problem["message"] == words


async def test_no_such_address_or_method(service: Running) -> None:
    problem = await service.get("/v2/jobs", 404)
    assert problem["message"] == "there is nothing at this address"
    async with service.http.delete("/v1/jobs") as answer:
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET,HEAD,POST"
        assert (await answer.json())["found"] == "DELETE"


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("jobs?state=runing", "state: found 'runing'; expected one of queued, held, starting, running, ending; "
                              "did you mean 'running'?"),
        ("history?limit=0", "limit: found 0; expected a whole number, 1 to 1000"),
        ("history?limit=1001", "limit: found 1001; expected a whole number, 1 to 1000"),
        ("history?limit=ten", "limit: found 'ten'; expected a whole number"),
        ("history?before=-2", "before: found '-2'; expected a whole number of at least 1"),
        ("jobs/1/wait?timeout_s=soon", "timeout_s: found 'soon'; expected seconds, 0 to 300"),
        ("jobs/1/wait?timeout_s=nan", "timeout_s: found 'nan'; expected seconds, 0 to 300"),
        ("jobs/1/wait?timeout_s=301", "timeout_s: found '301'"),
        ("jobs/1/output?stream=stdin", "stream: found 'stdin'; expected stdout or stderr; did you mean 'stdout'?"),
        ("jobs/1/output?offset=-1", "offset: found '-1'; expected a whole number of at least 0"),
        ("jobs/1/output?max_bytes=0", "max_bytes: found 0; expected a whole number of at least 1"),
        ("jobs/1/output?follow=yes", "follow: found 'yes'; expected 0 or 1"),
    ],
)  # fmt: skip
async def test_a_bad_query(service: Running, query: str, words: str) -> None:
    assert words in (await service.get(f"/v1/{query}", 400))["message"]


async def test_the_life_of_a_held_job(service: Running) -> None:
    async with service.agent("n1", answers=False):
        await joined(service, "n1")
        job_id = await service.submit(hold=True, name="kept")
        assert (await service.job(job_id)).state == "held"
        refused = await service.post(f"/v1/jobs/{job_id}/hold", status=409)
        assert f"job {job_id} is held: it cannot be held now; its story: queued 20" in refused["message"]
        explained = await service.get(f"/v1/jobs/{job_id}/explain")
        assert explained["reason"]["why"] == "held"
        assert (await service.post(f"/v1/jobs/{job_id}/release"))["state"] == "queued"
        await service.job_in(job_id, "starting")
        problem = await service.post(f"/v1/jobs/{job_id}/hold", status=409)
        assert "is starting: it cannot be held now" in problem["message"]
        explained = await service.get(f"/v1/jobs/{job_id}/explain")
        assert (explained["state"], explained["reason"]["why"]) == ("starting", "fits")


async def test_what_has_ended_cannot_be_cancelled(service: Running) -> None:
    async with service.agent("n1"):
        await joined(service, "n1")
        job_id = await service.submit(hold=True)
        assert (await service.post(f"/v1/jobs/{job_id}/cancel"))["state"] == "cancelled"
        problem = await service.post(f"/v1/jobs/{job_id}/cancel", status=409)
        assert f"job {job_id} is cancelled: it cannot be cancelled any more; its story: queued 20" in problem["message"]
        assert ", cancelled 20" in problem["message"]
        assert [job["job_id"] for job in (await service.get("/v1/history"))["jobs"]] == [job_id]
        assert (await service.get(f"/v1/history?before={job_id}"))["jobs"] == []


async def test_lists_by_user_and_state_in_the_queues_order(service: Running) -> None:
    async with service.agent("n1"):
        await joined(service, "n1")
        runs = await service.submit(tasks=2)
        await service.job_in(runs, "running")
        held = await service.submit(hold=True)
        first, second = await service.submit(tasks=2), await service.submit(tasks=1)
        await service.until(lambda: len(service.service.host.view().queue) == 2, "queued")
        jobs = (await service.get("/v1/jobs"))["jobs"]
        assert [job["job_id"] for job in jobs] == [runs, first, second, held]
        assert [job["job_id"] for job in (await service.get("/v1/jobs?state=held"))["jobs"]] == [held]
        assert (await service.get("/v1/jobs?user=somebody"))["jobs"] == []
        assert len((await service.get(f"/v1/jobs?user={ME}"))["jobs"]) == 4
        waits = await service.get(f"/v1/jobs/{second}")
        assert waits["state"] == "queued"
        assert waits["start_time"] is None
        assert waits["wait_s"] >= 0
        cluster = await service.get("/v1/cluster")
        assert (cluster["queued"], cluster["running"], cluster["free_procs"]) == (3, 1, 0)


class TestWaiting:
    async def test_the_answer_comes_with_the_end(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            await joined(service, "n1")
            job_id = await service.submit()
            await service.job_in(job_id, "running")
            waiting = asyncio.create_task(service.get(f"/v1/jobs/{job_id}/wait?timeout_s=300"))
            await agent.ends(job_id, wire.Exit(status=0))
            assert (await waiting)["state"] == "completed"
            assert (await service.get(f"/v1/jobs/{job_id}/wait"))["state"] == "completed"

    async def test_or_after_so_long(self, service: Running) -> None:
        async with service.agent("n1"):
            await joined(service, "n1")
            job_id = await service.submit(hold=True)
            assert (await service.get(f"/v1/jobs/{job_id}/wait?timeout_s=0.01"))["state"] == "held"

    async def test_or_when_the_service_ends(self, cluster: Cluster) -> None:
        async with running(cluster) as service, service.agent("n1"):
            await joined(service, "n1")
            job_id = await service.submit(hold=True)
            waiting = asyncio.create_task(service.get(f"/v1/jobs/{job_id}/wait?timeout_s=300"))
            await service.until(lambda: bool(service.service.jobs._waiting), "waiting")
            await service.service.stop()
            assert (await waiting)["state"] == "held"


class TestOutput:
    async def test_in_pieces(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            await joined(service, "n1")
            job_id = await service.submit()
            await service.job_in(job_id, "running")
            agent.spool["stdout"] = b"0123456789"
            async with service.http.get(f"/v1/jobs/{job_id}/output?offset=2&max_bytes=3") as answer:
                assert await answer.read() == b"234"
                assert (answer.headers["Cosched-Size"], answer.headers["Cosched-Final"]) == ("10", "0")
            agent.final = True
            async with service.http.get(f"/v1/jobs/{job_id}/output?offset=8&max_bytes=30") as answer:
                assert await answer.read() == b"89"
                assert answer.headers["Cosched-Final"] == "1"

    async def test_all_there_is_in_many_pieces(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            await joined(service, "n1")
            job_id = await service.submit()
            await service.job_in(job_id, "running")
            agent.spool["stderr"] = os.urandom(3 * wire.MAX_CHUNK_BYTES + 17)
            async with service.http.get(f"/v1/jobs/{job_id}/output?stream=stderr") as answer:
                assert await answer.read() == agent.spool["stderr"]
            assert len(agent.heard_already(wire.ReadOutput)) == 4

    async def test_followed_to_the_end(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            await joined(service, "n1")
            job_id = await service.submit()
            await service.job_in(job_id, "running")
            agent.spool["stdout"] = b"one\n"
            async with service.http.get(f"/v1/jobs/{job_id}/output?follow=1") as answer:
                assert await answer.content.readline() == b"one\n"
                agent.spool["stdout"] += b"two\n"
                assert await answer.content.readline() == b"two\n"
                agent.spool["stdout"] += b"three\n"
                agent.final = True
                await agent.ends(job_id, wire.Exit(status=0))
                assert await answer.content.read() == b"three\n"

    async def test_followed_before_it_starts(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            await joined(service, "n1")
            job_id = await service.submit(hold=True)
            async with service.http.get(f"/v1/jobs/{job_id}/output?follow=1") as answer:
                agent.spool["stdout"] = b"at last\n"
                await service.post(f"/v1/jobs/{job_id}/release")
                assert await answer.content.readline() == b"at last\n"
                agent.final = True
                await agent.ends(job_id, wire.Exit(status=0))
                assert await answer.content.read() == b""

    async def test_of_a_job_that_never_ran(self, service: Running) -> None:
        async with service.agent("n1"):
            await joined(service, "n1")
            job_id = await service.submit(hold=True)
            await service.post(f"/v1/jobs/{job_id}/cancel")
            for query in ("", "?follow=1", "?max_bytes=5"):
                async with service.http.get(f"/v1/jobs/{job_id}/output{query}") as answer:
                    assert await answer.read() == b""
                    assert answer.headers["Cosched-Final"] == "1"

    async def test_that_is_away(self, service: Running) -> None:
        async with service.agent("n1"):
            await joined(service, "n1")
            job_id = await service.submit()
            await service.job_in(job_id, "running")
        await service.logged("agent disconnected", "n1")
        problem = await service.get(f"/v1/jobs/{job_id}/output", 503)
        assert "is on n1, which does not answer now" in problem["message"]

    async def test_that_breaks_off_says_so(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            await joined(service, "n1")
            job_id = await service.submit()
            await service.job_in(job_id, "running")
            agent.spool["stdout"] = b"x" * (2 * wire.MAX_CHUNK_BYTES)
            agent.answers = False
            reading = asyncio.create_task(_read(service, job_id))
            asked = await agent.heard(wire.ReadOutput)
            piece = agent.spool["stdout"][: asked.max_bytes]
            await agent.say(wire.OutputChunk(asked.request, piece, 2 * wire.MAX_CHUNK_BYTES, False))
            await agent.heard(wire.ReadOutput)
            await agent.connection.close()
            with pytest.raises(aiohttp.ClientPayloadError):
                await reading

    async def test_that_went_to_a_file(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            await joined(service, "n1")
            job_id = await service.submit(output="logs/../out.txt", directory="/tmp/")
            await service.job_in(job_id, "running")
            assert agent.heard_already(wire.Run)[0].output == "/tmp/out.txt"
            problem = await service.get(f"/v1/jobs/{job_id}/output", 409)
            assert problem["message"] == f"job {job_id}: its stdout goes to /tmp/out.txt on n1; read it there"


async def _read(service: Running, job_id: int) -> bytes:
    async with service.http.get(f"/v1/jobs/{job_id}/output") as answer:
        return await answer.read()


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
        call = ["curl", "-sS", "-m", "20", "-w", "\n%{http_code}", "--unix-socket", str(service.cluster.socket)]
        *options, path = arguments
        whole = [*as_nobody, *call, *options, f"http://localhost{path}"]
        loop = asyncio.get_running_loop()
        return loop.run_in_executor(
            None, lambda: subprocess.run(whole, capture_output=True, text=True, check=True).stdout
        )

    async def test_they_see_the_state_and_no_more(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            await joined(service, "n1")
            job_id = await service.submit(environment={"SECRET": "hush"}, name="mine")
            await service.job_in(job_id, "running")
            await agent.ends(job_id, wire.Exit(status=1), b"a secret\n")
            mine = await service.job_in(job_id, "failed")
            body, status = (await self.curl(service, f"/v1/jobs/{job_id}")).rsplit("\n", 1)
            assert status == "200"
            theirs = json.loads(body)
            assert (theirs["state"], theirs["user"]) == ("failed", ME)
            assert theirs["directory"] == ""
            assert theirs["failure"]["tail"] == []
            assert mine.failure is not None
            assert mine.failure.tail == ["a secret"]
            assert "hush" not in body
            assert "a secret" not in body

    @pytest.mark.parametrize("verb", ["cancel", "hold", "release"])
    async def test_they_change_nothing(self, service: Running, verb: str) -> None:
        async with service.agent("n1"):
            await joined(service, "n1")
            job_id = await service.submit(hold=True)
            body, status = (await self.curl(service, "-X", "POST", f"/v1/jobs/{job_id}/{verb}")).rsplit("\n", 1)
            assert status == "403"
            assert json.loads(body)["message"] == f"job {job_id} is {ME}'s; nobody may not {verb} it"
            assert (await service.job(job_id)).state == "held"

    async def test_they_read_no_output(self, service: Running) -> None:
        async with service.agent("n1"):
            await joined(service, "n1")
            job_id = await service.submit(hold=True)
            body, status = (await self.curl(service, f"/v1/jobs/{job_id}/output")).rsplit("\n", 1)
            assert status == "403"
            assert "may not read the output of it" in json.loads(body)["message"]

    async def test_their_own_jobs_are_theirs(self, service: Running) -> None:
        async with service.agent("n1"):
            await joined(service, "n1")
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


class TestNodes:
    async def test_drained_and_resumed(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            await agent.beat()
            await joined(service, "n1")
            job_id = await service.submit()
            await service.job_in(job_id, "running")
            shown = await service.post("/v1/nodes/n1/drain", {"reason": "new memory"})
            assert (shown["state"], shown["reason"], shown["jobs"]) == ("draining", "new memory", [job_id])
            waits = await service.submit()
            explained = await service.get(f"/v1/jobs/{waits}/explain")
            assert explained["state"] == "queued"
            await agent.ends(job_id, wire.Exit(status=0))
            await service.job_in(job_id, "completed")
            (shown, *_) = (await service.get("/v1/nodes"))["nodes"]
            assert shown["state"] == "drained"
            assert (await service.post("/v1/nodes/n1/resume"))["state"] == "up"
            await service.job_in(waits, "running")

    async def test_shown_with_what_they_report(self, service: Running) -> None:
        async with service.agent("n1", enforces={"memory": "yes", "cpu": "no cgroup"}) as agent:
            await joined(service, "n1")
            await agent.beat()
            await service.until(lambda: service.service.book.entry("n1").beat is not None, "a heartbeat")
            first, second, _ = (await service.get("/v1/nodes"))["nodes"]
            assert (first["name"], first["state"], first["presence"]) == ("n1", "up", "away")
            assert (first["procs"], first["memory_bytes"]) == (2, 2 << 30)
            assert first["usage"]["cpu_parallel"] == 0.5
            assert (first["limited_cpus"], first["armed"], first["presence_source"]) == (1.5, True, "tty")
            assert first["enforces"] == {"memory": "yes", "cpu": "no cgroup"}
            assert first["last_heard"].startswith("20")
            assert (second["state"], second["procs"], second["last_heard"]) == ("unknown", 0, None)

    async def test_that_are_not_there(self, service: Running) -> None:
        problem = await service.post("/v1/nodes/n4/drain", {}, 404)
        assert problem["message"].startswith("there is no node 'n4'; did you mean 'n")
        problem = await service.post("/v1/nodes/n2/drain", {}, 409)
        assert "n2 has not joined yet" in problem["message"]

    @pytest.mark.parametrize(
        ("body", "words"),
        [
            (b"{", "body: not JSON"),
            (b'{"why": "x"}', "drain: why: unknown key; expected one of reason"),
            (b'{"reason": "a\\nb"}', "at most 500 printable characters"),
            (b'{"reason": 5}', "drain: reason: found 5; expected str"),
        ],
    )
    async def test_a_bad_reason(self, service: Running, body: bytes, words: str) -> None:
        async with service.http.post("/v1/nodes/n1/drain", data=body) as answer:
            assert answer.status == 400
            assert words in (await answer.json())["message"]


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
            await joined(service, "n1")
            status, made = await self.ask(service, "user", "ada", "/v1/jobs", "POST")
            assert (status, made["user"]) == (201, "ada")
            status, problem = await self.ask(service, "user", "bob", f"/v1/jobs/{made['job_id']}/cancel", "POST")
            assert (status, problem["message"]) == (403, f"job {made['job_id']} is ada's; bob may not cancel it")

    async def test_a_node_is_no_user(self, service: Running) -> None:
        status, problem = await self.ask(service, "node", "n1", "/v1/jobs")
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


async def test_the_cluster(service: Running) -> None:
    found = await service.get("/v1/cluster")
    assert (found["name"], found["policy"], found["epoch"], found["accepting"]) == ("test", "easy", 1, True)
    assert (found["nodes"], found["procs"], found["queued"], found["running"]) == (0, 0, 0, 0)
    assert found["cluster_id"]
    assert (await service.get("/healthz")) == {"accepting": True}
