"""``python -m node_agent``: with which status it ends where it cannot start."""

import sys
from pathlib import Path

import pytest

from cosched.errors import BadInput, NeedsRepair
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
