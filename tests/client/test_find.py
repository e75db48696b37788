"""Which service is meant."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from cosched.client import desk_socket, places
from cosched.client.find import connect
from cosched.errors import BadInput, Failed, NoAnswer

Listen = Callable[[Path], None]


@pytest.fixture
def listen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Listen]:
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("COSCHED_SERVER", raising=False)
    monkeypatch.delenv("COSCHED_LAB", raising=False)
    with ExitStack() as stack:

        def start(path: Path) -> None:
            path.parent.mkdir(parents=True, exist_ok=True)
            listener = stack.enter_context(socket.socket(socket.AF_UNIX))
            listener.bind(str(path))
            listener.listen()

        yield start


def test_the_only_lab_that_is_up(listen: Listen) -> None:
    listen(places.lab_socket("one"))
    places.lab_dir("down").mkdir()
    assert places.labs_up() == ["one"]
    assert connect().server == str(places.lab_socket("one"))


def test_several_labs_must_be_told_apart(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    listen(places.lab_socket("one"))
    listen(places.lab_socket("two"))
    with pytest.raises(BadInput, match="several are up: one, two; expected --lab NAME"):
        connect()
    assert connect(lab="two").server == str(places.lab_socket("two"))
    monkeypatch.setenv("COSCHED_LAB", "one")
    assert connect().server == str(places.lab_socket("one"))
    assert connect(lab="two").server == str(places.lab_socket("two"))
    with pytest.raises(NoAnswer, match=r"no lab 'tow' is up \(those that are: one, two\); did you mean 'two'"):
        connect(lab="tow")


def test_a_demos_lab_is_meant_by_its_name_alone(listen: Listen) -> None:
    demo = f"{places.DEMO}123456"
    listen(places.lab_socket(demo))
    with pytest.raises(NoAnswer, match="no lab is up"):
        connect()
    assert connect(lab=demo).server == str(places.lab_socket(demo))
    listen(places.lab_socket("one"))
    assert connect().server == str(places.lab_socket("one"))


def test_the_systems_scheduler_comes_before_labs(listen: Listen, tmp_path: Path) -> None:
    listen(places.lab_socket("one"))
    listen(tmp_path / "scheduler.sock")
    assert connect().server == str(tmp_path / "scheduler.sock")


def test_a_socket_that_nobody_listens_on_is_passed_over(listen: Listen, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "scheduler.sock"))
    listen(places.lab_socket("one"))
    assert connect().server == str(places.lab_socket("one"))


def test_named_by_option_or_environment(listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    listen(places.lab_socket("one"))
    assert connect("/some/where.sock").server == "/some/where.sock"
    monkeypatch.setenv("COSCHED_SERVER", "/env.sock")
    assert connect().server == "/env.sock"
    assert connect(lab="one").server == str(places.lab_socket("one"))
    with pytest.raises(BadInput, match="one of the two"):
        connect("/some/where.sock", "one")


def test_nobody(listen: Listen) -> None:
    with pytest.raises(NoAnswer, match=r"no lab is up.*'cosched lab up' makes one"):
        connect()


def test_a_runtime_directory_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "link"))
    with pytest.raises(Failed, match="not this user's own directory"):
        places.made_runtime_dir()
    monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(tmp_path / "new" / "er"))
    assert places.made_runtime_dir().is_dir()


def test_desk_socket_beside_a_scheduler_is_found_where_it_is_the_only_one(
    listen: Listen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own, beside = tmp_path / "cosched/desk.sock", tmp_path / "cosched-node/desk.sock"
    monkeypatch.setattr(desk_socket, "SOCKET", own)
    assert desk_socket.found_socket() == own
    with pytest.raises(NoAnswer, match=r"COSCHED_DESK_SOCKET names desk\.sock in another run directory"):
        desk_socket.ask(own, {"do": "status"})
    listen(beside)
    assert desk_socket.found_socket() == beside
    listen(tmp_path / "cosched-other/desk.sock")
    assert desk_socket.found_socket() == own
    (tmp_path / "cosched-other/desk.sock").unlink()
    listen(own)
    assert desk_socket.found_socket() == own
