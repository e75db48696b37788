"""``cosched calibrate``: measure what jobs cost each other on shared nodes, for the simulator."""

import os
import time
from pathlib import Path
from typing import Final

import click
import msgspec

from cosched.bench.calibrate import CLASSES, Calibration, Paced, fitted, observed, paces
from cosched.bench.kept import Kept, machine
from cosched.cli.service import service, whole_number
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.config.coefficients import Coefficients
from cosched.errors import BadInput, Failed, nearest
from cosched.lab.lab import Lab
from cosched.model.coscheduling import Mode
from cosched.report.table import Table, console

#: Where runs are kept, in the directory of results.
RUNS: Final = "calibration-runs"
_MOST_JOBS: Final = 4


@click.command("calibrate")
@click.option("--modes", default=",".join(Mode), show_default=True, metavar="LIST", help="Coscheduling modes.")
@click.option("--rounds", default="3", callback=whole_number(0, 1000), show_default=True, help="Runs of each mix.")
@click.option("--seconds", type=float, default=5.0, show_default=True, help="How long each job is measured.")
@click.option("--owners/--no-owners", default=True, show_default=True, help="Also beside synthetic users, in a lab.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Directory for runs and coefficients.")
@click.option("--add", is_flag=True, help="Add to the runs that --out has; with --rounds 0 only fit them again.")
@service
def command(
    modes: str, rounds: int, seconds: float, owners: bool, out: Path, add: bool, server: str | None, lab: str | None
) -> int:
    """Measure what jobs cost each other that share nodes, and write the simulator's coefficients.

    The lab's four programs run alone, in all pairs and in fours, one task of each on every node, under each
    coscheduling mode. Without --server or --lab it makes labs of two nodes with a CPU each, and ends them. A cluster
    needs nodes of one CPU on which four tasks may run, and nobody at their desks.

    \b
    Example: cosched calibrate --modes none,ccs --rounds 3 --out calibration
    """
    chosen = [word.strip() for word in modes.split(",") if word.strip()]
    for word in chosen:
        if word not in set(Mode):
            raise BadInput(
                "--modes", f"{word!r}", ", ".join(Mode), nearest=nearest(word, [mode.value for mode in Mode])
            )
    if not 1 <= seconds <= 600:
        raise BadInput("--seconds", f"{seconds:g}", "1 to 600")
    kept = Kept(out, RUNS, Paced)
    refused: dict[str, str] = {}

    def say(text: str) -> None:
        click.echo(text, err=True)

    def measure(client: Client, nodes: int, ours: str | None, owned: bool) -> None:
        calibration = Calibration(client, nodes, seconds, say, ours)
        for run in calibration.run(chosen, rounds, owned=owned, seed=len(kept.campaigns)):
            kept.keep(run)
        refused.update(calibration.refused)

    if rounds:
        how = {"seconds": seconds, "programs": CLASSES}
        if server or lab or os.environ.get("COSCHED_SERVER"):
            with connect(server, lab) as client:
                nodes = len([node for node in client.nodes() if node.state == "up"])
                kept.begin({**how, "nodes": nodes}, add=add)
                measure(client, nodes, None, False)
        else:
            if len(os.sched_getaffinity(0)) < 2:
                raise Failed("a lab of two nodes with a CPU each needs two CPUs; name a cluster with --server")
            kept.begin({**how, "nodes": 2}, add=add)
            for owned in (False, True) if owners else (False,):
                users = 2 if owned else 0
                name = f"calibrate-{os.getpid()}"
                with Lab.up(2, name=name, pin=True, mpl=_MOST_JOBS, users=users, say=say) as made:
                    if made.tier != 1:
                        raise Failed(f"calibration needs control groups, a lab of tier 1: {made.why}")
                    with made.client() as client:
                        measure(client, 2, made.name, owned)
    return _shown(kept, refused, out)


def _shown(kept: Kept[Paced], refused: dict[str, str], out: Path) -> int:
    found = observed(kept.campaigns)
    if not found:
        raise Failed(f"nothing to fit in {out}: no mix was measured beside its programs alone")
    table = Table("Pace against alone, medians", ["mode", "mix", "program", "pace", "low", "high", "runs"])
    for (mode, mix, program), values in paces(kept.campaigns).items():
        table.add(mode, mix, program, *values)
    table.show(console())
    costs = fitted(found)
    fits = Table("Costs of sharing, parts of the time alone", ["mode", "kind", "beside", "cost", "low", "high", "runs"])
    for mode, kinds in costs.items():
        for kind, others in kinds.items():
            for other, cost in others.items():
                fits.add(mode, kind, other, cost.median, cost.low, cost.high, cost.runs)
    fits.show(console())
    for what, why in refused.items():
        click.echo(f"not run: {what}: {why}")
    made = Coefficients(time.strftime("%Y-%m-%d"), machine(), "measured by 'cosched calibrate'", costs)
    path = out / "coefficients.json"
    path.write_bytes(msgspec.json.format(msgspec.json.encode(made), indent=2) + b"\n")
    table.write(out / "paces.csv")
    click.echo(f"wrote {path} and {out / 'paces.csv'}")
    return 0
