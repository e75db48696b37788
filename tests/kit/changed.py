"""The test files that import, at first or second hand, what has changed in a checkout since a commit.

What a test starts as a program is not seen: those that run labs are named where they import what makes them.

    python -m kit.changed [COMMIT]
"""

import ast
import subprocess
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
PACKAGES: Final = ("cosched", "space_scheduler", "node_agent", "local_load")
#: Tests that read what no module imports: documents, settings of tools, scripts.
_OF_OTHERS: Final = ("tests/unit/test_documents.py", "tests/unit/test_house.py")


def imports_of(source: str, modules: Collection[str]) -> set[str]:
    """Which of these modules a file imports, also inside of its functions."""
    found, known = set[str](), {*modules}
    for node in _statements(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{each.name}" for each in node.names}
            found |= (names & known) or {node.module}
    return found & known


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements in it. Expressions, which import nothing and are most of a file, are left out."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, field, ()):
            yield each
            yield from _statements(each)


def modules() -> dict[str, str]:
    """Module -> its file, of product, benchmarks and tests."""
    found = {}
    for top, base in [*((package, ROOT) for package in (*PACKAGES, "benchmarks")), ("tests", ROOT / "tests")]:
        for file in (ROOT / top).rglob("*.py"):
            name = ".".join(file.relative_to(base).with_suffix("").parts).removesuffix(".__init__")
            found[name] = file.relative_to(ROOT).as_posix()
    return found


def importers(files: Mapping[str, str]) -> dict[str, set[str]]:
    """File -> the files that import it."""
    found: dict[str, set[str]] = {file: set() for file in files.values()}
    for file in files.values():
        for name in imports_of((ROOT / file).read_text(encoding="utf-8"), files):
            found[files[name]].add(file)
    return found


def reached(changed: Iterable[str], by: Mapping[str, Collection[str]]) -> set[str]:
    """These files and those that import them, at first or second hand."""
    found: set[str] = set()
    new = {*changed}
    while new:
        found |= new
        new = {each for file in new for each in by.get(file, ())} - found
    return found


def changed_since(commit: str) -> list[str]:
    """The files that differ from the commit, those that git does not know yet among them."""
    commands = (["diff", "--name-only", commit], ["ls-files", "--others", "--exclude-standard"])
    said = [subprocess.run(["git", *each], cwd=ROOT, capture_output=True, text=True, check=True) for each in commands]
    return [line for each in said for line in each.stdout.splitlines()]


def tests_for(changed: Collection[str], by: Mapping[str, Collection[str]]) -> list[str]:
    """The test files that have to do with these files, in order. ``by``: file -> the files that import it."""
    shown = {f"{each.parents[2]}/{each.parent.name}.py" for each in map(Path, changed) if "snapshots" in each.parts}
    found = {each for each in reached(changed, by) if Path(each).name.startswith("test_")} | shown
    if any(not each.endswith(".py") for each in changed):
        found |= {*_OF_OTHERS}
    return sorted(each for each in found if (ROOT / each).exists())


if __name__ == "__main__":
    sys.stdout.write("\n".join(tests_for(changed_since(*sys.argv[1:] or ["HEAD"]), importers(modules()))))
