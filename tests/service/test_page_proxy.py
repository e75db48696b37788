"""``cosched page``: what this machine's browsers reach through it, and what nobody does."""

import asyncio
import os
import re
import signal
import socket
import socketserver
import subprocess
import sys
import time
import webbrowser
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from click.testing import CliRunner
from kit.floods import STRANGERS, strangers
from kit.page import Events, entered
from kit.service import Cluster, Running, running
from kit.waiting import BOUND_S

from cosched.apps.cli.lab import up
from cosched.client import page
from cosched.client.page import PageProxy, in_browser
from cosched.client.transport import Transport
from cosched.config.cluster import Listen
from cosched.errors import BadInput, Failed
from cosched.linux.peers import TcpPeers


@pytest.fixture(autouse=True)
def _ends_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy that is closed notices it within 10 ms instead of half a second."""
    monkeypatch.setattr(socketserver.BaseServer.serve_forever, "__defaults__", (0.01,))


@pytest_asyncio.fixture
async def proxy(service: Running) -> AsyncIterator[PageProxy]:
    """A proxy to the service, by its Unix socket."""
    with PageProxy(Transport(str(service.cluster.socket))) as opened:
        yield opened


@pytest_asyncio.fixture
async def browser(proxy: PageProxy) -> AsyncIterator[aiohttp.ClientSession]:
    """What asks it."""
    async with aiohttp.ClientSession(f"http://127.0.0.1:{proxy.port}") as session:
        yield session


MAIN = b"GET /page/static/main.js HTTP/1.1\r\nHost: localhost\r\n\r\n"


async def asked(proxy: PageProxy, request: bytes) -> bytes:
    """What is answered to these bytes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(request)
        async with asyncio.timeout(BOUND_S):
            return await reader.read()
    except ConnectionError:  # closed at once
        return b""
    finally:
        writer.close()


async def test_the_page_comes_through_with_its_headers_and_live(
    service: Running, browser: aiohttp.ClientSession
) -> None:
    visit = await entered(service)
    async with browser.get(visit.path, headers=visit.headers) as answer:
        assert answer.status == 200
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert (await answer.text()).startswith("<!doctype html>")
    async with browser.get(f"{visit.path}events", headers=visit.headers) as answer:
        stream = Events(answer)
        await stream.next("all")
        job_id = await service.submit(hold=True)
        await stream.until(lambda frame: any(row[0] == job_id for row in frame["jobs"]))


async def test_a_port_of_this_machine_is_not_enough(browser: aiohttp.ClientSession, service: Running) -> None:
    visit = await entered(service)
    for path in ("", "events", "jobs/1"):
        async with browser.get(visit.path + path) as answer:
            assert answer.status == 403


ELSEWHERE = (
    "/v1/jobs", "/metrics", "/", "/pages/x", "/page", "/page/../v1/jobs", "/page/s/../../v1/jobs",
    "/page/%2e%2e/v1/jobs", "/page//v1", "//v1/jobs", "http://localhost/v1/jobs",
    "http://localhost/page/static/main.js", "*", "/page/x?y", "/page/x#y", "/page/x\x00", "/page/\xe9", "/page/x;y",
    "/page/" + "x" * 2000,
)  # fmt: skip
METHODS = ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "CONNECT", "get")
HOSTS = ("evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[", "0.0.0.0")


async def test_only_get_of_the_page_by_a_local_name_is_passed_on(proxy: PageProxy) -> None:
    requests = [(f"GET {target} HTTP/1.1\r\nHost: 127.0.0.1:{proxy.port}", "40[04]") for target in ELSEWHERE]
    requests += [(f"{each} /page/static/main.js HTTP/1.1\r\nHost: localhost", "501") for each in METHODS]
    requests += [(f"GET /page/static/main.js HTTP/1.1\r\nHost: {host}", "403") for host in HOSTS]
    for head, status in requests:
        body = "Content-Length: 2\r\n\r\n{}" if status == "501" else "\r\n"
        answer = await asked(proxy, f"{head}\r\n{body}".encode("latin-1"))
        assert re.match(rf"HTTP/1.0 {status} ".encode(), answer), head


async def passed_on(folder: Path, *fields: str) -> str:
    """The head that a service gets of a request with these fields."""
    heads: list[str] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        writer.close()

    path = folder / "listener.sock"
    async with await asyncio.start_unix_server(listen, path):
        with PageProxy(Transport(str(path))) as other:
            head = "\r\n".join(("GET /page/static/main.js HTTP/1.1", "Host: localhost", *fields))
            answered = await asked(other, f"{head}\r\n\r\n".encode())
    path.unlink()
    assert answered.endswith(b"\r\n\r\nok")
    (found,) = heads
    return found


async def test_an_authorization_of_the_browsers_is_not_passed_on(service: Running) -> None:
    given = ("Authorization: Bearer x", "X-Forwarded-For: 1.2.3.4", "Transfer-Encoding: chunked")
    head = await passed_on(service.cluster.path, *given)
    assert not [word for word in ("Authorization", "Forwarded", "chunked") if word in head]


@pytest.mark.parametrize(
    ("given", "passed"),
    [
        ("_xsrf=1; cosched_page=mine; username-127-0-0-1-8888=x; cosched_page=planted", "cosched_page=mine"),
        (f"a={'x' * 4000}; cosched_page=mine", "cosched_page=mine"),
        ("_xsrf=1; not_cosched_page=x", ""),
    ],
    ids=["others", "long", "none"],
)
async def test_cookies_of_other_services_on_this_machine_are_not_passed_on(
    service: Running, given: str, passed: str
) -> None:
    """A browser sends all that it has for 127.0.0.1, whatever the port; of the longest path first: the visit's."""
    head = await passed_on(service.cluster.path, f"Cookie: {given}")
    assert [line for line in head.split("\r\n") if line.lower().startswith("cookie")] == [
        f"Cookie: {each}" for each in [passed] if each
    ]


async def test_a_planted_cookie_locks_nobody_out(service: Running, browser: aiohttp.ClientSession) -> None:
    visit = await entered(service)
    headers = {"Cookie": f"{visit.headers['Cookie']}; cosched_page=planted; big={'x' * 4000}"}
    async with browser.get(visit.path, headers=headers) as answer:
        assert answer.status == 200, await answer.text()


async def test_what_is_wrong_here_is_answered_and_said_once(
    make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = make_cluster()
    cluster.certificate("user", "ada")
    monkeypatch.setenv("COSCHED_IDENTITY", str(cluster.path / "user-ada"))
    said: list[str] = []
    with PageProxy(Transport("https://127.0.0.1:1"), say=said.append) as other:
        (cluster.path / "user-ada" / "user.key").unlink()
        for _ in range(2):
            answered = await asked(other, b"GET /page/static/main.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answered.startswith(b"HTTP/1.0 502 ")
            assert b"user.key" in answered
    assert len(said) == 1
    assert "user.key" in said[0]


async def test_a_fault_of_the_proxys_own_is_said(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []

    def fails(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr(page._Handler, "_pass_back", fails)
    with PageProxy(Transport(str(service.cluster.socket)), say=said.append) as other:
        await asked(other, b"GET /page/static/main.js HTTP/1.1\r\nHost: localhost\r\n\r\n")

        async def heard() -> None:
            while not said:
                await asyncio.sleep(0.01)

        await asyncio.wait_for(heard(), BOUND_S)
    assert said == ["The page cannot be passed on: RuntimeError: unforeseen"]


async def test_long_heads_are_refused(proxy: PageProxy) -> None:
    line = await asked(proxy, b"GET /page/" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n")
    assert line.startswith(b"HTTP/1.0 414 ")
    fields = b"".join(b"X%d: y\r\n" % number for number in range(200))
    head = await asked(proxy, b"GET /page/static/main.js HTTP/1.1\r\n" + fields + b"\r\n")
    assert head.startswith(b"HTTP/1.0 431 ")


def half_open(proxy: PageProxy, count: int) -> list[socket.socket]:
    """Connections that send nothing."""
    return [socket.create_connection(("127.0.0.1", proxy.port)) for _ in range(count)]


async def test_half_open_connections_of_its_own_user_do_not_fill_the_page(proxy: PageProxy) -> None:
    idle = half_open(proxy, 70)
    assert (await asked(proxy, MAIN)).startswith(b"HTTP/1.0 200 ")
    for each in idle:
        each.close()


async def test_half_open_connections_of_other_users_do_not_fill_the_page(proxy: PageProxy) -> None:
    reading, writing = os.pipe()
    held: list[socket.socket] = []

    def work() -> None:
        held.extend(half_open(proxy, 70))
        os.write(writing, b"x")
        time.sleep(BOUND_S)

    with os.fdopen(reading, "rb", buffering=0) as opened, os.fdopen(writing, "wb"), strangers(work):
        for _ in STRANGERS:
            assert await asyncio.to_thread(opened.read, 1) == b"x"
        assert (await asked(proxy, MAIN)).startswith(b"HTTP/1.0 200 ")


async def test_connections_of_other_users_at_full_speed_do_not_stop_the_page(proxy: PageProxy) -> None:
    def work() -> None:
        half_open(proxy, 1)[0].close()

    with strangers(work):
        for _ in range(20):
            assert (await asked(proxy, MAIN)).startswith(b"HTTP/1.0 200 ")


async def test_other_users_are_refused_before_they_take_a_place(service: Running) -> None:
    stranger = STRANGERS[0]
    said: list[str] = []
    with PageProxy(Transport(str(service.cluster.socket)), say=said.append) as proxy:
        for request in (MAIN, b""):
            for _ in range(2):
                answered = await asyncio.to_thread(asked_as, stranger, proxy.port, request)
                assert answered.startswith(b"HTTP/1.0 403 ")
                assert f"is of uid {os.geteuid()}, and yours is {stranger}:".encode() in answered
        assert len(proxy._server._places) == 0
    assert said == [f"uid {stranger} has tried to open this page: other users of this machine are refused."]


def asked_as(uid: int, port: int, request: bytes) -> bytes:
    """The first bytes that are answered to another user's process."""
    reading, writing = os.pipe()

    def work() -> None:
        with socket.create_connection(("127.0.0.1", port), BOUND_S) as asking:
            asking.send(request)
            os.write(writing, asking.recv(512))
        time.sleep(BOUND_S)

    with os.fdopen(reading, "rb", buffering=0) as answer, os.fdopen(writing, "wb"), strangers(work, [uid]):
        return answer.read(512)


@pytest.mark.parametrize(("given", "uid", "status"), [("61001", 61001, 200), ("61002", 61001, 403), ("-1", 61001, 403)])
async def test_page_under_sudo_admits_its_caller(
    service: Running, monkeypatch: pytest.MonkeyPatch, given: str, uid: int, status: int
) -> None:
    monkeypatch.setenv("SUDO_UID", given)
    with PageProxy(Transport(str(service.cluster.socket))) as proxy:
        answered = await asyncio.to_thread(asked_as, uid, proxy.port, MAIN)
        assert answered.startswith(b"HTTP/1.0 %d " % status)


async def test_peer_whose_uid_cannot_be_told_is_refused(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TcpPeers, "uid", lambda self, connection: None)
    with PageProxy(Transport(str(service.cluster.socket))) as proxy:
        assert (await asked(proxy, MAIN)).startswith(b"HTTP/1.0 403 ")


async def test_connections_in_use_are_bounded_and_not_evicted(
    service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "_MOST_CONNECTIONS", 3)
    visit = await entered(service)
    with PageProxy(Transport(str(service.cluster.socket))) as few:
        async with AsyncExitStack() as open_:
            session = await open_.enter_async_context(aiohttp.ClientSession(f"http://127.0.0.1:{few.port}"))
            streams = [
                Events(await open_.enter_async_context(session.get(f"{visit.path}events", headers=visit.headers)))
                for _ in range(3)
            ]
            for each in streams:
                await each.next("all")
            assert (await asked(few, MAIN)).startswith(b"HTTP/1.0 503 ")
            job_id = await service.submit(hold=True)
            for each in streams:
                await each.until(lambda frame: any(row[0] == job_id for row in frame["jobs"]))


async def test_silent_connection_is_closed_after_its_timeout(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page._Handler, "timeout", 0.3)
    with PageProxy(Transport(str(service.cluster.socket))) as few:
        (idle,) = half_open(few, 1)
        idle.settimeout(BOUND_S)
        assert await asyncio.to_thread(idle.recv, 1) == b""
        idle.close()


async def test_a_service_that_is_gone_is_told(proxy: PageProxy, service: Running) -> None:
    await service.service.stop()
    answered = await asked(proxy, b"GET /page/static/main.js HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert answered.startswith(b"HTTP/1.0 502 ")
    assert b"no scheduler answers" in answered


async def test_a_port_that_is_taken_is_told(proxy: PageProxy, service: Running) -> None:
    with pytest.raises(Failed, match=f"port {proxy.port}"):
        PageProxy(Transport(str(service.cluster.socket)), proxy.port)


@pytest.mark.parametrize("way", ["certificate", "token"])
async def test_over_tls(make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    cluster = make_cluster()
    listen = Listen(str(cluster.socket), "127.0.0.1", 0, tokens=way == "token")
    cluster.config = type(cluster.config)(**{**_fields(cluster), "listen": listen})
    async with running(cluster) as service:
        monkeypatch.setenv("COSCHED_IDENTITY", str(cluster.path / "user-ada"))
        cluster.certificate("user", "ada")
        if way == "token":
            made = await service.post("/v1/tokens", {"life_s": 60}, 201)
            home = cluster.path / "user-ada"
            (home / "user.pem").unlink()
            (home / "token").write_text(made["words"])
            (home / "token").chmod(0o600)
        transport = Transport(f"https://127.0.0.1:{service.service.port}")
        with PageProxy(transport) as proxy:
            made = await asyncio.to_thread(transport.request, "POST", "/v1/page", b"")
            assert made.status == 201, made.body
            link = re.search(rb'"(/page/enter/[^"]+)"', made.body)
            assert link
            answered = await asked(proxy, b"GET " + link[1] + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert answered.startswith(b"HTTP/1.0 200 ")
            assert b"HttpOnly" in answered
        transport.close()


def _fields(cluster: Cluster) -> dict[str, Any]:
    return {name: getattr(cluster.config, name) for name in cluster.config.__struct_fields__}


def test_the_browser_is_opened_by_a_file_of_its_users_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    opened: list[str] = []

    def opens(url: str) -> bool:
        opened.append(url)
        return True

    monkeypatch.setattr(webbrowser, "open", opens)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.delenv("DISPLAY", raising=False)
    with in_browser("http://127.0.0.1:1/page/enter/secret") as is_open:
        assert not is_open
    monkeypatch.setenv("DISPLAY", ":0")
    with in_browser("http://127.0.0.1:1/page/enter/secret") as is_open:
        assert is_open
        (url,) = opened
        file = Path(url.removeprefix("file://"))
        assert "secret" not in url
        assert "http://127.0.0.1:1/page/enter/secret" in file.read_text()
        assert file.parent.stat().st_mode & 0o077 == 0
    assert not file.exists()


def test_a_page_and_json_exclude_each_other() -> None:
    ended = CliRunner().invoke(up, ["--page", "--json"])
    assert isinstance(ended.exception, BadInput)
    assert "--page" in str(ended.exception)


async def test_the_command_prints_a_link_that_opens_and_ends_with_ctrl_c(service: Running) -> None:
    argv = [sys.executable, "-m", "cosched.apps.cli.main", "page", "--server", str(service.cluster.socket)]
    environment = {name: value for name, value in os.environ.items() if name not in ("DISPLAY", "WAYLAND_DISPLAY")}
    process = await asyncio.create_subprocess_exec(
        *argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment | {"PYTHONUNBUFFERED": "1"}
    )
    try:
        assert process.stdout
        async with asyncio.timeout(BOUND_S):
            told = (await process.stdout.readline()).decode()
            assert "Ctrl-C" in (await process.stdout.readline()).decode()
        link = re.fullmatch(r"The page, opened once and within 2 min: (http://127\.0\.0\.1:\d+/page/enter/\S+)\n", told)
        assert link, told
        async with aiohttp.ClientSession() as session, session.get(link[1]) as answer:
            assert answer.status == 200
            assert answer.cookies
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(BOUND_S):
            assert await process.wait() == 130
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
