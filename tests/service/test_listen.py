"""Where the service listens: paths too long, sockets left behind, somebody else there; and readiness."""

import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosched.errors import BadInput, Failed
from cosched.linux.notify import notify
from space_scheduler.service.access import listen


@pytest.fixture
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cosched-") as made:
        yield Path(made)


def test_everybody_may_connect(short: Path) -> None:
    path = short / "run/s.sock"
    with listen.unix_socket(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o666
        assert stat.S_IMODE(path.parent.stat().st_mode) & 0o755 == 0o755


def test_a_path_that_is_too_long_says_how_long(short: Path) -> None:
    path = short / ("x" * 100) / "s.sock"
    with pytest.raises(BadInput, match=r"listen.socket: .*: \d+ bytes; expected at most 107: Linux takes"):
        listen.unix_socket(path)
    assert not path.parent.exists()


def test_a_relative_path() -> None:
    with pytest.raises(BadInput, match="expected an absolute path"):
        listen.checked_path(Path("s.sock"))


def test_what_a_killed_scheduler_has_left_is_removed(short: Path) -> None:
    path = short / "s.sock"
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with listen.unix_socket(path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))


def test_where_another_scheduler_listens(short: Path) -> None:
    path = short / "s.sock"
    with listen.unix_socket(path):
        with pytest.raises(Failed, match="another scheduler does"):
            listen.unix_socket(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))  # it is still there


def test_where_something_else_is(short: Path) -> None:
    path = short / "s.sock"
    path.write_text("mine")
    with pytest.raises(Failed, match="something that is no socket"):
        listen.unix_socket(path)
    assert path.read_text() == "mine"


def test_a_port_that_is_taken() -> None:
    with listen.tcp_socket("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(Failed, match=f"cannot listen on 127.0.0.1 port {port}: "):
            listen.tcp_socket("127.0.0.1", port)


def test_an_address_of_another_host() -> None:
    with pytest.raises(Failed, match=r"cannot listen on 192\.0\.2\.1 port 7420"):
        listen.tcp_socket("192.0.2.1", 7420)


@pytest.mark.parametrize("abstract", [False, True])
def test_systemd_is_told(short: Path, monkeypatch: pytest.MonkeyPatch, abstract: bool) -> None:
    name = f"@cosched-{os.getpid()}-{short.name}" if abstract else str(short / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(name.replace("@", "\0", 1) if abstract else name)
        systemd.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        notify("READY=1")
        assert systemd.recv(100) == b"READY=1"


def test_nobody_wants_to_be_told(monkeypatch: pytest.MonkeyPatch, short: Path) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    monkeypatch.setenv("NOTIFY_SOCKET", str(short / "gone"))
    notify("READY=1")


def test_any_ipv6_address_is_reached_over_ipv4_as_well() -> None:
    with listen.tcp_socket("::", 0) as listening:
        for host in ("::1", "127.0.0.1"):
            with socket.create_connection((host, listening.getsockname()[1])) as connection:
                assert connection.getpeername()[0] == host
