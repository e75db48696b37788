"""The page as it is served: who gets in, what is sent of jobs and nodes and what is not, live and after a break."""

import asyncio
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kit.page import entered, events
from kit.service import ME, Cluster, Running, running

from cosched.errors import Failed
from cosched.model.node import Presence
from cosched.wire import messages as wire
from cosched.wire.api import PAGE_COOKIE
from space_scheduler.service.page import assets, rows, streams, visits
from space_scheduler.service.page.visits import LINK_S


def job_of(frame: Any, job_id: int) -> Any:
    """A job's row in a frame, by names."""
    found = next((row for row in frame["jobs"] if row[0] == job_id), None)
    return found and dict(zip(rows.JobRow.__struct_fields__, found, strict=True))


def node_of(frame: Any, name: str) -> Any:
    found = next((row for row in frame["nodes"] if row[0] == name), None)
    return found and dict(zip(rows.NodeRow.__struct_fields__, found, strict=True))


async def test_a_link_sets_a_cookie_that_scripts_and_other_sites_do_not_get(service: Running) -> None:
    link = await service.post("/v1/page", status=201)
    assert link["life_s"] == LINK_S
    async with service.http.get(link["path"]) as answer:
        cookie = answer.cookies[PAGE_COOKIE]
        assert cookie["httponly"]
        assert cookie["samesite"] == "Strict"
        assert cookie["path"].startswith("/page/s/")
        assert not cookie["domain"]
        assert answer.headers["Cache-Control"] == "no-store"


async def test_the_page_and_its_files_are_served_with_a_strict_policy(service: Running) -> None:
    visit = await entered(service)
    async with service.http.get(visit.path, headers=visit.headers) as answer:
        page = await answer.text()
    assert answer.status == 200
    assert "script-src 'self'" in answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert "://" not in page, "nothing is loaded from elsewhere"
    for name in ("main.js", "page.css", "icon.svg"):
        assert f"../../static/{name}" in page
        async with service.http.get(f"/page/static/{name}") as answer:
            assert answer.status == 200
            assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_what_is_submitted_runs_and_ends_is_told_at_once(service: Running) -> None:
    visit = await entered(service)
    async with service.agent("n1") as agent, events(service, visit) as stream:
        assert await stream.next() == ("you", {"user": ME})
        _, whole = await stream.next("all")
        assert [row[0] for row in whole["nodes"]] == ["n1", "n2", "n3"]
        job_id = await service.submit(name="heat", time_limit_s=60)
        frame = await stream.until(lambda frame: (job_of(frame, job_id) or {}).get("state") == "running")
        row = job_of(frame, job_id)
        assert (row["name"], row["user"], row["nodes"], row["limit_ms"]) == ("heat", ME, ["n1"], 60_000)
        assert row["end_ms"] is None
        await agent.ends(job_id, wire.Exit(status=0))
        frame = await stream.until(lambda frame: (job_of(frame, job_id) or {}).get("end_ms"))
        assert job_of(frame, job_id)["state"] == "completed"
        assert job_of(frame, job_id)["start_ms"] == row["start_ms"]


async def test_the_queue_its_promises_and_what_is_held(service: Running) -> None:
    visit = await entered(service)
    async with service.agent("n1"), events(service, visit) as stream:
        running_id = await service.runs(tasks=2, time_limit_s=100)
        first, held = await service.submit(tasks=2), await service.submit(hold=True)
        seen: dict[int, Any] = {}

        def there(frame: Any) -> bool:
            seen.update({row[0]: dict(zip(rows.JobRow.__struct_fields__, row, strict=True)) for row in frame["jobs"]})
            return {running_id, first, held} <= set(seen) and seen[first]["promised_ms"] is not None

        frame = await stream.until(there)
        assert seen[first]["promised_ms"] >= seen[running_id]["start_ms"] + 100_000
        assert seen[held]["promised_ms"] is None
        assert frame["queue"] in (None, [first])


async def test_a_stream_goes_on_where_it_broke_off(service: Running) -> None:
    visit = await entered(service)
    async with events(service, visit) as stream:
        await stream.next("all")
        last = stream.last_id
        job_id = await service.submit(hold=True)
        await stream.until(lambda frame: job_of(frame, job_id))
    async with events(service, visit, Last_Event_ID=last) as stream:
        kind, frame = await stream.next("all", "some")
        assert kind == "some", "only what it has missed"
        assert job_of(frame, job_id)
    async with events(service, visit, Last_Event_ID="00000000-1") as stream:
        assert (await stream.next("all", "some"))[0] == "all"


async def test_ended_jobs_of_before_are_shown(service: Running) -> None:
    job_id = await service.submit(hold=True)
    await service.post(f"/v1/jobs/{job_id}/cancel")
    async with events(service, await entered(service)) as stream:
        _, whole = await stream.next("all")
        assert job_of(whole, job_id)["state"] == "cancelled"
        assert job_of(whole, job_id)["end_ms"] is not None


async def test_who_sits_where_is_not_told(service: Running) -> None:
    visit = await entered(service)
    async with service.agent("n1") as first, service.agent("n2") as second, service.agent("n3") as third:
        await first.beat(Presence.PRESENT)
        await second.beat(Presence.AWAY, limited_cpus=None)
        await third.beat(Presence.PRESENT, paused="gone to see the dentist")
        await service.until(lambda: service.service.book.entry("n3").drained, "paused")
        await service.beaten("n1", Presence.PRESENT)
        await service.beaten("n2", Presence.AWAY)
        async with events(service, visit) as stream:
            _, whole = await stream.next("all")
    said = [node_of(whole, name)["availability"] for name in ("n1", "n2", "n3")]
    assert said == ["limited", "free", "not available"]
    assert node_of(whole, "n3")["note"] == "paused: its owner has paused parallel work there"
    assert not [word for word in ("dentist", "present", "away", "tty") if word in str(whole["nodes"])]


async def test_a_guard_that_does_not_answer_is_told(service: Running) -> None:
    visit = await entered(service)
    async with service.agent("n1") as agent:
        await agent.beat(guard="the guard has not answered 'status' for 5 s")
        await service.until(lambda: service.service.book.entry("n1").drained, "drained")
        async with events(service, visit) as stream:
            _, whole = await stream.next("all")
    assert node_of(whole, "n1")["note"] == "guard: the guard has not answered 'status' for 5 s"


async def test_an_operators_word_is_told(service: Running) -> None:
    visit = await entered(service)
    async with service.agent("n1"):
        await service.post("/v1/nodes/n1/drain", {"reason": "a new disk"})
        async with events(service, visit) as stream:
            _, whole = await stream.next("all")
    row = node_of(whole, "n1")
    assert (row["state"], row["note"], row["availability"]) == ("drained", "a new disk", "not available")


async def test_a_story_is_the_apis(service: Running) -> None:
    visit = await entered(service)
    job_id = await service.submit(hold=True)
    async with service.http.get(f"{visit.path}jobs/{job_id}", headers=visit.headers) as answer:
        story = await answer.json()
        assert answer.headers["Content-Security-Policy"]
    assert story["job_id"] == job_id
    assert [step["state"] for step in story["history"]] == ["queued", "waiting"]
    async with service.http.get(f"{visit.path}jobs/999", headers=visit.headers) as answer:
        assert answer.status == 404
    async with service.http.get(f"{visit.path}set-aside", headers=visit.headers) as answer:
        assert answer.headers["Content-Security-Policy"]
        assert await answer.json() == await service.get("/v1/set-aside")


async def test_own_jobs_are_sent_wherever_they_stand(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MOST_JOBS", 2)
    monkeypatch.setattr(rows, "MOST_OWN", 3)
    ids = [await service.submit(hold=True) for _ in range(9)]
    async with events(service, await entered(service)) as stream:
        _, whole = await stream.next("all")
        assert [row[0] for row in whole["jobs"]] == ids[:2]
        assert whole["cluster"]["more_jobs"] == 7
        _, own = await stream.next("own")
        assert [row[0] for row in own] == ids[2:5]


async def test_changes_are_told_together(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "LOOK_S", 0.2)
    async with events(service, await entered(service)) as stream:
        await stream.next("all")
        before = service.service.streams.feed.number
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        last = 0
        for _ in range(40):
            last = await service.submit(hold=True)
            await asyncio.sleep(0.02)
        await stream.until(lambda frame: job_of(frame, last))
        frames = service.service.streams.feed.number - before
        assert frames <= (loop.time() - began_s) / streams.LOOK_S + 1


async def test_nobody_looks_where_nobody_looks_on(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_IDLE_S", 0.0)
    monkeypatch.setattr(streams, "STILL_THERE_S", 0.1)
    looked = service.service.streams
    visit = await entered(service)
    await service.submit(hold=True)
    assert not looked.ready
    async with events(service, visit) as stream:
        await stream.next("all")
        assert service.service.streams.ready
    await service.until(lambda: not looked.ready, "forgotten")
    assert looked.feed.number == 0
    async with events(service, visit) as stream:
        assert (await stream.next("all", "some"))[0] == "all"


async def test_streams_end_with_the_service(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster()) as run:
        visit = await entered(run)
        async with events(run, visit) as stream:
            await stream.next("all")
            stopped = asyncio.create_task(run.service.stop())
            await stream.ended()
            await stopped


async def test_a_stream_ends_with_its_visit(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "STILL_THERE_S", 0.1)
    async with events(service, await entered(service)) as stream:
        await stream.next("all")
        monkeypatch.setattr(visits, "MOST", 1)
        await entered(service)
        await stream.ended()


async def test_a_look_that_fails_is_logged_and_tried_again(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    visit = await entered(service)
    host = service.service.host
    view, tries = host.view, 0

    def fails() -> Any:
        nonlocal tries
        tries += 1
        if tries < 3:
            raise Failed("the state is away")
        return view()

    monkeypatch.setattr(host, "view", fails)
    async with events(service, visit) as stream:
        await stream.next("all")
    assert tries >= 3
    assert service.log.getvalue().count("the page could not be made") == 1


async def test_a_history_that_cannot_be_read_holds_up_nothing_else(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    visit = await entered(service)
    host = service.service.host
    history, readable, tries = host.history, False, 0

    async def fails(**given: Any) -> Any:
        nonlocal tries
        tries += 1
        if not readable:
            raise Failed("the disk is away")
        return await history(**given)

    monkeypatch.setattr(host, "history", fails)
    ended = await service.submit(hold=True)
    await service.post(f"/v1/jobs/{ended}/cancel")
    async with events(service, visit) as stream:
        _, whole = await stream.next("all")
        assert job_of(whole, ended) is None
        job_id = await service.submit(hold=True)
        await stream.until(lambda frame: job_of(frame, job_id))
        await service.until(lambda: tries >= 3, "tried again")
        readable = True
        frame = await stream.until(lambda frame: job_of(frame, ended))
        assert job_of(frame, ended)["state"] == "cancelled"
    assert service.log.getvalue().count("jobs that have ended could not be read") == 1


async def test_a_page_that_cannot_be_made_is_not_said_to_be_live(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "STILL_THERE_S", 0.05)
    looked, host = service.service.streams, service.service.host
    view = host.view
    async with events(service, await entered(service)) as stream:
        await stream.next("all")
        await stream.next("still")
        monkeypatch.setattr(host, "view", lambda: 1 / 0)
        await service.until(lambda: not looked.seeing, "seen to fail")
        while await stream.comment() != ":":  # what was on the way is read first
            pass
        assert [await stream.comment() for _ in range(3)] == [":"] * 3
        monkeypatch.setattr(host, "view", view)
        await stream.next("still")


async def test_own_jobs_are_told_once_to_each_connection(service: Running) -> None:
    """A browser that comes back may have rows of jobs that are gone: none is told, too."""
    visit = await entered(service)
    async with events(service, visit) as stream:
        assert await stream.next("own") == ("own", [])
        last = stream.last_id
    async with events(service, visit, Last_Event_ID=last) as stream:
        assert await stream.next("own") == ("own", [])


async def test_all_that_is_kept_is_forgotten(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "_IDLE_S", 0.0)
    monkeypatch.setattr(streams, "STILL_THERE_S", 0.1)
    looked = service.service.streams
    await service.submit(hold=True)
    async with events(service, await entered(service)) as stream:
        await stream.next("all")
        assert looked._rows._made
        assert looked._nodes[0]
    await service.until(lambda: not looked.ready, "forgotten")
    assert looked._rows._made == {}
    assert looked._nodes[0] == {}


def test_what_lies_beside_the_pages_files_is_not_served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Path(assets.__file__).with_name("static")
    shutil.copytree(folder, tmp_path / "static")
    (tmp_path / "static" / "main.js~").write_text("old")
    (tmp_path / "static" / "secret.html").write_text("no")
    monkeypatch.setattr(assets, "files", lambda package: tmp_path)
    assert set(assets.assets()) == {each.name for each in folder.iterdir() if each.suffix in assets._KINDS}
