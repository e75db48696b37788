"""An authority's answer, looked at before anything is put into force: whose certificate it is, and who issued it.

The name that was asked for is kept beside the key until then, so that the certificate of another name is not taken for
it; afterwards the certificate has it.
"""

from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from cosched.errors import BadInput
from cosched.identity.names import Kind, certificate
from cosched.linux.durable import write_durably


def asked(kind: Kind, directory: Path) -> Path:
    """Where the name is kept that a certificate was asked for, until it is in force."""
    return directory / f"{kind}.asked"


def ask(kind: Kind, directory: Path, name: str) -> None:
    """Keep that name. Raises OSError."""
    write_durably(asked(kind, directory), name.encode("ascii"), mode=0o644)


def look(kind: Kind, directory: Path, pem: str, authority: str) -> None:
    """Look at a certificate for a key in that directory, and at the texts of the authorities that came with it.

    Raises :class:`BadInput` where it is another kind's or another name's, or was not issued by one of these itself.
    """
    own, *more = _certificates(pem)
    name = _expected(kind, directory)
    found = _said(own, NameOID.ORGANIZATIONAL_UNIT_NAME), _said(own, NameOID.COMMON_NAME)
    if more or found[0] != kind or name not in (None, found[1]):
        expected = f"of {kind}" + (f" {name!r}, as was asked for" if name else "")
        raise BadInput("certificate", f"{1 + len(more)}, the first of {found[0]} {found[1]!r}", f"one {expected}")
    if not any(_issued(own, each) for each in _certificates(authority)):
        raise BadInput("certificate", "not issued by the authority that came with it", "one that ca.pem has issued")


def _expected(kind: Kind, directory: Path) -> str | None:
    """Whose certificate it has to be; None where nobody here knows."""
    kept, pem = asked(kind, directory), certificate(kind, directory)[0]
    if kept.exists():
        return kept.read_text(encoding="ascii")
    try:
        return _said(_certificates(pem.read_text(encoding="ascii"))[0], NameOID.COMMON_NAME) if pem.exists() else None
    except (BadInput, UnicodeDecodeError):
        return None


def _certificates(text: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        raise BadInput("certificate", "not a certificate", "certificates in PEM, as the authority has said") from None


def _said(own: x509.Certificate, field: x509.ObjectIdentifier) -> str:
    found = own.subject.get_attributes_for_oid(field)
    return str(found[0].value) if found else ""


def _issued(own: x509.Certificate, issuer: x509.Certificate) -> bool:
    try:
        own.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True
