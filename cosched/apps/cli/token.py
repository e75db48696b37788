"""``cosched token create|list|revoke``: how a user without a certificate asks from another machine."""

import os
from pathlib import Path

import click

from cosched.apps.cli.shared.service import echo_json, json_option, local, service
from cosched.client.find import connect
from cosched.config.units import duration_us
from cosched.errors import BadInput
from cosched.identity.names import CA_PEM, TOKEN
from cosched.model.time import US_PER_S
from cosched.wire.api import NewToken, TokenRequest


@click.group("token")
def command() -> None:
    """Tokens: submit from machines where the kernel cannot say who you are.

    \b
    Example: cosched token create --life 30d --label laptop --into cosched-token
    """


@command.command("create")
@click.option("--life", metavar="TIME", default="90d", show_default=True, help="For how long it is good.")
@click.option("--label", default="", help="For yourself: where it is used.")
@click.option("--read-only", is_flag=True, help="For monitoring: it reads /metrics and /v1/cluster, nothing else.")
@click.option("--user", metavar="NAME", help="Whose it is (operators) [yours].")
@click.option(
    "--into", type=click.Path(path_type=Path), metavar="DIR", help="Write it and the authority's certificate there."
)
@service
@json_option
def create_command(
    life: str,
    label: str,
    read_only: bool,
    user: str | None,
    into: Path | None,
    server: str | None,
    lab: str | None,
    as_json: bool,
) -> None:
    """Make a token. It is shown this once: the service keeps a hash of it.

    With --into DIR the directory is what belongs into ~/.config/cosched of the machine where it is used.

    \b
    Example: cosched token create --life 30d --label laptop --into cosched-token
    """
    life_s = duration_us(life, "--life") / US_PER_S
    if into is not None and into.exists():
        raise BadInput(str(into), "is there already", "a new directory: nothing is written over")
    with connect(server, lab) as client:
        made = client.create_token(TokenRequest(life_s, user, label, read_only))
    if into is not None:
        _write(into, made)
    if as_json:
        echo_json(made)
        return
    about = f"{made.token.id} of {made.token.user}, good until {local(made.token.expires)}"
    if into is not None:
        if read_only:
            click.echo(f"token {about}, in {into}/: for Prometheus, which may read /metrics with it, once its account")
            click.echo(f"  can read the file on its host: chgrp -R prometheus {into} && chmod -R g+rX {into}")
            return
        click.echo(f"token {about}, in {into}/: copy it to ~/.config/cosched of the machine where it is used, then")
        click.echo("  cosched queue --server https://HOST:7420")
        return
    click.echo(made.words)
    click.echo(f"token {about}; into ~/.config/cosched/{TOKEN}, mode 0600, beside the authority's {CA_PEM}", err=True)


@command.command("list")
@service
@json_option
def list_command(server: str | None, lab: str | None, as_json: bool) -> None:
    """List your tokens (an operator: everybody's), without their secrets.

    \b
    Example: cosched token list
    """
    with connect(server, lab) as client:
        tokens = client.tokens()
    if as_json:
        echo_json({"tokens": tokens})
        return
    if not tokens:
        click.echo("no tokens: 'cosched token create' makes one")
        return
    from cosched.report.table import Table, console  # noqa: PLC0415 (rich, only where a table is drawn)

    table = Table("Tokens", ("id", "user", "label", "made", "good until"))
    for each in tokens:
        until = local(each.expires) + (" (expired)" if each.expired else "") + (", reads" if each.read_only else "")
        table.add(each.id, each.user, each.label, local(each.created), until)
    table.show(console())


@command.command("revoke")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@service
@json_option
def revoke_command(ids: tuple[str, ...], server: str | None, lab: str | None, as_json: bool) -> None:
    """Let tokens be worth nothing, from now on.

    \b
    Example: cosched token revoke 3f9c20aa17
    """
    with connect(server, lab) as client:
        gone = [client.revoke_token(each) for each in dict.fromkeys(ids)]
    if as_json:
        echo_json({"revoked": gone})
        return
    for each in gone:
        click.echo(f"token {each.id} of {each.user} revoked")


def _write(directory: Path, made: NewToken) -> None:
    """The token and the authority's certificate in a directory of their own. Raises OSError."""
    directory.mkdir(mode=0o700)
    (directory / CA_PEM).write_text(made.authority, encoding="ascii")
    descriptor = os.open(directory / TOKEN, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(made.words + "\n")
