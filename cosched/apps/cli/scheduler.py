"""``cosched scheduler``: the service of one cluster."""

import asyncio
import signal
import sys
from pathlib import Path

import click

from cosched.apps.cli.shared.importing import NO_PUBLIC_AUTHORITIES, environment
from cosched.apps.cli.shared.verb import echo
from cosched.config.cluster import ClusterConfig, load_cluster
from cosched.errors import BadInput

#: How long the core's thread may keep the interpreter while the event loop has somebody to answer (default: 5 ms).
_SWITCH_S = 0.0005


@click.command("scheduler")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=Path("/etc/cosched/cluster.yaml"),
    show_default=True,
    metavar="FILE",
    help="The cluster's settings.",
)
@click.option("--check", is_flag=True, help="Try all that a start does, change nothing, and end.")
@click.option("--take-over", is_flag=True, help="Give orders also to nodes that obeyed another scheduler.")
@click.option(
    "--record",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Keep all that happens in a new file, for cosched replay; scripts and environments of jobs are in it.",
)
@click.option(
    "--backup",
    type=click.Path(path_type=Path),
    metavar="DIRECTORY",
    help="Copy the journal and the documents beside it to a new directory, also beside a running service, and end.",
)
@click.option(
    "--restore",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Put a copy of the journal back in its place, which no scheduler may be using, and end.",
)
@click.option(
    "--forget",
    metavar="USER",
    help="Remove a user's ended jobs, tokens and name from all that is kept, which no scheduler may be using, and end.",
)
def command(
    config: Path,
    check: bool,
    take_over: bool,
    record: Path | None,
    backup: Path | None,
    restore: Path | None,
    forget: str | None,
) -> None:
    """Run the scheduler's service in the foreground, until SIGTERM or SIGINT; jobs go on without it.

    It says "ready" on standard output once it listens, and logs to standard error.

    \b
    Example: cosched scheduler --config cluster.yaml --check
    """
    settings = load_cluster(config)
    if not settings.listen.socket and not settings.listen.address:
        raise BadInput(f"{config}: listen", "neither socket nor address", "at least one of them")
    if check:
        from space_scheduler.service.rehearsal import rehearse  # noqa: PLC0415 (only for this option)

        echo(asyncio.run(rehearse(settings, str(config))))
    elif backup is not None:
        from space_scheduler.service.journal.backup import back_up  # noqa: PLC0415

        back_up(Path(settings.state), backup)
        click.echo(f"{backup}: the journal and the documents beside it, as they are now")
    elif restore is not None:
        from space_scheduler.service.journal.backup import restore as put_back  # noqa: PLC0415

        aside = put_back(Path(settings.state) / "journal.db", restore)
        click.echo(f"{restore} is the journal again; what was in its place: {aside}. Start it with --take-over")
    elif forget is not None:
        from space_scheduler.service.forgetting import forget as forget_user  # noqa: PLC0415

        echo(forget_user(settings, str(config), forget))
    else:
        sys.setswitchinterval(_SWITCH_S)
        asyncio.run(_run(settings, take_over, record))


async def _run(settings: ClusterConfig, take_over: bool, record: Path | None) -> None:
    with environment(NO_PUBLIC_AUTHORITIES):
        from space_scheduler.service.app import serve  # noqa: PLC0415 (slow to import, and settings are checked first)

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop, lambda: click.echo("ready"), take_over=take_over, record=record)
