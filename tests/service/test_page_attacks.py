"""The page against those who want more than they may: links, cookies, other sites, other users, floods, odd texts."""

import asyncio
import socket
from collections.abc import Callable
from itertools import product

import aiohttp
import pytest
from kit.page import entered, events
from kit.service import Cluster, Running, running
from kit.waiting import BOUND_S

from cosched.model.job import Job
from cosched.wire.api import PAGE_COOKIE, Submission
from space_scheduler.service.api.rates import Rates
from space_scheduler.service.page import page
from space_scheduler.service.page.streams import OF_ONE_USER

HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "\"'><svg/onload=alert(1)>",
    "שלום עולם",
    "x" * 128,
    "${7*7}{{7*7}}",
)


def over_tls(service: Running, user: str) -> aiohttp.ClientSession:
    """A session of another user's, by certificate; its host name is what the scheduler's certificate says."""
    secured = service.cluster.certificate("user", user)
    connector = aiohttp.TCPConnector(ssl=secured)
    return aiohttp.ClientSession(f"https://127.0.0.1:{service.service.port}", connector=connector)


async def test_a_link_that_was_used_says_so_to_people(service: Running) -> None:
    link = (await service.post("/v1/page", status=201))["path"]
    async with service.http.get(link) as answer:
        assert answer.status == 200
    async with service.http.get(link) as answer:
        assert answer.status == 403
        assert answer.content_type == "text/html"
        assert "cosched page" in await answer.text()
        assert not answer.cookies


async def test_another_user_has_nothing_of_a_link_nor_of_a_cookie(service: Running) -> None:
    visit = await entered(service)
    link = (await service.post("/v1/page", status=201))["path"]
    async with over_tls(service, "eve") as eve:
        async with eve.get(link, server_hostname="scheduler") as answer:
            assert answer.status == 403
        for path in ("", "events", "jobs/1"):
            headers = visit.headers
            async with eve.get(visit.path + path, headers=headers, server_hostname="scheduler") as answer:
                assert answer.status == 403, path
    async with service.http.get(link) as answer:
        assert answer.status == 403, "it has become known"


async def test_over_tls_nobody_unknown_gets_a_word_of_it(service: Running) -> None:
    visit = await entered(service)
    secured = service.cluster.certificate("user", "ada")
    secured = type(secured)(secured.protocol)
    secured.load_verify_locations(service.cluster.identity / "ca.pem")
    address = f"https://127.0.0.1:{service.service.port}"
    async with aiohttp.ClientSession(address, connector=aiohttp.TCPConnector(ssl=secured)) as stranger:
        for path in (visit.path, "/page/static/main.js"):
            try:
                async with stranger.get(path, headers=visit.headers, server_hostname="scheduler") as answer:
                    assert answer.status == 401
            except aiohttp.ClientError:
                pass  # refused in the handshake: tokens are not taken


async def test_forged_cookies(service: Running) -> None:
    visit = await entered(service)
    for value in ("=", "=x", f"={'A' * 43}", "=%00; a=b", ""):
        cookie = f"{PAGE_COOKIE}{value}" if value else "é=ü"
        for path, headers in product(("", "events", "jobs/1"), ({"Cookie": cookie}, {"Cookie": ""})):
            async with service.http.get(visit.path + path, headers=headers) as answer:
                assert answer.status == 403, (path, headers)


OTHERS = (
    {"Origin": "https://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://["},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
)


async def test_other_sites_are_refused_even_with_the_cookie(service: Running) -> None:
    visit = await entered(service)
    job_id = await service.submit(hold=True)
    for path, headers in product(("events", f"jobs/{job_id}"), OTHERS):
        async with service.http.get(visit.path + path, headers=visit.headers | headers) as answer:
            assert answer.status == 403, (path, headers)
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]


async def test_the_page_changes_nothing(service: Running) -> None:
    visit = await entered(service)
    methods = ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD")
    for method, path in product(methods, (f"{visit.path}events", "/page/enter/x")):
        async with service.http.request(method, path, headers=visit.headers) as answer:
            assert answer.status == 405, (method, path)


async def test_no_other_file_is_served(service: Running) -> None:
    for name in ("../page.py", "..%2fpage.py", "%2e%2e/page.py", "static", ".", "main.js%00", "nothing.js"):
        reader, writer = await asyncio.open_unix_connection(str(service.cluster.socket))
        writer.write(f"GET /page/static/{name} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        async with asyncio.timeout(BOUND_S):
            assert (await reader.read()).startswith(b"HTTP/1.1 40"), name
        writer.close()


async def test_hostile_names_are_data(service: Running) -> None:
    ids = {await service.submit(hold=True, name=name): name for name in HOSTILE}
    async with events(service, await entered(service)) as stream:
        _, whole = await stream.next("all")
    assert {row[0]: row[1] for row in whole["jobs"]} == ids


async def test_direction_marks_are_no_names(service: Running) -> None:
    for name in ("a\u202eb", "a\u2066b", "a\nb", "a\x00b"):
        made = {"script": "#!/bin/sh\n", "directory": "/tmp", "name": name}
        assert "printable" in (await service.post("/v1/jobs", made, 400))["message"]


@pytest.mark.slow
async def test_a_thousand_streams_are_a_few(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page, "Rates", lambda per_minute: Rates(per_minute, lambda: 0.0))
    connector = aiohttp.UnixConnector(str(cluster.socket), limit=0)
    refused, opened = 0, []
    async with running(cluster) as service:
        visit = await entered(service)
        looked = service.service.streams
        async with aiohttp.ClientSession("http://localhost", connector=connector) as flood:
            for _ in range(1000):
                answer = await flood.get(f"{visit.path}events", headers=visit.headers)
                refused += answer.status == 429
                assert answer.status in (200, 429)
                opened.append(answer)
                assert len(looked) <= OF_ONE_USER
            assert int(opened[-1].headers["Retry-After"]) >= 1
            for answer in opened:
                answer.close()
        assert refused == 1000 - 59, "sixty a minute, and the first was for the link"
        await service.until(lambda: len(looked) == 0, "closed")
        async with service.http.get("/healthz") as answer:
            assert answer.status == 200


async def test_the_newest_tab_is_the_one_that_lives(service: Running) -> None:
    visit = await entered(service)
    async with events(service, visit) as first:
        await first.next("all")
        others = [events(service, visit) for _ in range(OF_ONE_USER)]
        streams = [await each.__aenter__() for each in others]
        assert (await first.next("replaced"))[1] == {}
        await first.ended()
        for each in streams:
            await each.next("all")
        job_id = await service.submit(hold=True)
        await streams[-1].until(lambda frame: any(row[0] == job_id for row in frame["jobs"]))
        for one in others:
            await one.__aexit__(None, None, None)


async def test_who_does_not_read_is_cut_off_and_counted(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(slow_reader="400ms", max_queued=0, max_queued_per_user=0)
    async with running(cluster) as service:
        host, script = service.service.host, Submission(script="#!/bin/sh\n", directory="/tmp", name="n" * 128)
        for _ in range(3):
            await asyncio.gather(*(host.submit(Job(0, 1, 10**6, 0), script, "ada", hold=True) for _ in range(500)))
        visit = await entered(service)
        with socket.socket(socket.AF_UNIX) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(str(cluster.socket))
            head = f"GET {visit.path}events HTTP/1.1\r\nHost: localhost\r\nCookie: {visit.headers['Cookie']}\r\n\r\n"
            slow.sendall(head.encode())
            await service.until(lambda: service.service.readers.cut == 1, "cut off")
            await service.until(lambda: len(service.service.streams) == 0, "closed")


async def test_long_requests_are_refused(service: Running) -> None:
    visit = await entered(service)
    async with service.http.get(f"{visit.path}events?{'x' * 9000}", headers=visit.headers) as answer:
        assert answer.status == 400
    async with service.http.get(f"{visit.path}events", headers=visit.headers | {"X": "x" * 9000}) as answer:
        assert answer.status == 400
