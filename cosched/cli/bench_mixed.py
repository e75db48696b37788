"""``cosched bench mixed``: what a mixed workload gains over plain Linux."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from cosched.bench.cells import MODES
from cosched.bench.kept import Kept
from cosched.bench.mixed import MIX, RUNS, Experiment, MixedRun, Plan, Where, judged
from cosched.bench.mixed_results import document, misses, plot, table
from cosched.bench.together import PLAIN
from cosched.cli.service import service, whole_number
from cosched.client.find import connect
from cosched.errors import BadInput, Failed, nearest
from cosched.lab.lab import Lab
from cosched.report.table import console

_NODES: Final = 2


@click.command("mixed")
@click.option("--modes", default=",".join(MODES), show_default=True, metavar="LIST", help="Modes, plain among them.")
@click.option("--desks", default="0,1,2", show_default=True, metavar="LIST", help="How many desks have their owners.")
@click.option(
    "--receive", type=click.Choice(["poll", "yield"]), default="poll", show_default=True, help="How MPI waits."
)
@click.option("--rounds", default="3", callback=whole_number(1, 1000), show_default=True, help="Runs of each cell.")
@click.option("--seconds", type=float, default=15.0, show_default=True, help="How long a run measures.")
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the runs, JSON and the plot.")
@click.option("--add", is_flag=True, help="Add to the runs that --out has of earlier calls.")
@service
def mixed(
    modes: str,
    desks: str,
    receive: str,
    rounds: int,
    seconds: float,
    out: Path | None,
    add: bool,
    server: str | None,
    lab: str | None,
) -> int:
    """Measure a mixed workload: four programs at once on each node, against plain Linux, with owners or without.

    Without --server or --lab it makes labs of two nodes with a CPU each, with synthetic owners at so many of their
    desks, and ends them. A cluster needs nodes of one CPU on which four tasks may run; its desks are taken as they
    are, and --desks must say how many owners that is. Exit status 1 when ccs is not 15 % shorter, or was not measured.

    \b
    Example: cosched bench mixed --modes plain,ccs --desks 0,1 --rounds 3 --out results
    """
    chosen = [word.strip() for word in modes.split(",") if word.strip()]
    for word in chosen:
        if word not in MODES:
            raise BadInput("--modes", f"{word!r}", ", ".join(MODES), nearest=nearest(word, MODES))
    if PLAIN not in chosen or len(chosen) < 2:
        raise BadInput("--modes", modes, "plain, which the others are held against, and another")
    counts = [_count(word.strip()) for word in desks.split(",")]
    if not 1 <= seconds <= 600:
        raise BadInput("--seconds", f"{seconds:g}", "1 to 600")
    there = server or lab or os.environ.get("COSCHED_SERVER")
    if there and len(counts) > 1:
        raise BadInput("--desks", desks, "one number, of those who are at their desks in the cluster")
    kept = Kept(out, RUNS, MixedRun)

    def say(text: str) -> None:
        click.echo(text, err=True)

    @contextmanager
    def as_it_is(_: int) -> Iterator[Where]:
        with connect(server, lab) as client:
            nodes = len([node for node in client.nodes() if node.state == "up"])
            yield Where(client, nodes, None)

    @contextmanager
    def made(owners: int) -> Iterator[Where]:
        name = f"mixed-{os.getpid()}"
        with Lab.up(_NODES, name=name, pin=True, mpl=len(MIX), users=owners, say=say) as ours:
            if ours.tier != 1:
                raise Failed(f"coscheduling needs control groups, a lab of tier 1: {ours.why}")
            with ours.client() as client:
                yield Where(client, _NODES, ours.name)

    if not there and len(os.sched_getaffinity(0)) < _NODES:
        raise Failed("a lab of two nodes with a CPU each needs two CPUs; name a cluster with --server")
    kept.begin({"seconds": seconds, "receive": receive, "programs": dict(MIX)}, add=add)
    plan = Plan(chosen, counts, rounds, seconds, receive == "poll", seed=len(kept.campaigns))
    experiment = Experiment(as_it_is if there else made, plan, say)
    for run in experiment.run():
        kept.keep(run)
    return shown(kept, experiment.refused, out)


def shown(kept: Kept[MixedRun], refused: Mapping[str, str], out: Path | None) -> int:
    """Print what there is of all campaigns, and write JSON and a plot."""
    cells = judged(kept.campaigns)
    table(cells).show(console())
    for what, why in refused.items():
        click.echo(f"not run: {what}: {why}")
    missed = misses(cells)
    for line in missed:
        click.echo(f"missed by ccs: {line}")
    if out is not None:
        (out / "mixed.json").write_text(document(cells, refused, kept.hows), encoding="utf-8")
        for path in [out / "mixed.json", *plot(cells, out)]:
            click.echo(f"wrote {path}")
    return 1 if missed or not cells or (refused and not any(cell.mode == "ccs" for cell in cells)) else 0


def _count(word: str) -> int:
    if not word.isdecimal() or int(word) > _NODES:
        raise BadInput("--desks", f"{word!r}", f"0 to {_NODES}, with commas between")
    return int(word)
