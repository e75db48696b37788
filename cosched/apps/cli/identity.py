"""``cosched identity``: an authority, and certificates of scheduler and users for keys that never leave their hosts."""

import sys
from pathlib import Path
from typing import BinaryIO, Final, cast

import click
import msgspec

from cosched.apps.cli.certificates import list_command, revoke_command
from cosched.apps.cli.shared.values import one_of
from cosched.errors import BadInput
from cosched.identity.names import Kind

_MOST_BYTES: Final = 1 << 16
_kind = click.option(
    "--kind",
    default="scheduler",
    show_default=True,
    callback=one_of("scheduler", "user"),
    help="scheduler or user.",
)


@click.group("identity")
def command() -> None:
    """Make an authority, a key with a request for its certificate, and the certificate (operators).

    'cosched init' makes the authority and first settings. A node's certificate comes from 'node request' and 'sign'.

    \b
    Example: cosched identity sign --authority office/authority scheduler <scheduler.csr
    """


command.add_command(list_command)
command.add_command(revoke_command)


@command.command("create")
@click.argument("directory", type=click.Path(path_type=Path))
@click.option("--name", metavar="NAME", required=True, help="The cluster's name.")
def create_command(directory: Path, name: str) -> None:
    """Make a certificate authority in DIRECTORY.

    \b
    Example: cosched identity create office/authority --name office
    """
    from cosched.identity.authority import create_authority  # noqa: PLC0415 (its library takes long to load)

    create_authority(directory, name, grants=False)
    directory.chmod(0o700)
    click.echo(f"{directory}: the authority of {name}; who has its keys makes certificates")


@command.command("request")
@click.argument("name")
@click.option("--into", type=click.Path(path_type=Path), metavar="DIR", required=True, help="Where the key is kept.")
@click.option("--again", is_flag=True, help="With a new key, which counts from 'identity accept' on.")
@_kind
def request_command(name: str, into: Path, again: bool, kind: str) -> None:
    """Print a request for a certificate of the key in DIR/KIND.key, which is made if it is missing.

    A user's DIR is made too.

    \b
    Example: cosched identity request scheduler --into /etc/cosched/identity >scheduler.csr
    """
    from cosched.identity.accepting import fresh_key  # noqa: PLC0415
    from cosched.identity.answers import ask  # noqa: PLC0415
    from cosched.identity.names import certificate, checked_name  # noqa: PLC0415
    from cosched.identity.requests import new_request, request_again, with_grant  # noqa: PLC0415

    checked_name(cast(Kind, kind), name)
    if kind == "user" and not into.exists():  # a scheduler's has an owner and a mode, which its installation says
        into.mkdir(mode=0o700, parents=True)
    if not into.is_dir():
        raise BadInput("--into", f"no directory {into}", "an existing one")
    _, key = certificate(cast(Kind, kind), into)
    if again and key.exists():
        key = fresh_key(cast(Kind, kind), into)
        key.unlink(missing_ok=True)
    request = request_again(name, key) if key.exists() else new_request(name, key)
    ask(cast(Kind, kind), into, name)
    click.echo(with_grant(request, into) if kind == "scheduler" else request, nl=False)


@command.command("sign")
@click.argument("name")
@click.option("--authority", type=click.Path(path_type=Path), metavar="DIR", required=True, help="With ca.key.")
@click.option("--address", "addresses", metavar="ADDRESS", multiple=True, help="At which it is dialled; repeatable.")
@_kind
def sign_command(name: str, authority: Path, addresses: tuple[str, ...], kind: str) -> None:
    """Read a request from standard input; print the files of the identity as JSON, {file's name: text}.

    \b
    Example: cosched identity sign --authority office/authority --address 192.0.2.10 scheduler <scheduler.csr
    """
    from cosched.identity.authority import sign  # noqa: PLC0415
    from cosched.identity.grants import learn_grant_pub  # noqa: PLC0415
    from cosched.identity.requests import requested_grant, requested_key  # noqa: PLC0415

    request = sys.stdin.read(_MOST_BYTES)
    key, grant = requested_key(request), requested_grant(request)
    made = sign(authority, cast(Kind, kind), key, name, addresses)
    if kind == "scheduler" and grant is not None:
        learn_grant_pub(authority, grant)
    click.echo(msgspec.json.encode(made))


@command.command("accept")
@click.argument("answer", type=click.File("rb"), default="-")
@click.option("--into", type=click.Path(path_type=Path), metavar="DIR", required=True, help="Where the key is kept.")
@click.option("--account", metavar="NAME", help="Who reads the key, if not its owner (as root).")
@_kind
def accept_command(answer: BinaryIO, into: Path, account: str | None, kind: str) -> None:
    """Put what 'identity sign' printed beside its key. What is of another key, kind or name changes nothing.

    A scheduler that runs takes it by itself, without a restart.

    \b
    Example: cosched identity accept --kind user --into ~/.config/cosched ada.json
    """
    from cosched.identity.accepting import accept  # noqa: PLC0415

    accept(cast(Kind, kind), into, answer.read(_MOST_BYTES), account)
    click.echo(f"{into}: in force")


@command.command("rotate")
@click.argument("authority", type=click.Path(path_type=Path))
@click.option("--begin", "step", flag_value="begin", help="Make the next authority; it signs nothing yet.")
@click.option("--switch", "step", flag_value="switch", help="Have it sign; the old one's key is gone.")
@click.option("--finish", "step", flag_value="finish", help="Trust it alone.")
def rotate_command(authority: Path, step: str | None) -> None:
    """Replace the authority's key, in three steps; after each the scheduler, all nodes and users are renewed.

    docs/guide/keys.md has the whole way. Jobs go on.

    \b
    Example: cosched identity rotate office/authority --begin
    """
    from cosched.identity import rotation  # noqa: PLC0415

    steps = {"begin": rotation.begin, "switch": rotation.switch, "finish": rotation.finish}
    if step is None:
        raise BadInput("identity rotate", "no step", "--begin, --switch or --finish")
    steps[step](authority)
    click.echo(f"{authority}: done; now renew the scheduler, all nodes and users, then the next step")
