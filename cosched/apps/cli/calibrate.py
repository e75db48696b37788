"""``cosched calibrate``: measure what jobs cost each other on shared nodes, for the simulator."""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import click

from cosched.apps.cli.shared.campaign import modes_option, not_run, seconds_option
from cosched.apps.cli.shared.link_costs import link_costs
from cosched.apps.cli.shared.values import some_of, whole_number
from cosched.apps.cli.shared.verb import echo, json_text, say, service
from cosched.apps.experiments import testbed
from cosched.apps.experiments.calibrate import (
    CLASSES,
    Calibration,
    Mix,
    Paced,
    each_alone,
    fitted,
    observed,
    paces,
    shared,
)
from cosched.apps.experiments.run_log import RunLog, machine
from cosched.apps.lab.plan import MAX_DELAY_US
from cosched.config.coefficients import Coefficients
from cosched.config.units import duration_us
from cosched.errors import BadInput, Failed
from cosched.model.coscheduling import Mode
from cosched.report.table import Table

#: Where runs are kept, in the directory of results.
RUNS: Final = "calibration-runs"
_MOST_JOBS: Final = 4
_JOBS: Final = "jobs"
_OWNERS: Final = "owners"


def _delays(_ctx: click.Context, param: click.Parameter, text: str) -> list[int]:
    found = [duration_us(each.strip(), param.opts[-1]) for each in text.split(",")]
    for delay_us in found:
        if not 0 <= delay_us <= MAX_DELAY_US:
            raise BadInput(param.opts[-1], f"{delay_us} us", f"up to {MAX_DELAY_US // 1000}ms")
    return sorted({*found})


@click.command("calibrate")
@modes_option(*Mode)
@click.option("--rounds", default="3", callback=whole_number(0, 1000), show_default=True, help="Runs of each mix.")
@seconds_option(5.0, "How long each job is measured.")
@click.option(
    "--beside",
    default=f"{_JOBS},{_OWNERS}",
    callback=some_of(_JOBS, _OWNERS),
    show_default=True,
    metavar="LIST",
    help="Beside which company: other jobs, and synthetic users in a lab.",
)
@click.option(
    "--clusters",
    is_flag=True,
    help="Instead, what the link between two clusters costs: labs of two clusters of one node each.",
)
@click.option(
    "--delays",
    default="0.5ms,2ms,10ms",
    callback=_delays,
    show_default=True,
    metavar="LIST",
    help="Of that link, one way.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Directory for runs and coefficients.")
@click.option("--add", is_flag=True, help="Add to the runs that --out has; with --rounds 0 only fit them again.")
@service
def command(
    modes: list[str],
    rounds: int,
    seconds: float,
    beside: list[str],
    clusters: bool,
    delays: list[int],
    out: Path,
    add: bool,
    server: str | None,
    lab: str | None,
) -> int:
    """Measure what jobs cost each other that share nodes, and write the simulator's coefficients.

    The lab's four programs run alone, in all pairs and in fours, one task of each on every node, under each
    coscheduling mode. Without --server or --lab it makes labs of two nodes with a CPU each, and ends them. A cluster
    needs nodes of one CPU on which four tasks may run, and nobody at their desks.

    With --clusters each program runs across a link of each delay, and on one cluster; for each delay there is a file
    for 'components.costs' of cluster.yaml.

    \b
    Examples:
      cosched calibrate --modes none,ccs --rounds 3 --out calibration
      cosched calibrate --clusters --delays 0.5ms,5ms --rounds 3 --out link
    """
    if clusters:
        return link_costs(delays, rounds, seconds, out, add=add)
    kept = RunLog(out, RUNS, Paced)
    refused: dict[str, str] = {}

    def measure(place: testbed.Testbed, mixes: list[Mix]) -> None:
        calibration = Calibration(place.client, place.nodes, seconds, say, place.lab)
        kept.keep_each(calibration.run(mixes, modes, rounds, seed=len(kept.campaigns)))
        refused.update(calibration.refused)

    if rounds:
        how = {"seconds": seconds, "programs": CLASSES}
        if testbed.is_there(server, lab):
            with testbed.found(server, lab) as place:
                kept.begin({**how, "nodes": place.nodes}, add=add)
                measure(place, [*each_alone(), *shared()])
        else:
            kept.begin({**how, "nodes": testbed.NODES}, add=add)
            with testbed.made("calibrate", say, mpl=_MOST_JOBS) as place:
                measure(place, [*each_alone(), *(shared() if _JOBS in beside else ())])
            if _OWNERS in beside:
                with testbed.made("calibrate", say, mpl=_MOST_JOBS, users=testbed.NODES) as place:
                    measure(place, each_alone(owned=True))
    return _shown(kept, refused, out)


def _shown(kept: RunLog[Paced], refused: dict[str, str], out: Path) -> int:
    found = observed(kept.campaigns)
    if not found:
        raise Failed(f"nothing to fit in {out}: no mix was measured beside its programs alone")
    table = Table(
        "Pace against alone, medians",
        ["mode", "mix", "program", "pace", "low", "high", "runs"],
        [(*mix, *values) for mix, values in paces(kept.campaigns).items()],
    )
    costs = fitted(found)
    columns = ["mode", "kind", "beside", "cost", "low", "high", "runs"]
    rows: list[Sequence[object]] = [
        (mode, kind, other, cost.median, cost.low, cost.high, cost.runs)
        for mode, kinds in costs.items()
        for kind, others in kinds.items()
        for other, cost in others.items()
    ]
    fits = Table("Costs of sharing, parts of the time alone", columns, rows)
    echo([table, fits, *not_run(refused)])
    made = Coefficients(time.strftime("%Y-%m-%d"), machine(), "measured by 'cosched calibrate'", costs)
    path = out / "coefficients.json"
    path.write_text(json_text(made), encoding="utf-8")
    table.write(out / "paces.csv")
    click.echo(f"wrote {path} and {out / 'paces.csv'}")
    return 0
