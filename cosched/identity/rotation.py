"""Another authority in the place of the one before, in three steps; between them both are trusted.

1. *begin*: a new key and certificate. It signs nothing yet; whoever is signed now is given both to trust.
2. *switch*, when all trust both: the new one signs, the old key is gone. Whoever is signed now has a new certificate.
3. *finish*, when all have one: only the new one is trusted.

``ca.pem`` has the one that signs in front. A step that was interrupted is gone again.
"""

from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from cosched.durable import write_durably
from cosched.errors import BadInput
from cosched.identity.authority import new_authority, write_new
from cosched.identity.names import CA_KEY, CA_PEM

NEXT_PEM: Final = "next.pem"
NEXT_KEY: Final = "next.key"


def begin(authority: Path) -> None:
    """Make the next authority, trusted from now on by whoever is given ``ca.pem``. Raises :class:`BadInput`."""
    old = _trusted(authority)
    if len(old) > 1 and not (authority / NEXT_KEY).exists():
        raise BadInput(str(authority / CA_PEM), "two authorities are trusted already", "'--finish' first")
    if not (authority / NEXT_PEM).exists():
        (authority / NEXT_KEY).unlink(missing_ok=True)
        cluster = old[0].subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)[0].value
        pem, key = new_authority(str(cluster))
        write_new(authority / NEXT_KEY, key, mode=0o600)
        write_new(authority / NEXT_PEM, pem)
    following = x509.load_pem_x509_certificate((authority / NEXT_PEM).read_bytes())
    _trust(authority, [old[0], following])


def switch(authority: Path) -> None:
    """Have the next authority sign from now on; the old one's key is gone. Raises :class:`BadInput`."""
    key = authority / NEXT_KEY
    if not key.exists() or not (authority / NEXT_PEM).exists():
        raise BadInput(str(key), "no such file", "'--begin' first")
    following = x509.load_pem_x509_certificate((authority / NEXT_PEM).read_bytes())
    _trust(authority, [following, *(each for each in _trusted(authority) if each != following)])
    key.replace(authority / CA_KEY)
    (authority / NEXT_PEM).unlink()


def finish(authority: Path) -> None:
    """Trust the one that signs alone. Raises :class:`BadInput`."""
    if (authority / NEXT_KEY).exists():
        raise BadInput(str(authority / NEXT_KEY), "the next authority does not sign yet", "'--switch' first")
    _trust(authority, _trusted(authority)[:1])


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
    write_durably(authority / CA_PEM, text)
    (authority / CA_PEM).chmod(0o644)
