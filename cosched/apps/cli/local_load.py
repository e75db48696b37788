"""``cosched local-load``: synthetic users at desks, what they feel, and what was recorded of real ones."""

import selectors
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec

from cosched.apps.cli import local_load_record, local_load_run
from cosched.apps.cli.shared.verb import Answer, says
from cosched.errors import BadInput, Failed, nearest
from cosched.report.table import Table
from local_load import peer
from local_load import profile as profiles
from local_load.probe import CALLS


@click.group("local-load")
def command() -> None:
    """Synthetic local users, and how the machine feels to them.

    \b
    Example: cosched local-load run --profile xwindows --seconds 60
    """


for _command in (local_load_run.run, local_load_run.probe, local_load_record.record, local_load_record.presence):
    command.add_command(_command)


@command.command("profiles")
@click.argument("profile", required=False)
@says
def profiles_(profile: str | None) -> Answer:
    """List the built-in profiles, or check and show one (a name or a file).

    \b
    Example: cosched local-load profiles internet
    """
    if profile:
        import yaml  # noqa: PLC0415 (only here)

        found = msgspec.to_builtins(profiles.find(profile))
        return Answer(found, [yaml.safe_dump(found, sort_keys=False).rstrip()])
    known = [profiles.find(name) for name in profiles.built_in()]
    columns = ["profile", "CPU", "memory", "network B/s", "of users", "what"]
    rows: list[Sequence[object]] = [
        (
            each.name,
            f"{each.cpu_share:.0%}",
            f"{each.memory_share:.0%}",
            each.network_bytes_per_s,
            f"{each.users_share:.0%}",
            each.about,
        )
        for each in known
    ]
    return Answer(known, [Table("Built-in profiles", columns, rows)])


@command.command("peer")
@click.option("--listen", required=True, metavar="HOST:PORT", help="Where.")
def peer_(listen: str) -> None:
    """Answer the messages of users elsewhere (`run --peer`), until it is interrupted.

    \b
    Example: cosched local-load peer --listen 10.77.0.254:7424
    """
    host, port = peer.address(listen, "--listen")
    with selectors.DefaultSelector() as selector:
        try:
            peer.Peer(selector, host, port)
        except OSError as error:
            raise Failed(f"{listen}: {error.strerror}") from None
        while True:
            for key, _ in selector.select():
                key.data()


@command.command("report")
@click.argument("runs", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="DIR [DIR]")
@click.option("--plot", type=click.Path(path_type=Path), metavar="STEM", help="Draw distributions: STEM.png, STEM.svg.")
@click.option("--call", default="all", show_default=True, metavar="CALL", help="What is drawn.")
@click.option(
    "--write", type=click.Path(path_type=Path), metavar="FILE", help="The last table, .csv, .tsv or .parquet."
)
@says
def report_(runs: tuple[Path, ...], plot: Path | None, call: str, write: Path | None) -> Answer:
    """Percentiles of a run's latencies; with two runs, how the second differs from the first.

    \b
    Example: cosched local-load report results/idle results/loaded --plot results/latency
    """
    from local_load import report, samples  # noqa: PLC0415 (numpy)

    if len(runs) > 2 and not plot:
        raise BadInput("DIR", f"{len(runs)} of them", "one, two to compare, or several with --plot")
    if call != report.ALL and call not in CALLS:
        raise BadInput("--call", repr(call), "all, " + ", ".join(CALLS), nearest=nearest(call, CALLS))
    names = [str(run) if len({each.name for each in runs}) < len(runs) else run.name for run in runs]
    read = {name: samples.read(run)[1] for name, run in zip(names, runs, strict=True)}
    tables = [report.table(each, name) for name, each in read.items()]
    if len(runs) == 2:
        first, second = read.values()
        tables.append(report.comparison(report.differences(first, second), (names[0], names[1])))
    paths = [str(path) for path in report.plot(read, plot, call)] if plot else []
    if write:
        tables[-1].write(write)
    return Answer({table.caption: table.as_dicts() for table in tables} | {"plots": paths}, [*tables, *paths])
