"""``cosched bench``: the experiments behind what is claimed of the live system, on any lab or cluster."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import click

from cosched.apps.cli.bench_contract import contract
from cosched.apps.cli.bench_contract import shown as contract_shown
from cosched.apps.cli.bench_memory import RUNS as MEMORY_RUNS
from cosched.apps.cli.bench_memory import memory
from cosched.apps.cli.bench_memory import shown as memory_shown
from cosched.apps.cli.bench_mixed import mixed
from cosched.apps.cli.bench_mixed import shown as mixed_shown
from cosched.apps.cli.bench_model import model
from cosched.apps.cli.shared.campaign import modes_option, not_run, seconds_option, told, tries_option
from cosched.apps.cli.shared.values import whole_number
from cosched.apps.cli.shared.verb import say, service
from cosched.apps.experiments import testbed
from cosched.apps.experiments.contract import RUNS as CONTRACT_RUNS
from cosched.apps.experiments.contract import Measured
from cosched.apps.experiments.coscheduling import WARM_S, CoschedulingRuns, Experiment
from cosched.apps.experiments.matrix import COMPANIES, MODES, WORKS, Run, judged
from cosched.apps.experiments.memory import MemoryRun
from cosched.apps.experiments.mixed import RUNS as MIXED_RUNS
from cosched.apps.experiments.mixed import MixedRun
from cosched.apps.experiments.results import misses, plot, table
from cosched.apps.experiments.run_log import RunLog, writable
from cosched.client.client import Client
from cosched.config.units import duration_us
from cosched.errors import BadInput

Named = TypeVar("Named")
_AWAY_S: Final = 30.0
#: Where runs are kept, in the directory of results.
RUNS: Final = "coscheduling-runs"


@click.group("bench")
def command() -> None:
    """Measure what is claimed of the live system.

    \b
    Example: cosched bench coscheduling --rounds 5 --out results
    """


for _command in (contract, memory, mixed, model):
    command.add_command(_command)


@command.command("coscheduling")
@modes_option(*MODES, told="Modes to compare.")
@click.option("--works", default="", metavar="LIST", help="Only jobs whose names have one of these words in them.")
@click.option("--beside", default="", metavar="LIST", help="Only company whose name has one of these words in it.")
@click.option("--rounds", default="5", callback=whole_number(1, 1000), show_default=True, help="Runs of each cell.")
@tries_option
@seconds_option(2.0, "Seconds of computing in a run's measured part.", least=0.1)
@click.option(
    "--clock-shift",
    default="0ms",
    show_default=True,
    metavar="TIME",
    help="In the lab it makes: by how much one node is wrong about the cluster's clock.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Directory for the runs, JSON and plots.")
@click.option("--add", is_flag=True, help="Add to the runs that --out has of earlier calls.")
@service
def coscheduling(
    modes: list[str],
    works: str,
    beside: str,
    rounds: int,
    tries: int,
    seconds: float,
    clock_shift: str,
    out: Path | None,
    add: bool,
    server: str | None,
    lab: str | None,
) -> int:
    """Compare coscheduling modes: jobs that communicate beside computing tasks, and beside each other.

    Without --server or --lab it makes a lab of two nodes with a CPU each, and ends it. A cluster needs nodes of one
    CPU, on which three tasks may run ('contract.mpl: 3', 'place: spread'); nothing else may run there meanwhile.
    Exit status 1 when a cell of ccs misses a goal.

    \b
    Example: cosched bench coscheduling --modes plain,ccs --works 'yield, 1 ms' --rounds 3 --out results
    """
    chosen_works = _named(WORKS, works, "--works")
    company = _named(COMPANIES, beside, "--beside")
    kept = RunLog(out, RUNS, Run)
    shift_us = duration_us(clock_shift, "--clock-shift")
    there = testbed.is_there(server, lab)
    if shift_us and there:
        raise BadInput("--clock-shift", clock_shift, "a lab that this command makes: neither --server nor --lab")
    how = {"seconds": seconds, "warm_seconds": WARM_S, "clock_shift_us": shift_us}

    if not there:
        kept.begin({**how, "nodes": testbed.NODES}, add=add)
    with testbed.found(server, lab) if there else testbed.made("bench", say, mpl=3, clock_shift_us=shift_us) as place:
        if there:
            kept.begin({**how, "nodes": place.nodes}, add=add)
        _owners_away(place.client)
        plan = CoschedulingRuns(
            chosen_works, company, modes, rounds, seconds, place.nodes, seed=len(kept.campaigns), tries=tries
        )
        experiment = Experiment(place.client, plan, say, place.lab)
        kept.keep_each(experiment.run())
    return _shown(kept, experiment.refused, out)


def _owners_away(client: Client) -> None:
    """Wait until no contract holds parallel work back; where one does for good, say so and go on."""
    deadline_s = time.monotonic() + _AWAY_S
    while armed := [node.name for node in client.nodes() if node.state == "up" and node.armed is not False]:
        if time.monotonic() > deadline_s:
            click.echo(f"the contract holds on {', '.join(armed)}: somebody is there, and rates are of what he leaves")
            return
        time.sleep(0.2)


@command.command("show")
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), help="Directory for JSON and plots; none are made without.")
def show(directory: Path, out: Path | None) -> int:
    """Show the runs of all campaigns in a directory again, also of one that was interrupted.

    \b
    Example: cosched bench show results
    """
    writable(out)
    logs = [(RunLog(directory, name, kind), shown) for name, (kind, shown) in _KINDS.items()]
    found = [shown(kept, out) for kept, shown in logs if kept.campaigns]
    if not found:
        names = ", ".join(f"{name}.jsonl" for name in _KINDS)
        raise BadInput("DIR", str(directory), f"a directory with one of {names}")
    return max(found)


def _shown(kept: RunLog[Run], refused: Mapping[str, str], out: Path | None) -> int:
    cells = judged(kept.campaigns)
    missed = misses(cells)
    told(
        [kept.noted(table(cells)), *not_run(refused), *(f"missed by ccs: {line}" for line in missed)],
        out,
        "coscheduling.json",
        lambda: kept.document(cells, refused=dict(refused)),
        partial(plot, cells),
    )
    return 1 if missed else 0


#: Runs of each experiment -> their kind, and what shows them.
_KINDS: Final[dict[str, tuple[type[Any], Callable[[RunLog[Any], Path | None], int]]]] = {
    RUNS: (Run, lambda kept, out: _shown(kept, {}, out)),
    CONTRACT_RUNS: (Measured, lambda kept, out: contract_shown(kept, [], {}, out)),
    MEMORY_RUNS: (MemoryRun, memory_shown),
    MIXED_RUNS: (MixedRun, lambda kept, out: mixed_shown(kept, {}, out)),
}


def _named(things: Sequence[Named], words: str, option: str) -> list[Named]:
    """Those whose name has one of the words in it; all without words."""
    names = [str(getattr(each, "name")) for each in things]  # noqa: B009 (of two kinds)
    wanted = [word.strip() for word in words.split(";") if word.strip()]
    chosen = [each for each, name in zip(things, names, strict=True) if not wanted or any(w in name for w in wanted)]
    if not chosen:
        raise BadInput(option, f"{words!r}", f"part of a name, several with ';' between: {'; '.join(names)}")
    return chosen
