"""The HTTP API over a real Unix socket and real TLS: what is told, what is refused and with which words."""

import asyncio
from itertools import product
from typing import Any

from kit.service import ME, Cluster, Running, running

from cosched.wire import messages as wire

GOOD: dict[str, Any] = {"script": "#!/bin/sh\ntrue\n", "directory": "/tmp"}


async def test_no_such_job(service: Running) -> None:
    for number, path in product(("99", "x", "0", "-1", "9" * 30), ("", "/explain", "/wait", "/output")):
        problem = await service.get(f"/v1/jobs/{number}{path}", 404 if number == "99" else 400)
        words = f"job: found '{number}'; expected a job's number, such as 12"
        assert problem["message"] == ("there is no job 99" if number == "99" else words)


async def test_no_such_address_or_method(service: Running) -> None:
    problem = await service.get("/v2/jobs", 404)
    assert problem["message"] == "there is nothing at this address"
    async with service.http.delete("/v1/jobs") as answer:
        assert answer.status == 405
        assert answer.headers["Allow"] == "GET,HEAD,POST"
        assert (await answer.json())["found"] == "DELETE"


QUERIES = [
    ("jobs?state=runing", "state: found 'runing'; expected one of waiting, queued, starting, running, ending; "
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
]  # fmt: skip


async def test_a_bad_query(service: Running) -> None:
    for query, words in QUERIES:
        assert words in (await service.get(f"/v1/{query}", 400))["message"], query


async def test_the_life_of_a_held_job(service: Running) -> None:
    async with service.agent("n1", answers=False):
        job_id = await service.submit(hold=True, name="kept")
        assert (await service.job(job_id)).state == "waiting"
        refused = await service.post(f"/v1/jobs/{job_id}/hold", status=409)
        is_now = f"job {job_id} is waiting (held by its user or an operator)"
        assert f"{is_now}: it cannot be held now; its story: queued 20" in refused["message"]
        explained = await service.get(f"/v1/jobs/{job_id}/explain")
        assert explained["reason"]["why"] == "held"
        released = await service.post(f"/v1/jobs/{job_id}/release")
        assert released["state"] in ("queued", "starting")  # the next pass may be quicker than the answer
        await service.job_in(job_id, "starting")
        problem = await service.post(f"/v1/jobs/{job_id}/hold", status=409)
        assert "is starting: it cannot be held now" in problem["message"]
        explained = await service.get(f"/v1/jobs/{job_id}/explain")
        assert (explained["state"], explained["reason"]["why"]) == ("starting", "fits")


async def test_what_has_ended_cannot_be_cancelled(service: Running) -> None:
    async with service.agent("n1"):
        job_id = await service.submit(hold=True)
        assert (await service.post(f"/v1/jobs/{job_id}/cancel"))["state"] == "cancelled"
        problem = await service.post(f"/v1/jobs/{job_id}/cancel", status=409)
        assert f"job {job_id} is cancelled: it cannot be cancelled any more; its story: queued 20" in problem["message"]
        assert ", cancelled 20" in problem["message"]
        assert [job["job_id"] for job in (await service.get("/v1/history"))["jobs"]] == [job_id]
        assert (await service.get(f"/v1/history?before={job_id}"))["jobs"] == []


async def test_lists_by_user_and_state_in_the_queues_order(service: Running) -> None:
    async with service.agent("n1"):
        runs = await service.runs(tasks=2)
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
        assert waits["reason"]["why"] == "not_enough_free"
        assert waits["reason"]["text"].startswith("fewer processors are free than the job needs (procs=1, free_procs=0")
        assert [job["reason"]["why"] for job in jobs[1:3]] == ["not_enough_free", "not_enough_free"]
        ahead = await service.get(f"/v1/jobs/{first}/explain")
        assert f"promised={ahead['promised_start']}" in ahead["reason"]["text"]
        cluster = await service.get("/v1/cluster")
        assert (cluster["queued"], cluster["running"], cluster["free_procs"]) == (3, 1, 0)


class TestWaiting:
    async def test_the_answer_comes_with_the_end(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            job_id = await service.runs()
            waiting = asyncio.create_task(service.get(f"/v1/jobs/{job_id}/wait?timeout_s=300"))
            await agent.ends(job_id, wire.Exit(status=0))
            assert (await waiting)["state"] == "completed"
            assert (await service.get(f"/v1/jobs/{job_id}/wait"))["state"] == "completed"

    async def test_or_after_so_long(self, service: Running) -> None:
        async with service.agent("n1"):
            job_id = await service.submit(hold=True)
            assert (await service.get(f"/v1/jobs/{job_id}/wait?timeout_s=0.01"))["state"] == "waiting"

    async def test_or_when_the_service_ends(self, cluster: Cluster) -> None:
        async with running(cluster) as service, service.agent("n1"):
            job_id = await service.submit(hold=True)
            waiting = asyncio.create_task(service.get(f"/v1/jobs/{job_id}/wait?timeout_s=300"))
            await service.until(lambda: bool(service.service.jobs._steps), "waiting")
            await service.service.stop()
            assert (await waiting)["state"] == "waiting"


class TestPolicy:
    async def test_another_one_decides_from_now_on(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            await agent.beat()
            await service.runs(tasks=2)
            waits = await service.submit(tasks=2)
            while not (await service.get(f"/v1/jobs/{waits}/explain"))["promised_start"]:  # EASY's, to the head
                await asyncio.sleep(0.01)
            chosen = await service.post("/v1/policy", {"policy": "fcfs"})
            assert chosen == {"policy": "fcfs", "order": None, "before": "easy", "settings": "easy"}
            assert (await service.get("/v1/cluster"))["policy"] == "fcfs"
            assert (await service.get(f"/v1/jobs/{waits}/explain"))["promised_start"] is None
            chosen = await service.post("/v1/policy", {"policy": "easy", "order": "sjf"})
            assert (chosen["before"], chosen["order"]) == ("fcfs", "sjf")
            while not (await service.get(f"/v1/jobs/{waits}/explain"))["promised_start"]:
                await asyncio.sleep(0.01)
        assert '"policy chosen"' in service.log.getvalue()

    async def test_policy_that_cannot_be_switched_to_is_refused(self, service: Running) -> None:
        other_limits = "agents keep other limits then; write policy in cluster.yaml"
        asked: list[tuple[dict[str, object], int, str]] = [
            ({"policy": "esay"}, 400, "easy"),
            ({"policy": "easy", "order": "fsfc"}, 400, "fcfs"),
            ({"policy": "os:system"}, 400, "modules are for cluster.yaml"),
            ({"policy": "3dbf-light"}, 409, "has jobs share nodes"),
            ({"policy": "fjt1+bfm"}, 409, "fjt1+bfm changes the shapes of jobs, and easy does not"),
            ({"policy": "equipartition(waterfill)"}, 409, other_limits),
            ({}, 400, "policy"),
            ({"policy": 5}, 400, "expected str"),
            ({"policy": "easy", "when": "now"}, 400, "unknown key"),
        ]
        for body, status, words in asked:
            assert words in str(await service.post("/v1/policy", body, status)), body
        assert (await service.get("/v1/cluster"))["policy"] == "easy"


class TestNodes:
    async def test_drained_and_resumed(self, service: Running) -> None:
        async with service.agent("n1") as agent:
            await agent.beat()
            job_id = await service.runs()
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
            await agent.beat()
            await service.beaten("n1")
            first, second, _ = (await service.get("/v1/nodes"))["nodes"]
            assert (first["name"], first["state"], first["presence"]) == ("n1", "up", "away")
            assert (first["procs"], first["memory_bytes"]) == (2, 2 << 30)
            assert first["usage"]["cpu_parallel"] == 0.5
            assert (first["limited_cpus"], first["armed"], first["presence_source"]) == (1.5, True, "tty")
            assert first["enforces"] == {"memory": "yes", "cpu": "no cgroup"}
            assert first["last_heard"].startswith("20")
            assert (second["state"], second["procs"], second["last_heard"]) == ("unknown", 0, None)

    async def test_belong_to_clusters_and_may_change_them(self, service: Running) -> None:
        own = service.service.config.name
        async with service.agent("n1", cluster="lab-a"), service.agent("n2", cluster=own):
            assert [node["cluster"] for node in (await service.get("/v1/nodes"))["nodes"]] == ["lab-a", own, own]
            sizes = [service.service.book.entry(name).size for name in ("n1", "n2")]
            assert [size.cluster for size in sizes if size is not None] == ["lab-a", ""]
        async with service.agent("n1", cluster="lab-b"):
            await service.until(
                lambda: (size := service.service.book.entry("n1").size) is not None and size.cluster == "lab-b", "moved"
            )
            (moved, *_) = (await service.get("/v1/nodes"))["nodes"]
            assert (moved["cluster"], moved["state"]) == ("lab-b", "up")

    async def test_that_are_not_there(self, service: Running) -> None:
        problem = await service.post("/v1/nodes/n4/drain", {}, 404)
        assert problem["message"].startswith("there is no node 'n4'; did you mean 'n")
        problem = await service.post("/v1/nodes/n2/drain", {}, 409)
        assert "n2 has not joined yet" in problem["message"]

    async def test_a_bad_reason(self, service: Running) -> None:
        for body, words in (
            (b"{", "body: not JSON"),
            (b'{"why": "x"}', "drain: why: unknown key; expected one of reason"),
            (b'{"reason": "a\\nb"}', "at most 500 printable characters"),
            (b'{"reason": 5}', "drain: reason: found 5; expected str"),
        ):
            async with service.http.post("/v1/nodes/n1/drain", data=body) as answer:
                assert answer.status == 400
                assert words in (await answer.json())["message"]


async def test_the_cluster(service: Running) -> None:
    found = await service.get("/v1/cluster")
    assert (found["name"], found["policy"], found["epoch"], found["accepting"]) == ("test", "easy", 1, True)
    assert (found["nodes"], found["procs"], found["queued"], found["running"]) == (0, 0, 0, 0)
    assert found["cluster_id"]
    assert (await service.get("/healthz")) == {"accepting": True}
