"""``cosched bench``: the experiments behind what is claimed of the live system, on any lab or cluster."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeVar

import click

from cosched.bench.cells import COMPANIES, MODES, WORKS, Run, judged
from cosched.bench.contract import RUNS as CONTRACT_RUNS
from cosched.bench.contract import Measured
from cosched.bench.coscheduling import WARM_S, Experiment, Plan
from cosched.bench.kept import Kept, writable
from cosched.bench.memory import MemoryRun
from cosched.bench.mixed import RUNS as MIXED_RUNS
from cosched.bench.mixed import MixedRun
from cosched.bench.results import document, misses, plot, table
from cosched.cli.bench_contract import contract
from cosched.cli.bench_contract import shown as contract_shown
from cosched.cli.bench_memory import RUNS as MEMORY_RUNS
from cosched.cli.bench_memory import memory
from cosched.cli.bench_memory import shown as memory_shown
from cosched.cli.bench_mixed import mixed
from cosched.cli.bench_mixed import shown as mixed_shown
from cosched.cli.bench_model import model
from cosched.cli.service import service, whole_number
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.config.units import duration_us
from cosched.errors import BadInput, Failed, nearest
from cosched.lab.lab import Lab
from cosched.report.table import console

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


command.add_command(contract)
command.add_command(memory)
command.add_command(mixed)
command.add_command(model)


@command.command("coscheduling")
@click.option("--modes", default=",".join(MODES), show_default=True, metavar="LIST", help="Modes to compare.")
@click.option("--works", default="", metavar="LIST", help="Only jobs whose names have one of these words in them.")
@click.option("--beside", default="", metavar="LIST", help="Only company whose name has one of these words in it.")
@click.option("--rounds", default="5", callback=whole_number(1, 1000), show_default=True, help="Runs of each cell.")
@click.option(
    "--seconds", type=float, default=2.0, show_default=True, help="Seconds of computing in a run's measured part."
)
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
    modes: str,
    works: str,
    beside: str,
    rounds: int,
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
    chosen_modes = [_one(mode.strip(), MODES, "--modes") for mode in modes.split(",") if mode.strip()]
    chosen_works = _named(WORKS, works, "--works")
    company = _named(COMPANIES, beside, "--beside")
    if not 0.1 <= seconds <= 600:
        raise BadInput("--seconds", f"{seconds:g}", "0.1 to 600")
    kept = Kept(out, RUNS, Run)
    shift_us = duration_us(clock_shift, "--clock-shift")
    if shift_us and (server or lab):
        raise BadInput("--clock-shift", clock_shift, "a lab that this command makes: neither --server nor --lab")
    how = {"seconds": seconds, "warm_seconds": WARM_S, "clock_shift_us": shift_us}

    def measure(client: Client, nodes: int, ours: str | None = None) -> int:
        _owners_away(client)
        plan = Plan(chosen_works, company, chosen_modes, rounds, seconds, nodes, seed=len(kept.campaigns))
        experiment = Experiment(client, plan, lambda text: click.echo(text, err=True), ours)
        for run in experiment.run():
            kept.keep(run)
        return _shown(kept, experiment.refused, out)

    if server or lab or os.environ.get("COSCHED_SERVER"):
        with connect(server, lab) as client:
            nodes = len([node for node in client.nodes() if node.state == "up"])
            kept.begin({**how, "nodes": nodes}, add=add)
            return measure(client, nodes)
    cpus = len(os.sched_getaffinity(0))
    if cpus < 2:
        raise Failed("a lab of two nodes with a CPU each needs two CPUs; name a cluster with --server")

    def say(text: str) -> None:
        click.echo(text, err=True)

    kept.begin({**how, "nodes": 2}, add=add)
    with Lab.up(2, name=f"bench-{os.getpid()}", pin=True, mpl=3, clock_shift_us=shift_us, say=say) as made:
        if made.tier != 1:
            raise Failed(f"coscheduling needs control groups, a lab of tier 1: {made.why}")
        with made.client() as client:
            return measure(client, 2, made.name)


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
    coscheduled, felt = Kept(directory, RUNS, Run), Kept(directory, CONTRACT_RUNS, Measured)
    lost = Kept(directory, MEMORY_RUNS, MemoryRun)
    shared = Kept(directory, MIXED_RUNS, MixedRun)
    found = []
    if coscheduled.campaigns:
        found.append(_shown(coscheduled, {}, out))
    if felt.campaigns:
        found.append(contract_shown(felt, [], {}, out))
    if lost.campaigns:
        found.append(memory_shown(lost, out))
    if shared.campaigns:
        found.append(mixed_shown(shared, {}, out))
    if not found:
        names = ", ".join(f"{name}.jsonl" for name in (RUNS, CONTRACT_RUNS, MEMORY_RUNS, MIXED_RUNS))
        raise BadInput("DIR", str(directory), f"a directory with one of {names}")
    return max(found)


def _shown(kept: Kept[Run], refused: Mapping[str, str], out: Path | None) -> int:
    cells = judged(kept.campaigns)
    table(cells).show(console())
    for what, why in refused.items():
        click.echo(f"not run: {what}: {why}")
    missed = misses(cells)
    for line in missed:
        click.echo(f"missed by ccs: {line}")
    if out is not None:
        (out / "coscheduling.json").write_text(document(cells, refused, kept.hows), encoding="utf-8")
        for path in [out / "coscheduling.json", *plot(cells, out)]:
            click.echo(f"wrote {path}")
    return 1 if missed else 0


def _one(word: str, choices: Sequence[str], option: str) -> str:
    if word not in choices:
        raise BadInput(option, f"{word!r}", ", ".join(choices), nearest=nearest(word, choices))
    return word


def _named(things: Sequence[Named], words: str, option: str) -> list[Named]:
    """Those whose name has one of the words in it; all without words."""
    names = [str(getattr(each, "name")) for each in things]  # noqa: B009 (of two kinds)
    wanted = [word.strip() for word in words.split(";") if word.strip()]
    chosen = [each for each, name in zip(things, names, strict=True) if not wanted or any(w in name for w in wanted)]
    if not chosen:
        raise BadInput(option, f"{words!r}", f"part of a name, several with ';' between: {'; '.join(names)}")
    return chosen
