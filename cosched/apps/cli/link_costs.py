"""``cosched calibrate --clusters``: what the link between two clusters costs, measured and written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click
import msgspec

from cosched.apps.experiments import testbed
from cosched.apps.experiments.calibrate import CLASSES, KINDS
from cosched.apps.experiments.link_cost import ONE_CLUSTER, Crossed, between, measured, slowdowns
from cosched.apps.experiments.run_log import RunLog
from cosched.errors import Failed
from cosched.report.table import Table, console

#: Where runs are kept, in the directory of results.
RUNS: Final = "link-runs"


def link_costs(delays_us: Sequence[int], rounds: int, seconds: float, out: Path, *, add: bool) -> int:
    """Measure so many rounds, each on one cluster and across each delay, in labs made for it; write what came out."""
    kept = RunLog(out, RUNS, Crossed)

    def say(text: str) -> None:
        click.echo(text, err=True)

    if rounds:
        testbed.check_room()
        kept.begin({"seconds": seconds, "programs": CLASSES, "nodes": testbed.NODES}, add=add)
        for _ in range(rounds):
            for delay_us in (ONE_CLUSTER, *delays_us):
                link = None if delay_us == ONE_CLUSTER else delay_us
                with testbed.made("calibrate", say, mpl=1, delay_us=link) as place:
                    for run in measured(place, delay_us, seconds, say):
                        kept.keep(run)
    return _shown(kept, out)


def _shown(kept: RunLog[Crossed], out: Path) -> int:
    found = slowdowns(kept.campaigns)
    if not found:
        raise Failed(f"nothing to compare in {out}: no program was measured on one cluster and across a link")
    table = Table(
        "Slowdown across the link, medians", ["delay_ms", "program", "kind", "slowdown", "low", "high", "runs"]
    )
    for (delay_us, program), (each, runs) in found.items():
        table.add(delay_us / 1000, program, KINDS[program], each.median, each.low, each.high, runs)
    table.show(console())
    table.write(out / "link.csv")
    written = [out / "link.csv"]
    for delay_us in sorted({delay_us for delay_us, _ in found}):
        path = out / f"between-{delay_us / 1000:g}ms.json"
        path.write_bytes(msgspec.json.format(msgspec.json.encode(between(found, delay_us)), indent=2) + b"\n")
        written.append(path)
    click.echo(f"wrote {', '.join(map(str, written))}")
    return 0
