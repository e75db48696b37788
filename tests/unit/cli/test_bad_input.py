"""Bad input ends with status 2 and one message: where, what was found, what was expected, the nearest valid choice."""

from pathlib import Path

import pytest
from kit.command import JOBS, Call
from kit.snapshots import Snapshot

PARTS = ["lines", "calls", "configurations", "sites", "outputs", "policies", "manifests", "comparisons"]


@pytest.mark.usefixtures("without_plots")
@pytest.mark.parametrize("part", PARTS)
def test_shown(part: str, snapshot: Snapshot, cosched: Call, log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cosched.workload.catalogue.folders", list)  # no public log of this machine is found
    log.with_name("jobs.swf").write_text(JOBS)
    snapshot.hidden["9" * 5000] = "$NINES"
    snapshot.replay(cosched)
