"""``cosched scheduler``: the service of one cluster."""

import asyncio
import signal
import sys
from pathlib import Path

import click

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
@click.option("--check", is_flag=True, help="Check settings, identity and policy, and end.")
@click.option("--take-over", is_flag=True, help="Give orders also to nodes that obeyed another scheduler.")
def command(config: Path, check: bool, take_over: bool) -> None:
    """Run the scheduler's service in the foreground, until SIGTERM or SIGINT; jobs go on without it.

    It says "ready" on standard output once it listens, and logs to standard error.

    \b
    Example: cosched scheduler --config cluster.yaml --check
    """
    settings = load_cluster(config)
    if not settings.listen.socket and not settings.listen.address:
        raise BadInput(f"{config}: listen", "neither socket nor address", "at least one of them")
    if check:
        for line in _checked(settings, config):
            click.echo(line)
        return
    sys.setswitchinterval(_SWITCH_S)
    asyncio.run(_run(settings, take_over))


async def _run(settings: ClusterConfig, take_over: bool) -> None:
    from space_scheduler.service.app import serve  # noqa: PLC0415 (--check needs no web server)

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(settings, stop, lambda: click.echo("ready"), take_over=take_over)


def _checked(settings: ClusterConfig, path: Path) -> list[str]:
    """What the settings come to. Raises :class:`BadInput` and ``Failed`` where the service would not start."""
    from cosched.identity.authority import validities  # noqa: PLC0415 (X.509 is slow to import)
    from cosched.identity.grants import load_grant_key  # noqa: PLC0415
    from cosched.identity.tls import server_context  # noqa: PLC0415
    from space_scheduler.plugins import resolve  # noqa: PLC0415
    from space_scheduler.service.listen import checked_path  # noqa: PLC0415

    listen = settings.listen
    resolve(settings.policy, settings.order, where=f"{path}: policy")
    lines = [f"cluster {settings.name}: {len(settings.nodes)} nodes may join, policy {settings.policy}"]
    if listen.socket:
        lines.append(f"users of this host: {checked_path(Path(listen.socket))}")
    if listen.address:
        identity = Path(settings.identity)
        server_context(identity)
        load_grant_key(identity)
        lines.append(f"agents and remote users: {listen.address} port {listen.port}, TLS with {identity}")
        lines += [f"{each.path}: valid for {each.days_left:.0f} days" for each in validities(identity)]
    else:
        lines.append("no listen.address: no agent can join, and nothing will start")
    lines.append(f"journal: {Path(settings.state) / 'journal.db'}")
    return lines
