"""The guard's records: what a full disk or a kill leaves half written does not stay."""

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from cosched.linux import files
from node_agent.guard.base.records import Records
from node_agent.service.attempts import AttemptFiles


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    descriptor = os.open(tmp_path, os.O_RDONLY | os.O_DIRECTORY)
    yield Records(descriptor)
    os.close(descriptor)


def half_written(directory: Path, *names: str) -> None:
    """As files.replace leaves them when its process, of number 13, is killed before the rename."""
    for name in names:
        (directory / f".{name}.13").write_text('{"half')


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


def test_failed_write_leaves_the_old_file_and_no_temporary_one(records: Records, tmp_path: Path) -> None:
    files.replace("pause", "old", records.fd, durable=False)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            files.replace("pause", "longer than five bytes", records.fd, durable=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == ["pause"]
    assert (tmp_path / "pause").read_text() == "old"


def test_new_guard_removes_its_predecessors_half_written_records(records: Records, tmp_path: Path) -> None:
    records.write({"request": {}}, "group", 8, 1)
    half_written(tmp_path, "8.1.group", "8.1.0.run", "held", "pause", "word", "epoch")
    records.drop_half_written()
    assert names(tmp_path) == ["8.1.group"]


def test_exit_that_a_supervisor_is_writing_outlives_a_new_guard(records: Records, tmp_path: Path) -> None:
    half_written(tmp_path, "8.1.0.exit")
    records.drop_half_written()
    assert names(tmp_path) == [".8.1.0.exit.13"]


def test_dropped_attempt_takes_its_half_written_records_along(records: Records, tmp_path: Path) -> None:
    records.write({"request": {}}, "group", 8, 1)
    half_written(tmp_path, "8.1.group", "8.1.0.exit", "8.11.0.exit", "18.1.0.exit")
    records.drop_attempt(8, 1)
    assert names(tmp_path) == [".18.1.0.exit.13", ".8.11.0.exit.13"]


def test_new_agent_removes_its_predecessors_half_written_attempts(tmp_path: Path) -> None:
    (tmp_path / ".8.1").write_text('{"half')
    assert AttemptFiles(tmp_path).load() == []
    assert names(tmp_path) == []
