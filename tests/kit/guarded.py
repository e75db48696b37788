"""Runs a module as a program, a benchmark or a campaign, and ends what it has left, however it ended.

A whole campaign that ends well writes the row of its name in ``docs/measured/campaigns.md``.

python guarded.py MODULE [ARGUMENT ...]
"""

import runpy
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
TABLE = TESTS.parent / "docs/measured/campaigns.md"


def with_row(table: str, name: str, row: str) -> str:
    """The page with that row in place of the campaign's row."""
    lines = table.splitlines(keepends=True)
    return "".join(row if line.startswith(f"| {name} |") else line for line in lines)


def record(name: str, arguments: list[str], started_s: float) -> None:
    """Write when the campaign was green."""
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=TESTS, capture_output=True, text=True)  # noqa: PLW1510
    minutes = (time.monotonic() - started_s) / 60
    command = " ".join(["./run campaign", name, *arguments])
    row = f"| {name} | `{command}` | {commit.stdout.strip()} | {datetime.now(UTC).date()} | {minutes:.0f} min |\n"
    TABLE.write_text(with_row(TABLE.read_text(), name, row))
    print(f"green: written in {TABLE}", file=sys.stderr)  # noqa: T201


def main() -> None:
    """Run the module that the arguments name."""
    from kit import guardian  # noqa: PLC0415 (found by the path that is set below)

    guardian.watch()
    del sys.argv[0]
    package, _, name = sys.argv[0].partition(".")
    arguments, started_s = sys.argv[1:], time.monotonic()
    try:
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if ended.code:
            raise
    if package == "campaigns" and not {"--only", "--help", "-h"} & set(arguments):
        record(name, arguments, started_s)


if __name__ == "__main__":
    sys.path[:1] = [str(TESTS.parent), str(TESTS)]
    main()
