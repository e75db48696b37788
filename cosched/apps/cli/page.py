"""``cosched page``: what runs, waits and is promised, in a browser."""

import threading

import click

from cosched.apps.cli.shared.verb import asks
from cosched.client.client import Client
from cosched.client.page import page_of


@click.command("page")
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Of 127.0.0.1 [any that is free].")
@click.option("--no-browser", is_flag=True, help="Print the link, and open nothing.")
@asks
def command(client: Client, port: int, no_browser: bool) -> None:
    """Show the cluster in a browser of this machine: nodes and time, the queue, each job's story.

    The link opens the page once, and soon. The page lives as long as this command: end it with Ctrl-C.

    \b
    Example: cosched page
    """
    show(client, port, browser=not no_browser)


def show(client: Client, port: int = 0, *, browser: bool = True) -> None:
    """Serve the page to this machine's browsers until this is interrupted."""
    with page_of(client, click.echo, port, browser=browser):
        click.echo("It lives as long as this command; Ctrl-C ends it.")
        threading.Event().wait()
