"""A log of JSON lines has one writer, loses no whole line, and reads no truncated one."""

import resource
from pathlib import Path

import pytest

from cosched.errors import BadInput
from cosched.report.line_log import LineLog


def opened(path: Path) -> tuple[LineLog, list[bytes]]:
    lines: list[bytes] = []
    log = LineLog(path, "--out")
    log.read(lines.append)
    return log, lines


def test_lines_are_read_as_they_were_appended(tmp_path: Path) -> None:
    log, none = opened(tmp_path / "log")
    log.claim()
    log.append(b"1")
    log.append(b"2")
    assert (none, opened(tmp_path / "log")[1]) == ([], [b"1", b"2"])


def test_truncated_last_line_is_ignored_and_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"1\n{half")
    log, lines = opened(path)
    assert lines == [b"1"]
    log.claim()
    log.append(b"2")
    assert path.read_bytes() == b"1\n2\n"


def test_second_writer_is_refused_until_the_first_closes(tmp_path: Path) -> None:
    first, second = (opened(tmp_path / "log")[0] for _ in range(2))
    first.claim()
    with pytest.raises(BadInput, match=r"--out: .*/log: another process writes it now; expected .* another --out"):
        second.claim()
    first.close()
    opened(tmp_path / "log")[0].claim()


def test_writer_that_has_not_read_the_last_lines_is_refused(tmp_path: Path) -> None:
    first, second = (opened(tmp_path / "log")[0] for _ in range(2))
    first.claim()
    first.append(b"1")
    first.close()
    with pytest.raises(BadInput, match="another process writes it now"):
        second.claim()
    assert opened(tmp_path / "log")[1] == [b"1"]


def test_file_that_takes_a_part_of_a_line_is_refused_and_the_part_is_cut_off(tmp_path: Path) -> None:
    log, _ = opened(tmp_path / "log")
    log.claim()
    log.append(b"1")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, hard))
    try:
        with pytest.raises(BadInput, match="cannot be written: File too large"):
            log.append(b"23456789")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (tmp_path / "log").read_bytes() == b"1\n234"
    log.close()
    again, lines = opened(tmp_path / "log")
    again.claim()
    assert (lines, (tmp_path / "log").read_bytes()) == ([b"1"], b"1\n")


def test_line_that_is_refused_is_named_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"1\nx\n")
    with pytest.raises(BadInput, match=r"log:2: .*; expected a line as this command wrote it"):
        LineLog(tmp_path / "log", "--out").read(int)
