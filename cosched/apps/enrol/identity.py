"""A node's identity from the host's side, as root: the key is made here and leaves the machine in no way.

:func:`request` makes the key and asks for its certificate; the authority's answer (``cosched node sign``) is put in
its place by :func:`accept`, whole or not at all. Whoever enrols goes these two steps: ``cosched node add`` over ssh,
Ansible, an administrator by hand. Until the second the node keeps the identity that it has.
"""

import shutil
from pathlib import Path
from typing import Any, Final

import msgspec

from cosched.apps.enrol import laying
from cosched.errors import BadInput
from cosched.identity.names import CA_PEM, GRANT_PUB, certificate, checked_name
from cosched.install.layout import ROOT, Layout
from cosched.install.roles import node_identity

_FRESH: Final = "identity.new"
_BEFORE: Final = "identity.old"


class Answer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an authority gives for a request: the texts of a node's public files."""

    certificate: str
    authority: str
    grant_pub: str


def answer(data: bytes | dict[str, Any]) -> Answer:
    """The same from JSON or plain data. Raises :class:`BadInput`."""
    try:
        return msgspec.json.decode(data, type=Answer) if isinstance(data, bytes) else msgspec.convert(data, Answer)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise BadInput("certificate", str(error), "what 'cosched node sign' has said") from None


def request(etc: Path, name: str) -> str:
    """A private key, made here, and the request for its certificate, in PEM. Raises :class:`BadInput`."""
    from cosched.identity.requests import new_request  # noqa: PLC0415 (X.509 is slow to import)

    checked_name("node", name)
    etc.mkdir(mode=0o755, parents=True, exist_ok=True)
    fresh = etc / _FRESH
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    return new_request(name, certificate("node", fresh)[1])


def checked(etc: Path, given: Answer) -> Path:
    """The new identity, complete and not yet in force: its directory. Raises :class:`BadInput`."""
    from cosched.identity import tls  # noqa: PLC0415

    fresh = etc / _FRESH
    pem, key = certificate("node", fresh)
    if not key.exists():
        raise BadInput(str(key), "no such file", "the key that 'cosched node request' makes")
    pem.write_text(given.certificate, encoding="ascii")
    (fresh / CA_PEM).write_text(given.authority, encoding="ascii")
    (fresh / GRANT_PUB).write_text(given.grant_pub, encoding="ascii")
    tls.agent_server_context(fresh)  # the certificate is the key's, or nothing happens
    return fresh


def accept(etc: Path, given: Answer, account: str = ROOT) -> Path:
    """Put the new identity into force, its key readable for ``account`` alone; its directory.

    Raises :class:`BadInput` where it is not the certificate of the key that was asked for, and then changes nothing.
    """
    fresh = checked(etc, given)
    layout = Layout(etc=str(etc))
    place = Path(layout.identity)
    laying.owner(account)
    fresh.chmod(0o755)
    laying.own(node_identity(layout, account), fresh)
    before = etc / _BEFORE
    shutil.rmtree(before, ignore_errors=True)
    if place.exists():
        place.rename(before)
    fresh.rename(place)
    shutil.rmtree(before, ignore_errors=True)
    return place
