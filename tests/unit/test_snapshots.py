"""Snapshots of terminal output: compared, renewed, and found where no test reads them."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kit import snapshots
from kit.command import Ended
from kit.snapshots import Snapshot

PLAYED = "# a comment\n\n$ cosched show 1\n  job 1\n! a warning\nexit 2\n$ echo >there\n"


def told(*arguments: object) -> Ended:
    return Ended(2, f"job {arguments[1]}\n\n", "a warning\n")


def test_commands_are_run_again_and_another_output_fails_with_the_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "kept.txt"
    kept.write_text(PLAYED)
    Snapshot(kept, False, {}).replay(told)
    assert (tmp_path / "there").exists()
    kept.write_text(PLAYED.replace("job 1", "job 2"))
    with pytest.raises(pytest.fail.Exception, match=r"--update-snapshots(.|\n)*\n-  job 2\n\+  job 1\n"):
        Snapshot(kept, False, {}).replay(told)
    Snapshot(kept, True, {}).replay(told)
    assert kept.read_text() == PLAYED


def test_what_differs_from_run_to_run_is_hidden_and_put_back_into_commands(tmp_path: Path) -> None:
    kept = tmp_path / "kept.txt"
    kept.write_text("$ cosched show $NUMBER\n")
    Snapshot(kept, True, {"17": "$NUMBER"}).replay(lambda *arguments: Ended(0, f"{arguments}\n", ""))
    assert kept.read_text() == "$ cosched show $NUMBER\n  ('show', '$NUMBER')\n"


def test_snapshot_that_no_test_reads_fails_the_tests_of_its_file(tmp_path: Path) -> None:
    folder = tmp_path / "snapshots" / "test_it"
    folder.mkdir(parents=True)
    for name in ("test_read-a", "test_read-b"):
        (folder / f"{name}.txt").touch()
    config: Any = SimpleNamespace(stash=pytest.Stash(), option=SimpleNamespace(), args=["tests"])
    items: list[Any] = [
        SimpleNamespace(path=tmp_path / "test_it.py", name=name, fixturenames=["snapshot"], config=config)
        for name in ("test_read[a]", "test_read[b]")
    ]
    snapshots.pytest_collection_modifyitems(config, items)
    snapshots.pytest_runtest_setup(items[0])
    snapshots.pytest_collection_modifyitems(config, items[:1])
    with pytest.raises(pytest.fail.Exception, match=r"that no test reads: \S+/test_read-b\.txt$"):
        snapshots.pytest_runtest_setup(items[0])
    config.args = ["tests/test_it.py::test_read[a]"]
    snapshots.pytest_collection_modifyitems(config, items[:1])
    snapshots.pytest_runtest_setup(items[0])
