"""``cosched node request``, ``sign``, ``accept``, ``admit``: an enrolment's steps, for whoever goes them by hand."""

import os
import pwd
from pathlib import Path
from typing import BinaryIO

import click

from cosched.apps.cli.shared.cluster_directory import known_address
from cosched.apps.cli.shared.values import absolute_path, read_by, refuse
from cosched.apps.cli.shared.verb import Answer, asks, echo_json, says
from cosched.client.client import Client
from cosched.config.node import load_node
from cosched.config.units import size_bytes
from cosched.errors import BadInput, Failed
from cosched.identity.names import checked_name
from cosched.install.layout import AGENT, ROOT, Layout

_MOST_BYTES = size_bytes("64KiB", "request")
_ETC = click.option(
    "--etc",
    default=Layout().etc,
    show_default=True,
    callback=read_by(absolute_path),
    metavar="DIR",
    help="Settings, on this host.",
)


@click.command("request")
@click.argument("name")
@_ETC
@click.option("--again", is_flag=True, help="Also where this host has an identity already; it keeps it until 'accept'.")
def request_command(name: str, etc: str, again: bool) -> None:
    """On a node, as root: make its key, and print the request for a certificate. The key stays here.

    \b
    Example: cosched node request desk1 >desk1.csr
    """
    from cosched.apps.enrol import identity  # noqa: PLC0415 (X.509 is slow to import)

    layout = Layout(etc=etc)
    settings = Path(layout.etc) / "node.toml"
    if not settings.exists():
        raise BadInput(
            str(settings), "no such file", f"settings of {name} ('cosched node render'); or --etc, where they are"
        )
    named, there = load_node(settings).name, Path(layout.identity) / "node.pem"
    refuse((named != name, str(settings), f"this is node {named}", f"node {name}"))
    refuse((not again and there.exists(), str(there), "this host has an identity already", "--again"))
    click.echo(identity.request(Path(layout.etc), name), nl=False)


@click.command("sign")
@click.argument("name")
@click.argument("request", type=click.File("rb"), default="-")
@click.option(
    "--address", "address", metavar="ADDRESS", help="Where others reach it [as the directory has it, or its name]."
)
@click.option("--cluster", "directory", type=click.Path(path_type=Path), metavar="DIR", default=Path(),
              help="What 'cosched init' made [.].")  # fmt: skip
def sign_command(name: str, request: BinaryIO, address: str | None, directory: Path) -> None:
    """Where the authority is: sign a node's request (a file or standard input), and print what 'node accept' takes.

    \b
    Example: cosched node sign desk1 desk1.csr --cluster office >desk1.json
    """
    from cosched.apps.enrol.enrolment import answered  # noqa: PLC0415

    address = address or known_address(directory, checked_name("node", name))
    text = request.read(_MOST_BYTES).decode("ascii", "replace")
    echo_json(answered(directory / "authority", text, name, address))


@click.command("accept")
@click.argument("answer", type=click.File("rb"), default="-")
@_ETC
@click.option("--account", metavar="NAME", help=f"Who reads the key [{AGENT} where there is that account, else root].")
@says
def accept_command(answer: BinaryIO, etc: str, account: str | None) -> Answer:
    """On a node, as root: put the certificate that 'node sign' printed beside its key, whole or not at all.

    An agent that runs takes it by itself, within seconds. A certificate of another key or name changes nothing.

    \b
    Example: cosched node accept desk1.json
    """
    from cosched.apps.enrol import identity  # noqa: PLC0415

    if os.geteuid():
        raise Failed("not root: it cannot give the key to the agent's account")
    chosen = account or (AGENT if any(entry.pw_name == AGENT for entry in pwd.getpwall()) else ROOT)
    place = identity.accept(Path(etc), identity.answer(answer.read(_MOST_BYTES)), chosen)
    return Answer({"identity": str(place), "account": chosen}, [f"{place}: in force; its key is {chosen}'s"])


@click.command("admit")
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@asks
@says
def admit_command(client: Client, names: tuple[str, ...]) -> Answer:
    """Let nodes in at once, without a line in cluster.yaml or a restart (operators).

    \b
    Example: cosched node admit desk1
    """
    for name in names:
        client.admit(name)
    return Answer({"admitted": names}, [f"let in: {', '.join(names)}"])
