"""``cosched bench model``: what the simulator predicts of real jobs that share nodes, against what they took."""

from functools import partial
from itertools import chain
from pathlib import Path
from typing import Final

import click
import msgspec

from cosched.apps.cli.shared.campaign import modes_option, told
from cosched.apps.cli.shared.values import whole_number
from cosched.apps.cli.shared.verb import json_text, say
from cosched.apps.experiments import testbed
from cosched.apps.experiments.model import LEVEL, SHAPES, Ran, Series
from cosched.apps.experiments.model_results import judged, plot, table, verdict
from cosched.apps.experiments.run_log import RunLog
from cosched.config import coefficients
from cosched.errors import Failed
from cosched.model.coscheduling import Mode
from space_scheduler.plugins import resolve
from space_scheduler.progress import Sharing

#: Where runs are kept, in the directory of results.
RUNS: Final = "model-runs"


@click.command("model")
@modes_option(*Mode, default="none,ccs")
@click.option("--policy", default="normal", show_default=True, help="Of the service, and of the simulation.")
@click.option("--series", default="4", callback=whole_number(0, 1000), show_default=True, help="A dozen jobs each.")
@click.option("--coefficients", "costs", type=click.Path(path_type=Path), help="Of 'cosched calibrate'.")
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the runs, JSON and the plot.")
@click.option("--add", is_flag=True, help="Add to the runs of --out; with --series 0 only judge them again.")
def model(modes: list[str], policy: str, series: int, costs: Path | None, out: Path | None, add: bool) -> int:
    """Hold the simulator's execution times against those of real jobs that share nodes.

    Makes a lab of two nodes with a CPU each, and ends it. Exit status 1 where half of the jobs or more are predicted
    worse than within 15 %.

    \b
    Example: cosched bench model --modes ccs --series 4 --out results
    """
    resolve(policy)
    read = coefficients.read(costs)
    kept = RunLog(out, RUNS, Ran)

    if series:
        testbed.check_room()
        kept.begin({"policy": policy, "level": LEVEL, "shapes": [str(shape) for shape in SHAPES]}, add=add)
        first = 1 + max((run.series for run in chain.from_iterable(kept.campaigns)), default=0)
        with testbed.made("model", say, mpl=LEVEL, policy=policy) as lab:
            for number in range(first, first + series):
                for mode in modes:
                    kept.keep_each(Series(lab.client, mode, say, lab.lab).run(number))
    return shown(kept, read, out)


def shown(kept: RunLog[Ran], read: coefficients.Coefficients, out: Path | None) -> int:
    """Print the table and verdicts, write the files; the command's exit status."""
    runs = list(chain.from_iterable(kept.campaigns))
    sharings = {mode: Sharing(Mode(mode), read.permille(Mode(mode))) for mode in {run.mode for run in runs}}
    found = judged(runs, sharings, kept.hows[-1]["policy"]) if runs else []
    if not found:
        raise Failed("no job was measured beside others and alone")
    verdicts = [verdict(found, mode) for mode in sorted(sharings)]
    document = {"how": kept.hows, "coefficients": read.made, "jobs": msgspec.to_builtins(found)}
    told(
        [kept.noted(table(found)), *(words for _, words in verdicts)],
        out,
        "model.json",
        lambda: json_text(document, indent=1),
        partial(plot, found),
    )
    return 0 if all(met for met, _ in verdicts) else 1
