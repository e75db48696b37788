"""A node's identity from the host's side, as root: the key is made here and leaves the machine in no way.

:func:`request` makes the key and asks for its certificate; the authority's answer (``cosched node sign``) is put in
its place by :func:`accept`, whole or not at all, also where the machine loses its power. Whoever enrols goes these two
steps: ``cosched node add`` over ssh, Ansible, an administrator by hand. Until the second the node keeps the identity
that it has.
"""

import errno
import shutil
from pathlib import Path
from typing import Any, Final

import msgspec

from cosched.apps.enrol import laying
from cosched.errors import BadInput
from cosched.identity.names import CA_PEM, GRANT_PUB, certificate, checked_name, owner
from cosched.install.layout import ROOT, Layout
from cosched.install.roles import node_identity
from cosched.linux import files
from cosched.linux.durable import sync, sync_all

_FRESH: Final = "identity.new"
_BEFORE: Final = "identity.old"
#: What a file system says on which two names cannot be exchanged.
_CANNOT: Final = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)


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
    from cosched.identity.answers import ask  # noqa: PLC0415 (X.509 is slow to import)
    from cosched.identity.requests import new_request  # noqa: PLC0415

    checked_name("node", name)
    etc.mkdir(mode=0o755, parents=True, exist_ok=True)
    fresh = etc / _FRESH
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    ask("node", fresh, name)
    return new_request(name, certificate("node", fresh)[1])


def checked(etc: Path, given: Answer) -> Path:
    """The new identity, complete and not yet in force: its directory. Raises :class:`BadInput`."""
    from cosched.identity import answers, tls  # noqa: PLC0415

    fresh = etc / _FRESH
    pem, key = certificate("node", fresh)
    if not key.exists():
        raise BadInput(str(key), "no such file", "the key that 'cosched node request' makes")
    answers.look("node", fresh, given.certificate, given.authority)
    pem.write_text(given.certificate, encoding="ascii")
    (fresh / CA_PEM).write_text(given.authority, encoding="ascii")
    (fresh / GRANT_PUB).write_text(given.grant_pub, encoding="ascii")
    tls.agent_server_context(fresh)  # the certificate is the key's, or nothing happens
    return fresh


def accept(etc: Path, given: Answer, account: str = ROOT) -> Path:
    """Put the new identity into force, its key readable for ``account`` alone; its directory.

    Raises :class:`BadInput` where it is not the certificate of the key and the name that were asked for, and then
    changes nothing. What is in force already is so once more: who was cut off here comes again.
    """
    from cosched.identity.answers import asked  # noqa: PLC0415

    layout = Layout(etc=str(etc))
    place, fresh, before = Path(layout.identity), etc / _FRESH, etc / _BEFORE
    owner(account)
    if before.exists() and not place.exists():  # cut off where names cannot be exchanged
        before.rename(place)
    if asked("node", fresh).exists() or not _in_force(place, given):
        checked(etc, given)
        fresh.chmod(0o755)
        asked("node", fresh).unlink(missing_ok=True)
        laying.own(node_identity(layout, account), fresh)
        sync_all(fresh)
        _put(fresh, place, before)
        sync(etc)
    for gone in (fresh, before):
        shutil.rmtree(gone, ignore_errors=True)
    laying.own(node_identity(layout, account))
    return place


def forget(etc: Path) -> None:
    """Leave no key of the node's here: neither the one in force nor one that was asked for."""
    for each in (Path(Layout(etc=str(etc)).identity), etc / _FRESH, etc / _BEFORE):
        shutil.rmtree(each, ignore_errors=True)


def _in_force(place: Path, given: Answer) -> bool:
    texts = {
        certificate("node", place)[0]: given.certificate,
        place / CA_PEM: given.authority,
        place / GRANT_PUB: given.grant_pub,
    }
    return all(path.exists() and path.read_text(encoding="ascii") == text for path, text in texts.items())


def _put(fresh: Path, place: Path, before: Path) -> None:
    """Have ``fresh`` in the other's place, in one moment where the file system can; what was there is elsewhere."""
    if not place.exists():
        fresh.rename(place)
        return
    try:
        files.exchange(str(fresh), str(place))
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
        shutil.rmtree(before, ignore_errors=True)
        place.rename(before)
        fresh.rename(place)
