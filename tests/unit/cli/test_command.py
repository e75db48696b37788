"""The command as a whole: its help, and what starting it costs."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from kit.command import Call
from kit.snapshots import Snapshot, session
from kit.waiting import BOUND_S

from cosched.apps.cli.main import _SECTIONS, _VERBS, cli

HEAVY = ("numpy", "rich", "yaml", "aiohttp", "asyncio", "cryptography", "scipy", "websockets", "prometheus_client")


def commands(group: click.Group, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all commands and groups."""
    context = click.Context(group)
    found = []
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        found.append((*path, name))
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
    return found


def test_help(snapshot: Snapshot, cosched: Call) -> None:
    snapshot(session(cosched, "--help", "sbumit job.sh"))


@pytest.mark.parametrize("section", _SECTIONS)
def test_every_command_has_help_with_an_example(section: str, snapshot: Snapshot, cosched: Call) -> None:
    paths = [path for path in commands(cli) if path[0] in _SECTIONS[section]]
    for path in paths:
        assert f"cosched {' '.join(path)}" in cosched(*path, "--help").out.partition("Example")[2], path
    snapshot(session(cosched, *(f"{' '.join(path)} --help" for path in paths)))


def test_users_verbs_start_light(tmp_path: Path) -> None:
    (tmp_path / "job.sh").write_text("#!/bin/sh\n#COSCHED --time 3min\n")
    server = ["--server", str(tmp_path / "none.sock")]
    calls = [["submit", *server, "job.sh"], ["show", *server, "1", "--json"]]
    calls += [[verb, *server, "1"] for verb in ("wait", "logs", "cancel", "explain")]
    code = f"""
import sys
from cosched.apps.cli.main import main
for call in {calls!r}:
    try:
        main(call)
    except SystemExit as ended:
        assert ended.code == 3, (call, ended.code)
    print(call[0], [name for name in {HEAVY!r} if name in sys.modules])
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=BOUND_S, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [f"{call[0]} []" for call in calls]


def test_all_verbs_are_in_one_section() -> None:
    assert len(_VERBS) == sum(map(len, _SECTIONS.values()))
