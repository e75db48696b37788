"""Public logs by name: found in the folders in their order, and fetched from a server that does and does not behave."""

import contextlib
import gzip
import hashlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cosched.errors import BadInput
from cosched.workload import catalogue, swf
from cosched.workload.catalogue import LOGS, PublicLog, Unavailable, cache_folder, digest, entry, fetch, find

KTH = "KTH-SP2-1996-2.1-cln"
CONTENT = gzip.compress(b"1 0 5 60 4 -1 -1 4 90 -1 1 7 1 -1 1 -1 -1 -1\n", mtime=0)
Answer = Callable[[BaseHTTPRequestHandler], None]


@pytest.fixture(autouse=True)
def no_real_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COSCHED_TRACES", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "*")
    monkeypatch.setattr(catalogue, "__file__", str(tmp_path / "checkout" / "cosched" / "workload" / "catalogue.py"))


def put(folder: Path, name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(CONTENT)
    return folder / name


# --- by name ------------------------------------------------------------------------------------------------------


def test_every_log_of_the_catalogue_has_its_address_and_provider() -> None:
    assert len(LOGS) == 6
    for name, log in LOGS.items():
        assert log.name == name
        assert log.url.startswith("https://www.cs.huji.ac.il/labs/parallel/workload/l_")
        assert log.url.endswith(f"/{name}.swf.gz")
        assert len(bytes.fromhex(log.sha256)) == 32
        assert log.provider


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.log(name)) for name in LOGS])
def test_a_checksum_is_that_of_the_log(name: str, log_path: Path) -> None:
    if log_path.suffix != ".gz":
        pytest.skip("the log is there, but not as the archive compressed it")
    assert digest(log_path) == LOGS[name].sha256
    assert log_path.stat().st_size == LOGS[name].size


def test_a_name_may_have_its_ending_and_a_wrong_one_is_told_the_nearest() -> None:
    assert entry(KTH) is entry(f"{KTH}.swf") is entry(f"{KTH}.swf.gz") is LOGS[KTH]
    with pytest.raises(BadInput) as caught:
        entry("kth-sp2-1996-2-cln")
    assert f"did you mean '{KTH}'?" in str(caught.value)
    with pytest.raises(BadInput, match="'x' is not a public log known here; expected KTH-SP2"):
        fetch("x")


def test_a_log_is_looked_for_in_three_folders_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find(KTH) is None
    cached = put(tmp_path / "cache" / "cosched" / "traces", f"{KTH}.swf.gz")
    assert find(KTH) == cached
    beside = put(tmp_path / "shared" / "traces", f"{KTH}.swf")
    assert find(KTH) == beside, "an uncompressed copy will do"
    given = put(tmp_path / "mine", f"{KTH}.swf.gz")
    assert find(KTH) == beside
    monkeypatch.setenv("COSCHED_TRACES", str(tmp_path / "mine"))
    assert find(KTH) == given
    assert find(f"{KTH}.swf.gz") == given
    assert find("RICC-2010-2") is None
    assert find("no-such-log") is None


def test_the_cache_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_folder() == tmp_path / "cache" / "cosched" / "traces"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unset in ("", "relative/path"):
        monkeypatch.setenv("XDG_CACHE_HOME", unset)
        assert cache_folder() == tmp_path / ".cache" / "cosched" / "traces"


# --- fetching -----------------------------------------------------------------------------------------------------


def answering(status: int = 200, length: int | None = None, *, body: bytes = CONTENT, endless: bool = False) -> Answer:
    """Answer with this status and body, over and over where it is endless: until the client has had enough."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        if length is not None:
            request.send_header("Content-Length", str(length))
        request.end_headers()
        request.wfile.write(body)
        while endless:
            request.wfile.write(body)

    return answer


whole = answering(length=len(CONTENT))


def stalled(request: BaseHTTPRequestHandler) -> None:
    request.connection.recv(1)  # until the client hangs up


class Server(ThreadingHTTPServer):
    """A web server on loopback that gives one answer to everything and counts."""

    daemon_threads = True

    def __init__(self, answer: Answer) -> None:
        self.asked = 0
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked += 1
                with contextlib.suppress(ConnectionError):  # the client hangs up on some, as it should
                    answer(self)

            def log_message(self, format: str, *args: object) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)


def tiny(port: int) -> PublicLog:
    return PublicLog(
        name="tiny",
        url=f"http://127.0.0.1:{port}/tiny.swf.gz",
        sha256=hashlib.sha256(CONTENT).hexdigest(),
        size=len(CONTENT),
        machine="none",
        provider="nobody",
    )


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Answer], Server]]:
    """Serve the log ``tiny`` with that answer."""
    running: list[tuple[Server, threading.Thread]] = []

    def serve(answer: Answer) -> Server:
        server = Server(answer)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        running.append((server, thread))
        monkeypatch.setitem(LOGS, "tiny", tiny(server.server_port))
        return server

    yield serve
    for server, thread in running:
        server.shutdown()
        server.server_close()
        thread.join()


def test_a_log_is_fetched_once_and_read(served: Callable[[Answer], Server]) -> None:
    server = served(whole)
    path = fetch("tiny.swf.gz")
    assert path == cache_folder() / "tiny.swf.gz" == find("tiny")
    assert path.read_bytes() == CONTENT
    assert len(swf.read(path)) == 1
    assert fetch("tiny") == path
    assert server.asked == 1
    path.write_bytes(b"damaged since")
    assert fetch("tiny").read_bytes() == CONTENT
    assert server.asked == 2


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (answering(body=CONTENT[:-1] + b"?"), "gave another file, of SHA-256"),
        (answering(body=bytes(1 << 16), endless=True), f"gave more than {len(CONTENT)} bytes"),
        (answering(body=CONTENT + b"?"), f"gave more than {len(CONTENT)} bytes"),
        (answering(length=len(CONTENT), body=CONTENT[:10]), "gave another file, of SHA-256"),
        (answering(404), "tiny.swf.gz (404 Not Found); expected a connection"),
    ],
)
def test_a_wrong_answer_is_refused_and_leaves_nothing(
    served: Callable[[Answer], Server], answer: Answer, told: str
) -> None:
    served(answer)
    with pytest.raises(Unavailable) as caught:
        fetch("tiny")
    assert str(caught.value).startswith("tiny: ")
    assert told in str(caught.value)
    assert list(cache_folder().iterdir()) == []


def test_a_stalled_server_is_given_up(served: Callable[[Answer], Server], monkeypatch: pytest.MonkeyPatch) -> None:
    served(stalled)
    usual_s = catalogue.TIMEOUT_S
    monkeypatch.setattr(catalogue, "TIMEOUT_S", 0.1)
    before = time.monotonic()
    with pytest.raises(Unavailable, match="timed out"):
        fetch("tiny")
    assert time.monotonic() - before < usual_s


def test_a_trickle_is_given_up_at_the_deadline(
    served: Callable[[Answer], Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    served(whole)
    monkeypatch.setattr(catalogue, "DEADLINE_S", -1.0)
    with pytest.raises(Unavailable, match="not done after -1 s"):
        fetch("tiny")


def test_without_a_connection_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and never listens
        monkeypatch.setitem(LOGS, "tiny", tiny(deaf.getsockname()[1]))
        with pytest.raises(Unavailable) as caught:
            fetch("tiny")
    told = str(caught.value)
    assert "Connection refused" in told
    assert "expected a connection, or the file tiny.swf.gz in a folder that COSCHED_TRACES names" in told


def test_only_the_web_is_asked(served: Callable[[Answer], Server], monkeypatch: pytest.MonkeyPatch) -> None:
    served(whole)
    here = PublicLog(name="here", url="file:///etc/hostname", sha256="", size=99, machine="", provider="")
    monkeypatch.setitem(LOGS, "here", here)
    with pytest.raises(Unavailable, match="is no address on the web"):
        fetch("here")


def test_a_cache_that_cannot_be_written(served: Callable[[Answer], Server], tmp_path: Path) -> None:
    served(whole)
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(Unavailable, match=r"tiny: cannot be kept in .* \(Not a directory\)"):
        fetch("tiny")
