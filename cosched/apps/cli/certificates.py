"""``cosched identity list`` and ``revoke``: which certificates there are, and which count no more."""

from pathlib import Path
from typing import Final, cast

import click
import msgspec

from cosched.apps.cli.shared.service import echo_json, json_option, service
from cosched.apps.cli.shared.values import one_of
from cosched.client.find import connect
from cosched.errors import BadInput, Failed
from cosched.identity.issued import Listed, read
from cosched.identity.names import ISSUED, Kind, checked_name
from cosched.wire.api import CertificateDoc, RevokeRequest

_KINDS: Final = ("scheduler", "node", "user")
_authority = click.option(
    "--authority", type=click.Path(path_type=Path), metavar="DIR", help="Whose list of what was issued is read as well."
)


class Certificate(msgspec.Struct, frozen=True):
    """A certificate as it is listed; ``until`` is ISO 8601, a day or a moment, None where nobody here knows it."""

    serial: str
    kind: str
    name: str
    until: str | None
    revoked: bool | None


@click.command("list")
@_authority
@service
@json_option
def list_command(authority: Path | None, server: str | None, lab: str | None, as_json: bool) -> None:
    """List certificates: serial number, whose, until when, whether it was revoked (operators).

    Those that the scheduler has seen since its start or has revoked; with --authority all that were ever issued there,
    also where no scheduler answers.

    \b
    Example: cosched identity list --authority office/authority
    """
    found, expires, problem = _known(server, lab)
    if problem and authority is None:
        raise Failed(problem)
    issued = _issued(authority) if authority is not None else Listed([], [])
    known = None if problem else False
    rows = {each.serial: Certificate(*each, known) for each in issued.entries}
    for each in found:
        until = each.until or (rows[each.serial].until if each.serial in rows else None)
        rows[each.serial] = Certificate(each.serial, each.kind, each.name, until, each.revoked)
    if as_json:
        whole = {"certificates": list(rows.values()), "expires": expires, "problem": problem}
        echo_json(whole | {"damaged": issued.damaged})
        return
    from cosched.report.table import Table, console  # noqa: PLC0415 (rich, only where a table is drawn)

    table = Table("Certificates", ("serial", "whose", "good until", "revoked"))
    for row in rows.values():
        word = "" if row.revoked is None else "revoked" if row.revoked else "no"
        table.add(row.serial, f"{row.kind} {row.name}", (row.until or "not known here")[:10], word)
    own = [name for name in ("scheduler", "authority") if name in expires]
    table.notes += [f"{name}: good until {expires[name][:10]}" for name in own]
    table.notes += issued.damaged
    if problem:
        table.notes.append(f"which were revoked is not known: {problem}")
    table.show(console())


@click.command("revoke")
@click.argument("kind", callback=one_of(*_KINDS))
@click.argument("name")
@click.option("--serial", "serials", metavar="HEX", multiple=True, help="That one alone ('identity list'); repeatable.")
@click.option("--all", "every", is_flag=True, help="A node's or a scheduler's newest too.")
@_authority
@service
@json_option
def revoke_command(
    kind: str,
    name: str,
    serials: tuple[str, ...],
    every: bool,
    authority: Path | None,
    server: str | None,
    lab: str | None,
    as_json: bool,
) -> None:
    """Let certificates of KIND (scheduler, node or user) and NAME count no more, from now on (operators).

    Without --serial a user's all, a node's and a scheduler's all but the newest: those that the scheduler has seen
    since its start, and with --authority all that were issued. What is open on them is closed. The name may come back
    with another certificate; tokens are not touched.

    \b
    Examples:
      cosched identity revoke user ada --authority office/authority
      cosched identity revoke node desk1 --authority office/authority    # after 'node renew desk1'
    """
    checked_name(cast(Kind, kind), name)
    issued = _issued(authority) if authority is not None else Listed([], [])
    for line in issued.damaged:
        click.echo(line, err=True)
    made = [each.serial for each in issued.of(cast(Kind, kind), name)]
    with connect(server, lab) as client:
        asked, left = RevokeRequest(cast(Kind, kind), name, list(serials) or made, only=bool(serials)), ""
        if kind != "user" and not serials and not every:
            asked, left = _but_the_newest(asked, made, client.certificates().certificates)
        done = client.revoke_certificates(asked)
    if as_json:
        echo_json(done)
        return
    closed = f", {done.closed} connections closed" if done.closed else ""
    click.echo(f"{kind} {name}: revoked {', '.join(done.serials)}{closed}")
    if left:
        click.echo(f"the newest counts on: {left} (--all, or --serial)")
    if authority is None and not serials:
        click.echo("others, not shown since the scheduler's start, are not known here: --authority, or --serial")


def _but_the_newest(asked: RevokeRequest, made: list[str], shown: list[CertificateDoc]) -> tuple[RevokeRequest, str]:
    """A request for all that are known but one, and that one: the last that was issued, else that was shown."""
    seen = [each.serial for each in shown if (each.kind, each.name) == (asked.kind, asked.name) and not each.revoked]
    known = [*(each for each in seen if each not in made), *made]
    if len(known) == 1:
        expected = "an older one besides; --all, or --serial, for this one"
        raise BadInput(f"certificates of {asked.kind} {asked.name}", f"{known[0]}, the newest, alone", expected)
    # Of a scheduler's the service adds none, and refuses the one that it shows.
    only = asked.kind == "node" and bool(known)
    return RevokeRequest(asked.kind, asked.name, known[:-1], only=only), known[-1] if known else ""


def _known(server: str | None, lab: str | None) -> tuple[list[CertificateDoc], dict[str, str], str]:
    """What the scheduler knows; why it does not say, where it does not."""
    try:
        with connect(server, lab) as client:
            listed = client.certificates()
            return listed.certificates, listed.expires, ""
    except (BadInput, Failed) as error:
        return [], {}, str(error)


def _issued(authority: Path) -> Listed:
    """All that an authority has issued. Raises :class:`BadInput` where it has no list."""
    path = authority / ISSUED
    if not path.exists():
        raise BadInput(str(path), "no such file", "an authority's directory")
    return read(authority)
