"""``cosched calibrate --clusters``: what the link between two clusters costs, measured and written."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
import numpy as np
from msgspec.structs import astuple

from cosched.apps.cli.shared.verb import echo, json_text, say
from cosched.apps.experiments import testbed
from cosched.apps.experiments.calibrate import CLASSES, KINDS
from cosched.apps.experiments.link_cost import ONE_CLUSTER, Crossed, between, iterations_s, measured, slowdowns
from cosched.apps.experiments.link_model import Slowdowns, fitted, programs_of
from cosched.apps.experiments.run_log import RunLog
from cosched.errors import Failed
from cosched.report.intervals import framed, reach
from cosched.report.palette import COLOURS
from cosched.report.plots import figure
from cosched.report.table import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Where runs are kept, in the directory of results.
RUNS: Final = "link-runs"


def link_costs(delays_us: Sequence[int], rounds: int, seconds: float, out: Path, *, add: bool) -> int:
    """Measure so many rounds, each on one cluster and across each delay, in labs made for it; write what came out."""
    kept = RunLog(out, RUNS, Crossed)

    if rounds:
        testbed.check_room()
        kept.begin({"seconds": seconds, "programs": CLASSES, "nodes": testbed.NODES}, add=add)
        for _ in range(rounds):
            for delay_us in (ONE_CLUSTER, *delays_us):
                link = None if delay_us == ONE_CLUSTER else delay_us
                with testbed.made("calibrate", say, mpl=1, delay_us=link) as place:
                    kept.keep_each(measured(place, delay_us, seconds, say))
    return _shown(kept, out)


def _shown(kept: RunLog[Crossed], out: Path) -> int:
    found = slowdowns(kept.campaigns)
    if not found:
        raise Failed(f"nothing to compare in {out}: no program was measured on one cluster and across a link")
    measures, costs = _measures(found), _costs(found, iterations_s(kept.campaigns))
    echo([measures, costs])
    written = [out / "link.csv", out / "link-waits.csv"]
    for table, path in zip((measures, costs), written, strict=True):
        table.write(path)
    for delay_us in sorted({delay_us for delay_us, _ in found}):
        path = out / f"between-{delay_us / 1000:g}ms.json"
        path.write_text(json_text(between(found, delay_us)), encoding="utf-8")
        written.append(path)
    if len({delay_us for delay_us, _ in found}) > 1:
        written += figure(partial(_draw, found=found), out / "link")
    click.echo(f"wrote {', '.join(map(str, written))}")
    return 0


def _measures(found: Slowdowns) -> Table:
    """Each slowdown, and what its program's kind and the program's other delays would have it be."""
    table = Table(
        "Slowdown across the link, medians",
        ["delay_ms", "program", "kind", "slowdown", "low", "high", "runs", "by_kind", "by_other_delays"],
    )
    for (delay_us, program), (each, runs) in found.items():
        kind, others = KINDS[program], fitted(found, program, without_us=delay_us)
        by_kind = 1 + between(found, delay_us).ppm[kind] / 1_000_000
        by_others = others.slowdown(delay_us) if others else None
        table.add(delay_us / 1000, program, kind, each.median, each.low, each.high, runs, by_kind, by_others)
    return table


def _costs(found: Slowdowns, near_s: Mapping[str, float]) -> Table:
    """What the link costs each program at any delay: parts of its time, and how often an iteration waits for it."""
    costs = ((program, near_s[program], fitted(found, program)) for program in programs_of(found))
    return Table(
        "Cost of the link",
        ["program", "iteration_ms", "fixed", "per_ms", "waits"],
        [(program, 1000 * s, cost.fixed, cost.per_s / 1000, cost.per_s * s) for program, s, cost in costs if cost],
    )


def _draw(axes: "Axes", found: Slowdowns) -> None:
    """Slowdowns over delays, and the line through each program's."""
    for number, program in enumerate(programs_of(found)):
        colour = COLOURS[number % len(COLOURS)]
        points = [(delay_us / 1000, each) for (delay_us, name), (each, _) in found.items() if name == program]
        delays_ms, (medians, errors) = [at for at, _ in points], reach([astuple(each) for _, each in points])
        label = f"{program} ({KINDS[program]})"
        axes.errorbar(delays_ms, medians, yerr=errors, fmt="o", color=colour, capsize=3, label=label)
        if cost := fitted(found, program):
            along = np.geomspace(min(delays_ms), max(delays_ms), 100)
            axes.plot(along, [cost.slowdown(1000 * at) for at in along.tolist()], color=colour, linewidth=1)
    axes.set(xscale="log", yscale="log")
    framed(axes, "delay of the link, one way, ms", "slowdown across the link")
