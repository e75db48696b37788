"""``cosched identity list`` and ``revoke``: which certificates there are, and which count no more."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import click
import msgspec

from cosched.apps.cli.shared.values import one_of, read_by
from cosched.apps.cli.shared.verb import Answer, asks, say, says, service
from cosched.client.client import Client
from cosched.client.find import connect
from cosched.errors import BadInput, Failed
from cosched.identity.issued import Listed, read
from cosched.identity.names import ISSUED, Kind, checked_name
from cosched.report.table import Table
from cosched.wire.api import CertificateDoc, RevokeRequest

_REVOKED: Final = {None: "", True: "revoked", False: "no"}
_KINDS: Final = ("scheduler", "node", "user")


def _issued(authority: Path, _option: str) -> Listed:
    """All that an authority has issued. Raises :class:`BadInput` where it has no list."""
    path = authority / ISSUED
    if not path.exists():
        raise BadInput(str(path), "no such file", "an authority's directory")
    return read(authority)


_authority = click.option(
    "--authority",
    type=click.Path(path_type=Path),
    metavar="DIR",
    callback=read_by(_issued),
    help="Whose list of what was issued is read as well.",
)


@click.command("list")
@_authority
@service
@says
def list_command(authority: Listed | None, server: str | None, lab: str | None) -> Answer:
    """List certificates: serial number, whose, until when, whether it was revoked (operators).

    Those that the scheduler has seen since its start or has revoked; with --authority all that were ever issued there,
    also where no scheduler answers.

    \b
    Example: cosched identity list --authority office/authority
    """
    found, expires, problem = _known(server, lab)
    if problem and authority is None:
        raise Failed(problem)
    issued = authority or Listed([], [])
    known = None if problem else False
    # fields of the API: ``until`` is a day or a time; ``until`` and ``revoked`` are None where they are not known
    listed: dict[str, dict[str, Any]] = {each.serial: each._asdict() | {"revoked": known} for each in issued.entries}
    for each in found:
        until = each.until or listed.get(each.serial, {}).get("until")
        listed[each.serial] = msgspec.structs.asdict(each) | {"until": until}
    rows: list[Sequence[str]] = [
        (serial, f"{row['kind']} {row['name']}", (row["until"] or "not known here")[:10], _REVOKED[row["revoked"]])
        for serial, row in listed.items()
    ]
    own = [f"{name}: good until {expires[name][:10]}" for name in ("scheduler", "authority") if name in expires]
    unknown = [f"which were revoked is not known: {problem}"] if problem else []
    table = Table("Certificates", ("serial", "whose", "good until", "revoked"), rows, own + issued.damaged + unknown)
    whole = {"certificates": list(listed.values()), "expires": expires, "problem": problem, "damaged": issued.damaged}
    return Answer(whole, [table])


@click.command("revoke")
@click.argument("kind", callback=one_of(*_KINDS))
@click.argument("name")
@click.option("--serial", "serials", metavar="HEX", multiple=True, help="That one alone ('identity list'); repeatable.")
@click.option("--all", "every", is_flag=True, help="A node's or a scheduler's newest too.")
@_authority
@asks
@says
def revoke_command(
    client: Client, kind: Kind, name: str, serials: tuple[str, ...], every: bool, authority: Listed | None
) -> Answer:
    """Let certificates of KIND (scheduler, node or user) and NAME count no more, from now on (operators).

    Without --serial a user's all, a node's and a scheduler's all but the newest: those that the scheduler has seen
    since its start, and with --authority all that were issued. What is open on them is closed. The name may come back
    with another certificate; tokens are not touched.

    \b
    Examples:
      cosched identity revoke user ada --authority office/authority
      cosched identity revoke node desk1 --authority office/authority    # after 'node renew desk1'
    """
    checked_name(kind, name)
    issued = authority or Listed([], [])
    for line in issued.damaged:
        say(line)
    made = [each.serial for each in issued.of(kind, name)]
    asked, left = RevokeRequest(kind, name, list(serials) or made, only=bool(serials)), ""
    if kind != "user" and not serials and not every:
        asked, left = _but_the_newest(asked, made, client.certificates().certificates)
    done = client.revoke_certificates(asked)
    closed = f", {done.closed} connections closed" if done.closed else ""
    lines = [f"{kind} {name}: revoked {', '.join(done.serials)}{closed}"]
    if left:
        lines.append(f"the newest counts on: {left} (--all, or --serial)")
    if authority is None and not serials:
        lines.append("others, not shown since the scheduler's start, are not known here: --authority, or --serial")
    return Answer(done, lines)


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
