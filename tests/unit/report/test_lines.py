"""Lists for terminals and pipes: a line for each row, cut where the terminal ends, tabs into a pipe."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

import pytest

LIST = """
import sys
from cosched.report.table import Table
columns = ("job", "name", "state", "tasks", "where, why")
table = Table("Jobs", columns, cut=("where, why", "name"), wide="wide" in sys.argv)
for number in (7, 123456):
    table.add(str(number), "a-name-that-is-much-too-long-for-any-list", "queued", 16,
              "fewer processors are free than the job needs, and it goes on for a while\\nafter a line\\tand a tab")
table.notes.append("a note")
table.print()
"""


def on_terminal(columns: int, *arguments: str) -> list[str]:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    environment = {key: value for key, value in os.environ.items() if key not in ("COLUMNS", "LINES")}
    with subprocess.Popen([sys.executable, "-c", LIST, *arguments], stdout=theirs, env=environment | {"TERM": "dumb"}):
        os.close(theirs)
        text = b""
        try:
            while piece := os.read(ours, 4096):
                text += piece
        except OSError:  # the other end is closed
            pass
    os.close(ours)
    return text.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_row_is_a_line_no_wider_than_the_terminal(columns: int) -> None:
    header, first, second, note = on_terminal(columns)
    assert header.split()[:2] == ["job", "name"]
    assert first.startswith("7 ")
    assert second.startswith("123456 ")
    assert "…" in first
    assert all(len(line) <= columns for line in (header, first, second))
    assert "queued" in second
    assert note == "a note"


def test_wide_cuts_nothing() -> None:
    lines = on_terminal(80, "wide")
    assert "a-name-that-is-much-too-long-for-any-list" in lines[1]
    assert "after a line and a tab" in lines[1]


def test_into_a_pipe_values_are_between_tabs() -> None:
    text = subprocess.run([sys.executable, "-c", LIST], capture_output=True, text=True, check=True).stdout
    header, first, _ = text.splitlines()
    assert header.split("\t") == ["job", "name", "state", "tasks", "where, why"]
    assert first.split("\t")[:4] == ["7", "a-name-that-is-much-too-long-for-any-list", "queued", "16"]
    assert first.split("\t")[4].endswith("for a while after a line and a tab")
