"""Terminal output in a file beside its test, for reviewers: docs/guide/tests.md says how it is read and renewed.

The test ``tests/FOLDER/test_file.py::test_name`` has ``tests/FOLDER/snapshots/test_file/test_name.txt``.
"""

import difflib
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cosched.errors import BadInput
from kit.command import Call, Ended


class Snapshot:
    """The file of one test.

    ``hidden`` has what differs in each run: a text -> what stands for it in the file, also in commands. ``patterns``
    has what differs in outputs alone: a regular expression -> what takes the place of its matches.
    """

    def __init__(self, file: Path, renewed: bool, hidden: dict[str, str]) -> None:
        self.file, self._renewed, self.hidden, self.read = file, renewed, hidden, False
        self.patterns: dict[str, str] = {}

    def __call__(self, shown: str) -> None:
        """Compare the output with the file; with ``--update-snapshots``, write the file."""
        self.read = True
        for text, name in self.hidden.items():
            shown = shown.replace(text, name)
        for pattern, name in self.patterns.items():
            shown = re.sub(pattern, name, shown, flags=re.MULTILINE)
        if self._renewed:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_text(shown)
        kept = self.file.read_text() if self.file.exists() else ""
        if shown != kept:
            lines = difflib.unified_diff(kept.splitlines(), shown.splitlines(), "kept", "shown now", lineterm="")
            pytest.fail("\n".join([f"{self.file}: other output (--update-snapshots keeps it)", *lines]), pytrace=False)

    def replay(self, call: Call) -> None:
        """Run the commands of the file, its lines that begin with ``$``, and compare what they print."""
        commands = [line for line in self.file.read_text().splitlines() if line.startswith(("$ ", "# ")) or not line]
        self("".join(f"{shown}\n" for line in commands for shown in [line, *self._printed(line, call)]))

    def _printed(self, line: str, call: Call) -> list[str]:
        for text, name in self.hidden.items():
            line = line.replace(name, text)
        if line.startswith("$ cosched"):
            return told(call(*shlex.split(line)[2:]))
        if line.startswith("$ "):
            subprocess.run(["sh", "-ec", line[2:]], check=True)
        return []


def session(call: Call, *commands: str) -> str:
    """These commands and what they print, as it stands in a file."""
    return "".join(f"{line}\n" for each in commands for line in [f"$ cosched {each}", *told(call(*shlex.split(each)))])


def told(ended: Ended) -> list[str]:
    """What a command printed but for empty lines, standard error after ``!``, and its exit status if that is not 0."""
    streams = (("  ", ended.out), ("! ", ended.err))
    lines = [f"{mark}{line}".rstrip() for mark, text in streams for line in text.split("\n") if line.strip()]
    return [*lines, f"exit {ended.status}"] if ended.status else lines


def refusals(call: Callable[[Any], object], *given: Any) -> str:
    """What is said of each of these, which are all refused."""
    lines = []
    for each in given:
        with pytest.raises(BadInput) as refused:
            call(each)
        lines.append(f"{each!r}\n  {refused.value}\n")
    return "".join(lines)


_unused = pytest.StashKey[set[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-snapshots", action="store_true", help="write tests' snapshots instead of comparing")


@pytest.hookimpl(tryfirst=True)  # before some are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Find snapshots that no test reads, of files whose tests are all here."""
    config.stash[_unused] = set()
    if not (getattr(config.option, "lf", False) or any("::" in argument for argument in config.args)):
        kept = {file for folder in {_file_of(item).parent for item in items} for file in folder.glob("*.txt")}
        config.stash[_unused] = kept - {_file_of(item) for item in items if "snapshot" in _fixtures(item)}


def pytest_runtest_setup(item: pytest.Item) -> None:
    if unused := [str(each) for each in item.config.stash[_unused] if each.parent == _file_of(item).parent]:
        pytest.fail(f"snapshots that no test reads: {' '.join(sorted(unused))}", pytrace=False)


def _file_of(item: pytest.Item) -> Path:
    name = item.name.replace("[", "-").rstrip("]")
    return item.path.parent / "snapshots" / item.path.stem / f"{name}.txt"


def _fixtures(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


@pytest.fixture
def snapshot(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Snapshot]:
    """The snapshot of the test, which has to read it: 80 columns wide, and of a user who was told nothing yet."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("XDG_CACHE_HOME", f"{tmp_path}-cache")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    failed = request.session.testsfailed
    made = Snapshot(_file_of(request.node), request.config.option.update_snapshots, {str(tmp_path): "$HERE"})
    yield made
    assert made.read or request.session.testsfailed > failed, f"the test reads no snapshot {made.file}"
