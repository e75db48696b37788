"""``python -m node_agent``: with which status it ends where it cannot start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from kit.needs import need_mounts

from cosched.errors import BadInput, Failed, NeedsRepair
from cosched.install import roles
from cosched.install.layout import Layout
from cosched.install.settings import NodeFacts, node_settings
from node_agent.__main__ import main

FACTS = NodeFacts("desk1", "office", "wss://head:7420/v1/agent", "desk1", 4, 8_000_000_000)


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    layout = Layout(str(tmp_path / "etc"), str(tmp_path / "state"), str(tmp_path / "run"))
    path = Path(layout.settings)
    path.parent.mkdir()
    path.write_text(roles.node(node_settings(FACTS, layout), layout).text(layout.settings))
    monkeypatch.setattr(sys, "argv", ["node_agent", "--config", str(path)])
    return path


@pytest.mark.parametrize("name", ["epoch", "revoked"])
def test_damaged_state_ends_the_agent_for_good(
    settings: Path, tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / name).write_bytes(b"{")
    assert main() == NeedsRepair.status
    assert f"state/{name}: not the" in capsys.readouterr().err


def test_unusable_settings_end_the_agent_for_good(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings.write_text(f"{settings.read_text()}\n[unheard]\n")
    assert main() == BadInput.status
    assert "unheard" in capsys.readouterr().err


def test_missing_identity_ends_the_agent_for_good(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == BadInput.status
    assert "ca.pem: no such file" in capsys.readouterr().err


def test_agent_whose_state_is_noexec_is_refused_with_remedy(settings: Path, tmp_path: Path) -> None:
    need_mounts()
    state = tmp_path / "state"
    state.mkdir()
    script = f'mount -t tmpfs -o noexec tmpfs {state} && exec "$@"'
    agent: list[str | Path] = [sys.executable, "-m", "node_agent", "--config", settings]
    ended = subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *agent], capture_output=True, text=True, check=False
    )
    assert ended.returncode == Failed.status
    assert ended.stderr == (
        f"cosched agent: {state} is mounted noexec: no job's script can be executed there; "
        "paths.state in node.toml names another place\n"
    )


@pytest.mark.usefixtures("settings")
def test_directories_of_the_agent_are_open_to_jobs_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        assert main() == BadInput.status  # without an identity
        assert {(tmp_path / name).stat().st_mode & 0o777 for name in ("run", "run/bin", "state")} == {0o755}
    finally:
        os.umask(before)
