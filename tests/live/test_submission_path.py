"""The functions that hand a submission on are those that the design's page lists."""

import os
import tempfile
from pathlib import Path

import pytest
from kit.submission_path import traced

PAGE = Path(__file__).resolve().parents[2] / "docs/design/submission-path.md"


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: a guard that makes cgroups")
async def test_traced_steps_of_a_submission_are_listed() -> None:
    listed = PAGE.read_text().split("## Steps now")[1].split("```")[1].split()[1:]
    with tempfile.TemporaryDirectory(prefix="cosched-") as made:
        Path(made).chmod(0o755)
        found = await traced(Path(made))
    assert set(found) == set(listed)
