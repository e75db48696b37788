"""The notices of a node: where a guard listens people are told at a login, scripts are not; entries can be started."""

import configparser
import shlex
import socket
import subprocess
from pathlib import Path

import pytest
from kit.waiting import BOUND_S

from cosched.apps.enrol.laying import take_away, write
from cosched.install import notices
from cosched.install.layout import File, Installation, Layout


@pytest.mark.parametrize(
    ("option", "listens", "told"), [("-ic", True, True), ("-ic", False, False), ("-c", True, False)]
)
def test_people_are_told_at_a_login_where_a_guard_listens(
    tmp_path: Path, option: str, listens: bool, told: bool
) -> None:
    notice = tmp_path / "cosched.sh"
    notice.write_text(notices.texts(Layout(run=f"{tmp_path}/a place"))[notices.LOGIN])
    (tmp_path / "a place").mkdir()
    with socket.socket(socket.AF_UNIX) as guard:
        if listens:
            guard.bind(f"{tmp_path}/a place/desk.sock")
        shell = ["bash", "--norc", "--noprofile", option, f". {shlex.quote(str(notice))}; echo over"]
        said = subprocess.run(
            shell, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BOUND_S, check=False
        )
    line = "Parallel jobs may run on this computer: cosched desk status\n"
    assert said.stdout == (line if told else "") + "over\n"


def entry(path: str) -> configparser.SectionProxy:
    parser = configparser.RawConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(notices.texts(Layout(run="/run/cosched", python="/opt/cosched/bin/python"))[path])
    return parser["Desktop Entry"]


def test_entries_start_the_command_with_this_nodes_socket() -> None:
    session = shlex.split(entry(notices.AUTOSTART)["Exec"])
    assert session[:4] == ["/opt/cosched/bin/python", "-I", "-m", "cosched.apps.cli.main"]
    assert session[4:] == ["desk", "session", "--socket", "/run/cosched/desk.sock"]
    menu = shlex.split(entry(notices.MENU)["Exec"])
    assert menu[:2] == ["sh", "-c"]
    assert menu[2].startswith(
        "/opt/cosched/bin/python -I -m cosched.apps.cli.main desk status --socket /run/cosched/desk.sock;"
    )
    assert entry(notices.MENU)["Terminal"] == "true"


def test_what_was_laid_is_taken_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = tuple(f"{tmp_path}{place}" for place in notices.PLACES)
    monkeypatch.setattr(notices, "PLACES", places)
    files = tuple(File(f"{tmp_path}{path}", "0644", text) for path, text in notices.texts(Layout()).items())
    made = Installation("node", (), (), files, (), (), ())
    write(made, Path("/"))
    assert all(Path(file.path).is_file() for file in files)
    take_away(made)
    assert not any(Path(file.path).exists() for file in files)
