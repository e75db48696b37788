"""axe-core, the checker of accessibility: fetched by npm for the test that asks, and never kept in the checkout."""

import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from benchmarks._browser import Tab
from kit.waiting import BOUND_S

#: What axe calls serious and worse.
BAD = ("serious", "critical")


def axe_source(folder: Path) -> str:
    """Its script. Skips where npm is not there, or has no registry."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs npm, for axe-core")
    packed = subprocess.run(
        [npm, "pack", "--silent", "--ignore-scripts", "axe-core@4"],
        cwd=folder,
        capture_output=True,
        check=False,
        text=True,
        timeout=BOUND_S,
    )
    if packed.returncode:
        pytest.skip(f"needs axe-core from npm: {packed.stderr.strip()[-200:]}")
    with tarfile.open(folder / packed.stdout.split()[-1]) as archive:
        found = archive.extractfile("package/axe.min.js")
        assert found
        return found.read().decode()


async def findings(tab: Tab, source: str) -> list[Any]:
    """What is serious or worse, each with where it is."""
    await tab.js(source + "; 0")
    told = "({ id: v.id, impact: v.impact, nodes: v.nodes.map((n) => n.html + ' ' + n.failureSummary) })"
    found = await tab.js(f"axe.run().then((result) => result.violations.map((v) => {told}))")
    return [each for each in found if each["impact"] in BAD]
