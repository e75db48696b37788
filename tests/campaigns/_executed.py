"""Which tests execute a line in their own process, for :mod:`campaigns.mutants`; runs where coverage is installed.

    python _executed.py DATA  <  ["file", ...]

Writes ``{"file": {"line": ["test", ...], ...}, ...}`` as JSON. The tests of a line come in the order of how many lines
of these files each executes: the most particular first, which are also the quickest.
"""

import json
import sys
from collections import Counter
from pathlib import Path

from coverage import CoverageData  # type: ignore[import-not-found, unused-ignore]


def test_of(context: str) -> str:
    """The test's name as pytest takes it, of a context as pytest-cov writes it (``NAME@GROUP|PHASE``)."""
    name = context.rpartition("|")[0]
    head, at, group = name.rpartition("@")
    return head if at and "]" not in group else name


def executed(data: CoverageData, files: list[str]) -> dict[str, dict[int, list[str]]]:
    found, lines = {}, Counter[str]()
    for file in files:
        by_line = data.contexts_by_lineno(str(Path(file).resolve()))
        found[file] = {line: {test_of(each) for each in contexts if each} for line, contexts in by_line.items()}
        for tests in found[file].values():
            lines.update(tests)
    return {
        file: {line: sorted(tests, key=lambda test: (lines[test], test)) for line, tests in by_line.items()}
        for file, by_line in found.items()
    }


if __name__ == "__main__":
    kept = CoverageData(sys.argv[1])
    kept.read()
    json.dump(executed(kept, json.load(sys.stdin)), sys.stdout)
