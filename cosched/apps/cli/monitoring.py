"""``cosched monitoring``: what Prometheus is to record, to alert on and to read, and what it finds."""

from pathlib import Path

import click
import msgspec

from cosched.apps.cli.shared.verb import echo_json
from cosched.errors import BadInput
from cosched.monitoring.reference import table
from cosched.monitoring.rendering import Site, rendered
from cosched.monitoring.rules import RUNBOOKS


@click.group("monitoring")
def command() -> None:
    """What Prometheus needs and finds, made of the series that the scheduler exports.

    \b
    Example: cosched monitoring render --into monitoring --scheduler head.example:7420 --cluster office
    """


@command.command("render")
@click.option("--into", type=click.Path(path_type=Path), metavar="DIR", help="Where they are written.")
@click.option("--scheduler", metavar="HOST:PORT", help=f"What is scraped [default: {Site().scheduler}].")
@click.option("--cluster", metavar="NAME", help=f"The label of its series [default: {Site().cluster}].")
@click.option(
    "--desk",
    "desks",
    metavar="NODE=HOST:PORT",
    multiple=True,
    help="Where a node's 'local-load run --listen' is scraped; repeatable.",
)
@click.option("--lab", metavar="NAME", help="What there is to scrape in this lab, for a Prometheus on its head.")
@click.option(
    "--credentials",
    metavar="DIR",
    default="/etc/prometheus/cosched",
    show_default=True,
    help="On Prometheus's host: what 'cosched token create --read-only --into' made.",
)
@click.option("--runbooks", metavar="URL", default=RUNBOOKS, show_default=True, help="Where the runbooks are served.")
@click.option("--faster", metavar="N", type=float, default=1.0, help="All times are so much shorter: for trying.")
@click.option("--dashboards", is_flag=True, help="Grafana's dashboards too (the extra 'dashboards').")
@click.option("--json", "as_json", is_flag=True, help="Print their texts by their names instead.")
def render_command(
    into: Path | None,
    scheduler: str | None,
    cluster: str | None,
    desks: tuple[str, ...],
    lab: str | None,
    credentials: str,
    runbooks: str,
    faster: float,
    dashboards: bool,
    as_json: bool,
) -> None:
    """Write rules and settings for Prometheus into DIR; files of that name are replaced.

    \b
    Example: cosched monitoring render --into monitoring --scheduler head.example:7420 --cluster office
    """
    if not 1 <= faster <= 1000:
        raise BadInput("--faster", f"found {faster:g}", "1 to 1000")
    site = Site()
    if lab:
        from cosched.apps.lab.lab import Lab  # noqa: PLC0415 (only where a lab is named)

        site = Lab(lab).site()
    site = msgspec.structs.replace(
        site,
        scheduler=scheduler or site.scheduler,
        cluster=cluster or site.cluster,
        credentials=credentials,
        runbooks=runbooks,
        faster=faster,
        desks=site.desks | _desks(desks),
    )
    files = rendered(site)
    if dashboards:
        from cosched.monitoring.dashboards.render import files as dashboard_files  # noqa: PLC0415 (of an extra)

        files |= dashboard_files(runbooks)
    if as_json:
        echo_json(files)
        return
    if into is None:
        raise BadInput("--into", "none", "a directory, or --json")
    for name, text in files.items():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_text(text, encoding="utf-8")
        click.echo(into / name)


def _desks(given: tuple[str, ...]) -> dict[str, str]:
    """HOST:PORT by the node's name. Raises :class:`BadInput`."""
    found: dict[str, str] = {}
    for each in given:
        node, _, address = each.partition("=")
        host, _, port = address.rpartition(":")
        if not (node and host and port.isdigit()) or node in found:
            raise BadInput("--desk", repr(each), "NODE=HOST:PORT, once for each node, such as desk1=192.0.2.11:7425")
        found[node] = address
    return found


@command.command("reference")
def reference_command() -> None:
    """Print every series that the scheduler exports, as a table in Markdown.

    \b
    Example: cosched monitoring reference
    """
    click.echo(table(), nl=False)
