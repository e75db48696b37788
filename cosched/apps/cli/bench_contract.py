"""``cosched bench contract``: what the person at a desk feels beside parallel work, and what that still gets."""

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from statistics import median

import click

from cosched.apps.cli.shared.campaign import modes_option, not_run, seconds_option, told, tries_option
from cosched.apps.cli.shared.values import numbers_in, whole_number
from cosched.apps.cli.shared.verb import say, service
from cosched.apps.experiments.contract import (
    CALLS,
    LEAST_TALKING,
    RATE_HZ,
    RUNS,
    ContractRuns,
    Experiment,
    Measured,
    Reaction,
    reactions,
)
from cosched.apps.experiments.contract_results import by_cell, cells, disturbed, plot, table
from cosched.apps.experiments.matrix import MODES
from cosched.apps.experiments.run_log import RunLog
from cosched.apps.experiments.site import LabDesk, Site, ThisDesk
from cosched.apps.lab.lab import Lab
from cosched.client import places
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.config.node import load_node
from cosched.errors import BadInput, Failed

_MODES = tuple(mode for mode in MODES if mode != "plain")
_MOST_TASKS = 8


@click.command("contract")
@modes_option(*_MODES, default="none", told=f"Of {', '.join(_MODES)}.")
@click.option("--tasks", default="1,2,4", show_default=True, metavar="LIST", help="Computing tasks beside the owner.")
@click.option("--talking", is_flag=True, help="Two of the tasks are a job that waits for each other's messages.")
@click.option("--decoys/--no-decoys", default=True, show_default=True, help="Whether the lab's node has decoys.")
@click.option(
    "--events/--no-events",
    default=True,
    show_default=True,
    help="Whether its agent hears keys at once; without, reactions alone are measured.",
)
@click.option("--rounds", default="4", callback=whole_number(1, 1000), show_default=True, help="Runs of each cell.")
@tries_option
@seconds_option(8.0)
@click.option(
    "--reactions",
    "times",
    default="10",
    callback=whole_number(0, 1000),
    show_default=True,
    help="How often a key is timed.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the runs, JSON and the plot.")
@click.option("--add", is_flag=True, help="Add to the runs that --out has of earlier calls.")
@click.option(
    "--config",
    envvar="COSCHED_NODE_CONFIG",
    type=click.Path(path_type=Path),
    default=places.NODE_TOML,
    show_default=True,
    help="With --server: the settings of this machine as a node.",
)
@service
def contract(
    modes: list[str],
    tasks: str,
    talking: bool,
    decoys: bool,
    events: bool,
    rounds: int,
    tries: int,
    seconds: float,
    times: int,
    out: Path | None,
    add: bool,
    config: Path,
    server: str | None,
    lab: str | None,
) -> int:
    """Measure the contract: a desk beside computing tasks, with controls, under each coscheduling mode.

    Without --server or --lab it makes a lab of one node on a CPU of its own, and ends it. With --lab the desk is that
    of the lab's node; with --server it is this machine, a node of that cluster, and you are its owner. The node must
    be the only one that takes jobs, and nothing else should run meanwhile. Exit status 1 when a goal is missed.

    \b
    Example: cosched bench contract --modes none,ccs --tasks 1,4 --rounds 4 --out results
    """
    counts = numbers_in(tasks, "--tasks", 1, _MOST_TASKS, f"numbers from 1 to {_MOST_TASKS}, such as 1,2,4")
    if talking and min(counts) < LEAST_TALKING:
        raise BadInput("--tasks", tasks, f"{LEAST_TALKING} or more with --talking")
    kept = RunLog(out, RUNS, Measured)
    if not server and not lab:
        server = os.environ.get("COSCHED_SERVER")
        lab = None if server else os.environ.get("COSCHED_LAB")
    if (server or lab) and not (decoys and events):
        option = "--no-events" if decoys else "--no-decoys"
        raise BadInput(option, "together with --server or --lab", "a lab that this command makes")

    def begin(decoys: bool, events: bool) -> None:
        how = {"talking": talking, "decoys": decoys, "events": events}
        kept.begin({**how, "seconds": seconds, "rate_hz": RATE_HZ, "calls": list(CALLS)}, add=add)

    def measure(site: Site, client: Client) -> int:
        plan = ContractRuns(counts, modes, rounds, seconds, seed=len(kept.campaigns), talking=talking, tries=tries)
        experiment, reacted = Experiment(site, client, plan, say), []
        if heard := site.settings.presence.events:  # else the probe's keys are seen too seldom to be somebody
            kept.keep_each(experiment.run())
        try:
            reacted = reactions(site, times, say, events=heard)
        except Failed as error:
            experiment.refused["reaction"] = str(error)
        return shown(kept, reacted, experiment.refused, out, site.quiet_s)

    if server or lab:
        with connect(server, lab) as client:
            site = LabDesk(Lab(lab)) if lab else ThisDesk(load_node(config))
            begin(site.settings.cgroup.decoys, site.settings.presence.events)
            return measure(site, client)
    begin(decoys, events)
    name = f"contract-{os.getpid()}"
    with (
        Lab.up(1, name=name, pin=True, mpl=_MOST_TASKS, decoys=decoys, events=events, say=say) as made,
        made.client() as client,
    ):
        return measure(LabDesk(made), client)


def shown(
    kept: RunLog[Measured],
    reacted: Sequence[Reaction],
    refused: Mapping[str, str],
    out: Path | None,
    quiet_s: float = 0.0,
) -> int:
    """Print the table, write the files; the command's exit status. ``quiet_s``: after which the owner is away."""
    found = cells(by_cell(kept.campaigns))
    tables = [kept.noted(table(found))] if found else []
    reactions = _reactions(reacted, quiet_s) if reacted else ()
    told(
        [*tables, *map(_uncounted, disturbed(kept.campaigns)), *reactions, *not_run(refused)],
        out,
        "contract.json",
        lambda: kept.document(found, reactions=[each._asdict() for each in reacted], refused=dict(refused)),
        partial(plot, found),
    )
    return 1 if not (found or reacted) or any(cell.misses for cell in found) else 0


def _uncounted(run: Measured) -> str:
    taken = f"{run.felt.steal:.1%} of the machine was stolen, others used {run.felt.others:.1%}"
    return f"does not count: {run.tasks} tasks, {run.condition}: {taken} in the best of its tries"


def _reactions(reacted: Sequence[Reaction], quiet_s: float) -> Iterator[str]:
    limited_ms, back_s = [1000 * each.limited_s for each in reacted], [each.back_s for each in reacted]
    yield f"first key to the ceiling in force: median {median(limited_ms):.1f} ms, worst {max(limited_ms):.1f} ms"
    yield (
        f"last key to the whole node back: median {median(back_s):.2f} s, {min(back_s):.2f} to {max(back_s):.2f}, "
        f"of which the quiet time is {quiet_s:g} s"
    )
