"""``cosched identity list`` and ``revoke``: which certificates there are, and which count no more."""

from pathlib import Path
from typing import Final, cast

import click
import msgspec

from cosched.apps.cli.service import echo_json, json_option, service
from cosched.apps.cli.values import one_of
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
@_authority
@service
@json_option
def revoke_command(
    kind: str,
    name: str,
    serials: tuple[str, ...],
    authority: Path | None,
    server: str | None,
    lab: str | None,
    as_json: bool,
) -> None:
    """Let certificates of KIND (scheduler, node or user) and NAME count no more, from now on (operators).

    Without --serial all of them: those that the scheduler has seen since its start, and with --authority all that were
    issued. What is open on them is closed. The name may come back with another certificate; tokens are not touched.

    \b
    Example: cosched identity revoke user ada --authority office/authority
    """
    checked_name(cast(Kind, kind), name)
    named = list(serials)
    if authority is not None and not serials:
        issued = _issued(authority)
        named = [each.serial for each in issued.of(cast(Kind, kind), name)]
        for line in issued.damaged:
            click.echo(line, err=True)
    with connect(server, lab) as client:
        done = client.revoke_certificates(RevokeRequest(cast(Kind, kind), name, named, only=bool(serials)))
    if as_json:
        echo_json(done)
        return
    closed = f", {done.closed} connections closed" if done.closed else ""
    click.echo(f"{kind} {name}: revoked {', '.join(done.serials)}{closed}")
    if authority is None and not serials:
        click.echo("others, not shown since the scheduler's start, are not known here: --authority, or --serial")


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
