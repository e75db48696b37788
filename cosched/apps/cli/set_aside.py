"""``cosched set-aside``: nodes, jobs, launches and policies that are set aside, and what brings each back."""

import click

from cosched.apps.cli.shared.verb import Answer, asks, says, wide_option
from cosched.apps.cli.shared.words import clock
from cosched.client.client import Client
from cosched.report.table import Table


@click.command("set-aside")
@asks
@wide_option
@says
def command(client: Client, wide: bool) -> Answer:
    """List the nodes, jobs, launches and policies that are set aside: by what, since when, and what brings each back.

    Nodes that are drained, lost or refused, jobs that are held or cannot be ended, launches that failed and are tried
    again, users whom an owner does not take, a policy that fails, a journal that cannot be written. Operators see all
    of it, others service, policy, nodes and jobs of their own.

    \b
    Example: cosched set-aside
    """
    found = client.set_aside()
    if not found.set_aside:
        return Answer(found, ["nothing is set aside"])
    columns = ("kind", "name", "user", "what", "by", "since", "comes back")
    rows = [
        (each.kind, each.name, each.user, each.what, each.by, clock(each.since) or "not known", each.back)
        for each in found.set_aside
    ]
    return Answer(found, [Table("Set aside", columns, [*rows], cut=("what", "comes back"), wide=wide)])
