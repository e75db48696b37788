"""Another authority in the place of the one before, in three steps; between them both are trusted.

1. *begin*: a new key and certificate. It signs nothing yet; whoever is signed now is given both to trust.
2. *switch*, when all trust both: the new one signs, the old key is gone. Whoever is signed now has a new certificate.
3. *finish*, when all have one: only the new one is trusted, and of the scheduler's keys of grants the newest alone.

``ca.pem`` has the one that signs in front. Which one signs is decided by ``ca.key``, which is replaced in one moment; a
step that was cut off is done by doing it again, and *begin* takes a *switch* back that had not come to that moment.
"""

from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from cosched.errors import BadInput
from cosched.identity.authority import new_authority
from cosched.identity.grants import forget_older
from cosched.identity.names import CA_KEY, CA_PEM
from cosched.linux.durable import sync, write_durably

NEXT_PEM: Final = "next.pem"
NEXT_KEY: Final = "next.key"


def begin(authority: Path) -> None:
    """Make the next authority, trusted from now on by whoever is given ``ca.pem``. Raises :class:`BadInput`."""
    trusted = _trusted(authority)
    key, pem = authority / NEXT_KEY, authority / NEXT_PEM
    if len(trusted) > 1 and not key.exists():
        raise BadInput(str(authority / CA_PEM), "two authorities are trusted already", "'--finish' first")
    if not (key.exists() and pem.exists()):
        cluster = trusted[0].subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value
        made, secret = new_authority(str(cluster))
        pem.unlink(missing_ok=True)  # a certificate without its key is none that could sign
        write_durably(key, secret)
        write_durably(pem, made, mode=0o644)
    following = _following(authority)
    _trust(authority, [*(each for each in trusted if each != following), following])


def switch(authority: Path) -> None:
    """Have the next authority sign from now on; the old one's key is gone. Raises :class:`BadInput`."""
    key, pem = authority / NEXT_KEY, authority / NEXT_PEM
    trusted = _trusted(authority)
    if not pem.exists() or _following(authority) not in trusted:
        raise BadInput(str(authority), "no next authority that is trusted already", "'--begin' first")
    following = _following(authority)
    if key.exists():
        _trust(authority, [following, *(each for each in trusted if each != following)])
        key.replace(authority / CA_KEY)
        sync(authority)
    pem.unlink()


def finish(authority: Path) -> None:
    """Trust the one that signs alone. Raises :class:`BadInput`."""
    if (authority / NEXT_KEY).exists():
        raise BadInput(str(authority / NEXT_KEY), "the next authority does not sign yet", "'--switch' first")
    _trust(authority, _trusted(authority)[:1])
    (authority / NEXT_PEM).unlink(missing_ok=True)
    forget_older(authority)


def _following(authority: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate((authority / NEXT_PEM).read_bytes())


def _trusted(authority: Path) -> list[x509.Certificate]:
    path = authority / CA_PEM
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}", "an authority's directory") from None
    except ValueError:
        raise BadInput(str(path), "not a certificate", "certificates in PEM") from None


def _trust(authority: Path, trusted: list[x509.Certificate]) -> None:
    text = b"".join(each.public_bytes(Encoding.PEM) for each in trusted)
    write_durably(authority / CA_PEM, text, mode=0o644)
