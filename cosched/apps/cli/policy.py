"""``cosched policy show|set``: the policy of a live system."""

import click

from cosched.apps.cli.shared.verb import Answer, asks, says
from cosched.client.client import Client
from cosched.wire.api import PolicyRequest


@click.group("policy")
def command() -> None:
    """Show the policy of the live system, or choose another (operators).

    \b
    Example: cosched policy set conservative
    """


@command.command("show")
@asks
@says
def show_command(client: Client) -> Answer:
    """Print the policy that decides now.

    \b
    Example: cosched policy show
    """
    policy = client.cluster().policy
    return Answer({"policy": policy}, [policy])


@command.command("set")
@click.argument("name")
@click.option("--order", metavar="NAME", help="The order of the queue, where it is not the policy's own.")
@asks
@says
def set_command(client: Client, name: str, order: str | None) -> Answer:
    """Have another policy decide from now on; jobs that run go on, and those that wait are promised anew.

    It lasts until the scheduler is started again: write it in cluster.yaml to keep it.

    \b
    Example: cosched policy set conservative
    """
    chosen = client.choose_policy(PolicyRequest(name, order))
    lines = [f"{chosen.policy} decides from now on; before: {chosen.before}"]
    if chosen.policy != chosen.settings:
        lines.append(f"the next start has {chosen.settings} again, unless cluster.yaml says policy: {chosen.policy}")
    return Answer(chosen, lines)
