"""The command as a user calls it, and something to give it."""

from pathlib import Path

import pytest
from kit.command import JOBS, cosched, without_plots  # noqa: F401 (fixtures)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A small log."""
    path = tmp_path / "small.swf"
    path.write_text(JOBS)
    return path
