"""``cosched policy show|set``: the policy of a live system."""

import click

from cosched.apps.cli.shared.service import echo_json, json_option, service
from cosched.client.find import connect
from cosched.wire.api import PolicyRequest


@click.group("policy")
def command() -> None:
    """Show the policy of the live system, or choose another (operators).

    \b
    Example: cosched policy set conservative
    """


@command.command("show")
@service
@json_option
def show_command(as_json: bool, server: str | None, lab: str | None) -> None:
    """Print the policy that decides now.

    \b
    Example: cosched policy show
    """
    with connect(server, lab) as client:
        cluster = client.cluster()
    if as_json:
        echo_json({"policy": cluster.policy})
    else:
        click.echo(cluster.policy)


@command.command("set")
@click.argument("name")
@click.option("--order", metavar="NAME", help="The order of the queue, where it is not the policy's own.")
@service
@json_option
def set_command(name: str, order: str | None, as_json: bool, server: str | None, lab: str | None) -> None:
    """Have another policy decide from now on; jobs that run go on, and those that wait are promised anew.

    It lasts until the scheduler is started again: write it in cluster.yaml to keep it.

    \b
    Example: cosched policy set conservative
    """
    with connect(server, lab) as client:
        chosen = client.choose_policy(PolicyRequest(name, order))
    if as_json:
        echo_json(chosen)
        return
    click.echo(f"{chosen.policy} decides from now on; before: {chosen.before}")
    if chosen.policy != chosen.settings:
        click.echo(f"the next start has {chosen.settings} again, unless cluster.yaml says policy: {chosen.policy}")
