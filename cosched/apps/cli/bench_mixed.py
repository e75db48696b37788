"""``cosched bench mixed``: what a mixed workload gains over plain Linux."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import click

from cosched.apps.cli.shared.campaign import modes_option, not_run, seconds_option, told, tries_option
from cosched.apps.cli.shared.values import numbers_in, whole_number
from cosched.apps.cli.shared.verb import say, service
from cosched.apps.experiments import testbed
from cosched.apps.experiments.corun import PLAIN
from cosched.apps.experiments.matrix import MODES
from cosched.apps.experiments.mixed import MIX, RUNS, Experiment, MixedRun, MixedRuns, judged
from cosched.apps.experiments.mixed_results import misses, plot, table
from cosched.apps.experiments.run_log import RunLog
from cosched.errors import BadInput


@click.command("mixed")
@modes_option(*MODES, told="Modes, plain among them.")
@click.option("--desks", default="0,1,2", show_default=True, metavar="LIST", help="How many desks have their owners.")
@click.option(
    "--receive", type=click.Choice(["poll", "yield"]), default="poll", show_default=True, help="How MPI waits."
)
@click.option("--rounds", default="3", callback=whole_number(1, 1000), show_default=True, help="Runs of each cell.")
@tries_option
@seconds_option(15.0)
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the runs, JSON and the plot.")
@click.option("--add", is_flag=True, help="Add to the runs that --out has of earlier calls.")
@service
def mixed(
    modes: list[str],
    desks: str,
    receive: str,
    rounds: int,
    tries: int,
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
    if PLAIN not in modes or len(modes) < 2:
        raise BadInput("--modes", ",".join(modes), "plain, which the others are held against, and another")
    counts = numbers_in(desks, "--desks", 0, testbed.NODES, f"0 to {testbed.NODES}, with commas between")
    there = testbed.is_there(server, lab)
    if there and len(counts) > 1:
        raise BadInput("--desks", desks, "one number, of those who are at their desks in the cluster")
    kept = RunLog(out, RUNS, MixedRun)

    def place(owners: int) -> AbstractContextManager[testbed.Testbed]:
        return testbed.found(server, lab) if there else testbed.made("mixed", say, mpl=len(MIX), users=owners)

    kept.begin({"seconds": seconds, "receive": receive, "programs": dict(MIX)}, add=add)
    plan = MixedRuns(modes, counts, rounds, seconds, receive == "poll", seed=len(kept.campaigns), tries=tries)
    experiment = Experiment(place, plan, say)
    kept.keep_each(experiment.run())
    return shown(kept, experiment.refused, out)


def shown(kept: RunLog[MixedRun], refused: Mapping[str, str], out: Path | None) -> int:
    """Print what there is of all campaigns, and write JSON and a plot."""
    cells = judged(kept.campaigns)
    missed = misses(cells)
    told(
        [kept.noted(table(cells)), *not_run(refused), *(f"missed by ccs: {line}" for line in missed)],
        out,
        "mixed.json",
        lambda: kept.document(cells, refused=dict(refused)),
        partial(plot, cells),
    )
    return 1 if missed or not cells or (refused and not any(cell.mode == "ccs" for cell in cells)) else 0
