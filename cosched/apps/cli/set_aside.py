"""``cosched set-aside``: nodes, jobs, launches and policies that are set aside, and what brings each back."""

import click

from cosched.apps.cli.shared.service import clock, echo_json, json_option, service, wide_option
from cosched.client.find import connect


@click.command("set-aside")
@service
@wide_option
@json_option
def command(wide: bool, as_json: bool, server: str | None, lab: str | None) -> None:
    """List the nodes, jobs, launches and policies that are set aside: by what, since when, and what brings each back.

    Nodes that are drained, lost or refused, jobs that are held or cannot be ended, launches that failed and are tried
    again, users whom an owner does not take, a policy that fails, a journal that cannot be written. Operators see all
    of it, others service, policy, nodes and jobs of their own.

    \b
    Example: cosched set-aside
    """
    with connect(server, lab) as client:
        found = client.set_aside()
    if as_json:
        echo_json(found)
        return
    if not found.set_aside:
        click.echo("nothing is set aside")
        return
    from cosched.report.table import Table  # noqa: PLC0415 (rich, only where a table is drawn)

    table = Table("Set aside", ("kind", "name", "user", "what", "by", "since", "comes back"))
    for each in found.set_aside:
        since = clock(each.since) if each.since else "not known"
        table.add(each.kind, each.name, each.user, each.what, each.by, since, each.back)
    table.show_lines(wide=wide, cut=("what", "comes back"))
