"""``cosched bench memory``: what parallel work takes of an owner's working set, with the contract and without."""

import os
from itertools import chain
from pathlib import Path
from typing import Final

import click

from cosched.apps.cli.shared.campaign import seconds_option, told
from cosched.apps.cli.shared.values import whole_number
from cosched.apps.cli.shared.verb import say
from cosched.apps.experiments.desk_under_load import Desk
from cosched.apps.experiments.memory import NODE_BYTES, MemoryExperiment, MemoryRun, place, swap_bytes
from cosched.apps.experiments.memory_results import cells, table, verdict
from cosched.apps.experiments.run_log import RunLog
from cosched.apps.experiments.site import LabDesk
from cosched.apps.lab.lab import Lab
from cosched.config.units import size_bytes

#: Where runs are kept, in the directory of results.
RUNS: Final = "memory-runs"


@click.command("memory")
@click.option("--rounds", default="3", callback=whole_number(1, 1000), show_default=True, help="Runs of each desk.")
@seconds_option(15.0)
@click.option(
    "--swap",
    default="0",
    show_default=True,
    metavar="SIZE",
    help="Make a swap file of this size in /var/tmp for the time of the experiment (1GiB, say; root).",
)
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the runs and JSON.")
@click.option("--add", is_flag=True, help="Add to the runs that --out has of earlier calls.")
def memory(rounds: int, seconds: float, swap: str, out: Path | None, add: bool) -> int:
    """Measure the contract on memory: an owner's working set beside parallel work that wants more than there is.

    Makes a lab of one node of 512 MiB, and ends it. Exit status 1 when the owner loses more than alone, or when an
    unprotected owner loses nothing, so that nothing is shown.

    \b
    Example: cosched bench memory --swap 1GiB --rounds 3 --out results
    """
    size = swap_bytes(swap, 0 if swap == "0" else size_bytes(swap, "--swap"))
    kept = RunLog(out, RUNS, MemoryRun)
    kept.begin({"seconds": seconds}, add=add)

    with (
        place(size) as folder,
        Lab.up(1, name=f"memory-{os.getpid()}", memory_bytes=NODE_BYTES, mpl=4, keep=[folder], say=say) as lab,
        lab.client() as client,
    ):
        desk = Desk(LabDesk(lab), client)
        experiment = MemoryExperiment(
            desk, folder, say, rounds=rounds, seconds=seconds, swap=bool(size), seed=len(kept.campaigns)
        )
        kept.keep_each(experiment.run())
    return shown(kept, out)


def shown(kept: RunLog[MemoryRun], out: Path | None) -> int:
    """Print the table and verdicts, write the file; the command's exit status."""
    found = cells(list(chain.from_iterable(kept.campaigns)))
    swaps = sorted({cell.swap for cell in found})
    problems = {("with" if swap else "without") + " swap": verdict(found, swap=swap) for swap in swaps}
    lines = (f"{swap}: {problem or 'the owner loses no more than alone'}" for swap, problem in problems.items())
    told([kept.noted(table(found)), *lines], out, "memory.json", lambda: kept.document(found, missed=problems))
    return 1 if any(problems.values()) else 0
