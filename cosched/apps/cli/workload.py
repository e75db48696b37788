"""``cosched workload``: statistics, conversion, generation, fetching and live play of workloads."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np

from cosched.apps.cli.shared import show
from cosched.apps.cli.shared.options import experiment as make_experiment
from cosched.apps.cli.shared.options import settings
from cosched.apps.cli.shared.outputs import check_targets
from cosched.apps.cli.shared.values import refuse
from cosched.apps.cli.shared.verb import Answer, says
from cosched.apps.cli.workload_play import play
from cosched.errors import BadInput
from cosched.model.time import humanised, us
from cosched.report.table import STDOUT, Table
from cosched.workload import catalogue, rules, scaling, shapes, stats, swf
from cosched.workload.generators import registry
from space_scheduler.simulator.experiment import find_log


@click.group("workload")
def command() -> None:
    """Statistics, conversion, generation and live play of workloads.

    \b
    Example: cosched workload stats KTH-SP2-1996-2.1-cln.swf.gz
    """


command.add_command(play)


@command.command("stats")
@click.argument("log")
@settings
@click.option("--top", type=click.IntRange(0, 1000), default=10, show_default=True, help="Users listed by their work.")
@says
def stats_command(log: str, top: int, **given: Any) -> Answer:
    """Describe a log: sizes, times, load, months, users, how good the estimates are.

    LOG is a file, or the name of a public log ('cosched workload logs' lists them).

    \b
    Example: cosched workload stats LANL-CM5-1994-4.1-cln.swf.gz --json
    """
    experiment = make_experiment(given | {"log": log})
    read = swf.read(find_log(log), strict=experiment.strict, extra_columns=experiment.extra_columns)
    found = stats.statistics(read, rules=experiment.input_rules, procs_total=experiment.procs, top_users=top)
    return Answer(found, _statistics(found))


def _statistics(found: stats.LogStatistics) -> Iterator[str | Table]:
    load = f"{found.offered_load:.3f}" if found.offered_load is not None else "unknown"
    yield (
        f"{found.name}: {found.jobs} jobs over {humanised(us(found.span_s))} on {found.procs_total} processors "
        f"({found.procs_total_from}), offered load {load}"
    )
    quantiles = {
        "run time s": found.run_s,
        "processors": found.procs,
        "request s": found.request_s,
        "inter-arrival s": found.interarrival_s,
    }
    shares = (
        f"serial jobs {found.serial_ratio:.1%}, sizes that are powers of two {found.power_of_two_ratio:.1%}, "
        f"{found.users} users"
    )
    yield Table(
        "Quantiles",
        ("of", *stats.Quantiles.__struct_fields__),
        [(name, *msgspec.structs.astuple(values)) for name, values in quantiles.items() if values is not None],
        [shares, *show.counts(found.skipped, found.adjusted)],
    )
    yield Table(f"Jobs by month of submission ({found.months_by})", ("month", "jobs"), [*found.months.items()])
    if found.top_users:
        yield Table(
            "Users by work", stats.UserShare.__struct_fields__, [*map(msgspec.structs.astuple, found.top_users)]
        )
    if found.accuracy.jobs:
        yield _accuracy(found.accuracy)


def _accuracy(accuracy: stats.Accuracy) -> Table:
    most = max(accuracy.histogram, default=1) or 1
    width = 100 // max(1, len(accuracy.histogram))
    rows: list[Sequence[object]] = [
        (f"{i * width:3}-{(i + 1) * width} %", jobs, "▇" * round(30 * jobs / most))
        for i, jobs in enumerate(accuracy.histogram)
    ]
    note = (
        f"exactly 100 %: {accuracy.exactly_100} jobs; rounds to 100 %: {accuracy.rounds_to_100}; "
        f"above (not in the histogram): {accuracy.above_100}; mean {accuracy.mean_ratio:.3f} of {accuracy.jobs} jobs"
    )
    return Table(f"Run time as a share of the request ({accuracy.subset})", ("share", "jobs", ""), rows, [note])


@command.command("convert")
@click.argument("log")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--load", type=float, help="Scale inter-arrival times to this offered load.")
@click.option("--factor", type=float, help="Multiply inter-arrival times by this factor.")
@click.option("--procs", type=click.IntRange(1), help="Processors of the machine, for --load.")
@click.option("--strict", is_flag=True, help="Stop at the first line that cannot be used.")
@click.option(
    "--extra-columns",
    type=click.Choice([rule.value for rule in swf.ExtraColumns]),
    default=swf.ExtraColumns.SKIP.value,
    show_default=True,
    help="Lines of over 18 columns: skip, or ignore the rest.",
)
@click.option("--force", is_flag=True, help="Replace TARGET if it is there.")
@says
def convert_command(
    log: str,
    target: Path,
    load: float | None,
    factor: float | None,
    procs: int | None,
    strict: bool,
    extra_columns: str,
    force: bool,
) -> Answer:
    """Read a log and write it again: cleaned of bad lines, compressed (.swf.gz) or not (.swf), its load scaled.

    \b
    Example: cosched workload convert KTH-SP2-1996-2.1-cln.swf.gz busier.swf.gz --load 0.9
    """
    if load is not None and factor is not None:
        raise BadInput("--factor", "given together with --load", "one of the two")
    source = find_log(log)
    check_targets((target,), source)
    _check_target(target, force=force)
    read = swf.read(source, strict=strict, extra_columns=swf.ExtraColumns(extra_columns))
    if strict:
        rules.check_numbers(read)
    if load is not None:
        read = scaling.to_load(read, load, procs_total=procs)
    if factor is not None:
        read = scaling.by_factor(read, factor)
    swf.write(read, target)
    lines = [f"{target}: {len(read)} jobs", *show.counts(read.skipped, {})]
    return Answer({"target": str(target), "jobs": len(read), "skipped": read.skipped}, lines)


@command.command("generate")
@click.argument("model")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--jobs", type=click.IntRange(1, 100_000_000), default=10_000, show_default=True, help="How many jobs.")
@click.option("--procs", type=click.IntRange(1), default=128, show_default=True, help="Processors of the machine.")
@click.option("--load", type=float, help="Scale inter-arrival times to this offered load.")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="Seed of all random choices.")
@click.option("--set", "parameters", metavar="KEY=VALUE", multiple=True, help="A parameter of the model; repeatable.")
@click.option(
    "--shapes",
    "shapes_target",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Write the widths of the jobs too, for 'simulate --shapes', where the model has jobs of several.",
)
@click.option("--force", is_flag=True, help="Replace TARGET if it is there.")
@says
def generate_command(
    model: str,
    target: Path,
    jobs: int,
    procs: int,
    load: float | None,
    seed: int,
    parameters: tuple[str, ...],
    shapes_target: Path | None,
    force: bool,
) -> Answer:
    """Generate a workload by a model: poisson, feitelson96, lublin03, cisne, utrera05, kale02 or
    ngubiri06.

    \b
    Examples:
      cosched workload generate lublin03 load80.swf.gz --jobs 20000 --procs 256 --load 0.8 --seed 7
      cosched workload generate poisson small.swf --jobs 100 --set sizes=powers-of-two
      cosched workload generate cisne sit.swf --jobs 90 --procs 16 --set ratio=0.2
      cosched workload generate utrera05 bfm.swf --jobs 120 --procs 60 --set utilisation=0.8 --shapes bfm.csv
      cosched workload generate kale02 adaptive.swf --procs 64 --set load_factor=0.9 --shapes adaptive.csv
      cosched workload generate ngubiri06 clusters.swf --jobs 20000 --procs 100 --set q=0.85
    """
    _check_target(target, force=force)
    if shapes_target:
        _check_place(shapes_target, force=force)
    if bare := [each for each in parameters if "=" not in each]:
        raise BadInput("--set", f"{bare[0]!r}", "KEY=VALUE")
    params: dict[str, object] = {**dict(each.split("=", 1) for each in parameters)}
    log, lines = registry.generate_shaped(model, jobs, procs, np.random.default_rng(seed), params, load=load)
    if shapes_target and not lines:
        expected = "a model with jobs of several widths: utrera05 or kale02"
        raise BadInput("--shapes", f"model {model}: all jobs are rigid", expected)
    swf.write(log, target)
    if shapes_target:
        shapes.write(lines, shapes_target)
    offered = scaling.offered_load(log, procs_total=procs)
    made = {"target": str(target), "jobs": len(log), "model": model, "procs": procs, "seed": seed}
    told = f"{target}: {len(log)} jobs by {model} on {procs} processors, offered load {offered:.3f}, seed {seed}"
    return Answer(made | {"offered_load": offered}, [told])


@command.command("logs")
@says
def logs_command() -> Answer:
    """List the public logs that are known by name, and where they are here.

    \b
    Example: cosched workload logs
    """
    places = {name: catalogue.find(name) for name in catalogue.LOGS}
    table = Table(
        "Public logs (Parallel Workloads Archive)",
        ("name", "provider", "found"),
        [(name, catalogue.LOGS[name].provider, str(path) if path else None) for name, path in places.items()],
        ["'cosched workload fetch NAME' downloads one; acknowledge provider and archive in what you publish"],
    )
    return Answer(table.as_dicts(), [table])


@command.command("fetch")
@click.argument("name")
@says
def fetch_command(name: str) -> Answer:
    """Download a public log into the cache, and check it.

    \b
    Example: cosched workload fetch KTH-SP2-1996-2.1-cln
    """
    path = str(catalogue.fetch(name))
    return Answer({"path": path}, [path])


def _check_target(target: Path, *, force: bool) -> None:
    """Refuse what is no name of a log, and one that is there unless it may be replaced."""
    if not target.name.endswith((".swf", ".swf.gz")):
        raise BadInput(str(target), "unknown log format", "an ending of .swf or .swf.gz")
    _check_place(target, force=force)


def _check_place(target: Path, *, force: bool) -> None:
    """Refuse a file that cannot be made, and one that is there unless it may be replaced."""
    refuse(
        (target == STDOUT, "-", "standard output", "a file's name"),
        (not target.absolute().parent.is_dir(), str(target), f"no directory {target.parent}", "an existing directory"),
        (target.is_file() and not force, str(target), "it is there already", "another name, or --force to replace it"),
    )
