"""lock/fetch_pip.py: where it looks for the pinned pip, and that it takes no other."""

import base64
import hashlib
import importlib.util
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "lock/fetch_pip.py"
spec = importlib.util.spec_from_file_location("fetch_pip", SCRIPT)
assert spec is not None
assert spec.loader is not None
fetch_pip = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fetch_pip)

WHEEL = "pip-1.0-py3-none-any.whl"
CONTENT = b"a wheel"
DIGESTS = frozenset({hashlib.sha256(CONTENT).hexdigest()})


@pytest.fixture(autouse=True)
def nothing_configured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("PIP_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)


@pytest.fixture
def index(tmp_path: Path) -> Path:
    """An index in a folder: one page for pip, with an older wheel and the pinned one."""
    folder = tmp_path / "simple/pip"
    folder.mkdir(parents=True)
    page = f'<a href="pip-0.9-py3-none-any.whl">x</a> <a class="y" href="../../files/{WHEEL}#sha256=00">x</a>'
    (folder / "index.html").write_text(page)
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / WHEEL).write_bytes(CONTENT)
    return folder.parent


def fetch(tmp_path: Path) -> list[str]:
    folder = tmp_path / "fetched"
    folder.mkdir()
    command: list[str] = fetch_pip.from_configured_places(WHEEL, DIGESTS, folder)
    assert (folder / WHEEL).read_bytes() == CONTENT
    assert command[:2] == [sys.executable, str(folder / WHEEL / "pip")]
    return command


def test_the_lock_pins_one_wheel() -> None:
    wheel, digests = fetch_pip.pinned(fetch_pip.LOCK.read_text())
    assert wheel.startswith("pip-")
    assert wheel.endswith("-py3-none-any.whl")
    assert digests


def test_environment_ranks_over_the_files(tmp_path: Path) -> None:
    named = tmp_path / "named.conf"
    named.write_text("[global]\nindex-url = http://named.example\ncert = /named\n[install]\nfind_links = /wheels\n")
    user = tmp_path / ".config/pip/pip.conf"
    user.parent.mkdir(parents=True)
    user.write_text("[global]\nindex-url = http://user.example\nproxy = proxy.example:3128\n")
    environ = {"HOME": str(tmp_path), "PIP_CONFIG_FILE": str(named), "PIP_INDEX_URL": "http://environ.example"}
    settings = fetch_pip.configuration(environ)
    assert settings["index-url"] == "http://environ.example"
    assert settings["cert"] == "/named"
    assert settings["find-links"] == "/wheels"
    assert settings["proxy"] == "proxy.example:3128"
    assert fetch_pip.configuration({**environ, "PIP_CONFIG_FILE": os.devnull}) == {
        "index-url": "http://environ.example"
    }


@pytest.mark.parametrize("as_address", [True, False])
def test_from_a_folder_of_wheels(
    tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch, as_address: bool
) -> None:
    folder = tmp_path / "files"
    monkeypatch.setenv("PIP_FIND_LINKS", f"/nowhere {folder.as_uri() if as_address else folder}")
    fetch(tmp_path)


def test_from_an_index(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", index.as_uri())
    fetch(tmp_path)


def test_no_index_means_none(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(fetch_pip.NotHereError, match="no index and no folder of wheels is configured"):
        fetch(tmp_path)


class Guarded(BaseHTTPRequestHandler):
    """An index that answers only to ada's password."""

    wants = "Basic " + base64.b64encode(b"ada:s@crat").decode()

    def do_GET(self) -> None:
        allowed = self.headers["Authorization"] == self.wants
        page = CONTENT if self.path.endswith(".whl") else f'<a href="{WHEEL}">x</a>'.encode()
        self.send_response(200 if allowed else 401)
        self.end_headers()
        self.wfile.write(page if allowed else b"")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def guarded_index() -> Iterator[int]:
    with HTTPServer(("127.0.0.1", 0), Guarded) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        yield server.server_port
        server.shutdown()


def test_credentials_of_an_address_are_used(
    tmp_path: Path, guarded_index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://ada:s%40crat@127.0.0.1:{guarded_index}/simple")
    fetch(tmp_path)


def test_credentials_of_an_address_are_not_printed(
    tmp_path: Path, guarded_index: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"http://ada:wrong@127.0.0.1:{guarded_index}/simple")
    with pytest.raises(fetch_pip.NotHereError, match="401") as caught:
        fetch(tmp_path)
    assert "wrong" not in str(caught.value)


def test_another_content_is_refused(tmp_path: Path, index: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "files" / WHEEL).write_bytes(b"another wheel")
    monkeypatch.setenv("PIP_INDEX_URL", index.as_uri())
    with pytest.raises(fetch_pip.NotHereError, match="does not have the pinned SHA-256"):
        fetch(tmp_path)


def test_a_systems_python_is_left_alone() -> None:
    systems = getattr(sys, "_base_executable", sys.executable)
    answer = subprocess.run([systems, "-I", SCRIPT], capture_output=True, text=True, check=False)
    assert answer.returncode == 1
    assert "nothing is installed into it" in answer.stderr
