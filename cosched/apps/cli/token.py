"""``cosched token create|list|revoke``: how a user without a certificate asks from another machine."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from cosched.apps.cli.shared.values import read_by
from cosched.apps.cli.shared.verb import Answer, asks, say, says
from cosched.apps.cli.shared.words import local
from cosched.client.client import Client
from cosched.config.units import duration_us
from cosched.errors import BadInput
from cosched.identity.names import CA_PEM, TOKEN
from cosched.model.time import US_PER_S
from cosched.report.table import Table
from cosched.wire.api import NewToken, TokenRequest


def _new(path: Path, _option: str) -> Path:
    if path.exists():
        raise BadInput(str(path), "is there already", "a new directory: nothing is written over")
    return path


@click.group("token")
def command() -> None:
    """Tokens: submit from machines where the kernel cannot say who you are.

    \b
    Example: cosched token create --life 30d --label laptop --into cosched-token
    """


@command.command("create")
@click.option(
    "--life",
    "life_us",
    metavar="TIME",
    default="90d",
    show_default=True,
    callback=read_by(duration_us),
    help="For how long it is good.",
)
@click.option("--label", default="", help="For yourself: where it is used.")
@click.option("--read-only", is_flag=True, help="For monitoring: it reads /metrics and /v1/cluster, nothing else.")
@click.option("--user", metavar="NAME", help="Whose it is (operators) [yours].")
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    metavar="DIR",
    callback=read_by(_new),
    help="Write it and the authority's certificate there.",
)
@asks
@says
def create_command(
    client: Client, life_us: int, label: str, read_only: bool, user: str | None, into: Path | None
) -> Answer:
    """Make a token. It is shown this once: the service keeps a hash of it.

    With --into DIR the directory is what belongs into ~/.config/cosched of the machine where it is used.

    \b
    Example: cosched token create --life 30d --label laptop --into cosched-token
    """
    made = client.create_token(TokenRequest(life_us / US_PER_S, user, label, read_only))
    if into is not None:
        into.mkdir(mode=0o700)
        (into / CA_PEM).write_text(made.authority, encoding="ascii")
        (into / TOKEN).touch(0o600, exist_ok=False)
        (into / TOKEN).write_text(made.words + "\n", encoding="ascii")
    return Answer(made, _made(made, into, read_only=read_only))


def _made(made: NewToken, into: Path | None, *, read_only: bool) -> Iterator[str]:
    about = f"token {made.token.id} of {made.token.user}, good until {local(made.token.expires)}"
    if into is None:
        yield made.words
        say(f"{about}; into ~/.config/cosched/{TOKEN}, mode 0600, beside the authority's {CA_PEM}")
    elif read_only:
        yield f"{about}, in {into}/: for Prometheus, which may read /metrics with it, once its account"
        yield f"  can read the file on its host: chgrp -R prometheus {into} && chmod -R g+rX {into}"
    else:
        yield f"{about}, in {into}/: copy it to ~/.config/cosched of the machine where it is used, then"
        yield "  cosched queue --server https://HOST:7420"


@command.command("list")
@asks
@says
def list_command(client: Client) -> Answer:
    """List your tokens (an operator: everybody's), without their secrets.

    \b
    Example: cosched token list
    """
    tokens = client.tokens()
    if not tokens:
        return Answer({"tokens": tokens}, ["no tokens: 'cosched token create' makes one"])
    marks = ((" (expired)" if each.expired else "") + (", reads" if each.read_only else "") for each in tokens)
    rows: list[Sequence[object]] = [
        (each.id, each.user, each.label, local(each.created), local(each.expires) + mark)
        for each, mark in zip(tokens, marks, strict=True)
    ]
    return Answer({"tokens": tokens}, [Table("Tokens", ("id", "user", "label", "made", "good until"), rows)])


@command.command("revoke")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@asks
@says
def revoke_command(client: Client, ids: tuple[str, ...]) -> Answer:
    """Let tokens be worth nothing, from now on.

    \b
    Example: cosched token revoke 3f9c20aa17
    """
    gone = [client.revoke_token(each) for each in dict.fromkeys(ids)]
    return Answer({"revoked": gone}, [f"token {each.id} of {each.user} revoked" for each in gone])
