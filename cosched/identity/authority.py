"""The cluster's own certificate authority: ``cosched init`` and the lab make identities with it.

Keys of certificates are ECDSA on P-256, which every TLS 1.3 speaks; the key of grants is Ed25519. A certificate names
the cluster (O), the kind (OU: scheduler, node or user) and the name (CN, and as DNS name in SAN). Keys are written with
mode 0600 before they have content, and nothing that is there is written over.
"""

import ipaddress
import os
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cosched.config.hosts import is_host
from cosched.errors import BadInput
from cosched.identity import issued
from cosched.identity.grants import load_grant_pub, public_text
from cosched.identity.names import (
    CA_KEY,
    CA_PEM,
    GRANT_KEY,
    GRANT_PUB,
    SCHEDULER,
    Kind,
    certificate,
    checked_name,
    private,
)

#: Clocks differ: a certificate is valid from a day before it was made.
_SKEW: Final = timedelta(days=1)
_AUTHORITY_LIFE: Final = timedelta(days=3650)
_LIFE: Final = timedelta(days=730)

_USES: Final = {
    "scheduler": [ExtendedKeyUsageOID.SERVER_AUTH],
    "node": [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH],
    "user": [ExtendedKeyUsageOID.CLIENT_AUTH],
}


def create_authority(directory: Path, cluster: str, *, grants: bool = True) -> None:
    """Make ca.pem and ca.key; and grant.key and grant.pub, where the scheduler runs on this machine (``grants``).

    Raises :class:`BadInput` where one of them is there already.
    """
    if not cluster or len(cluster) > 63 or not cluster.isprintable():
        raise BadInput("cluster", f"{cluster!r}", "a name of at most 63 characters")
    directory.mkdir(parents=True, exist_ok=True)
    for name in (CA_PEM, CA_KEY, GRANT_KEY, GRANT_PUB):
        _absent(directory / name)
    pem, key = new_authority(cluster)
    write_new(directory / CA_KEY, key, mode=0o600)
    write_new(directory / CA_PEM, pem)
    if grants:
        write_new(directory / GRANT_PUB, public_text(new_grant_key(directory).public_key()))


def new_grant_key(directory: Path) -> Ed25519PrivateKey:
    """The key by which a scheduler signs grants, made in its directory. Raises :class:`BadInput` where there is one."""
    grant = Ed25519PrivateKey.generate()
    write_new(directory / GRANT_KEY, _pem(grant), mode=0o600)
    return grant


def new_authority(cluster: str) -> tuple[bytes, bytes]:
    """An authority's certificate and key, in PEM."""
    key = generate_private_key(SECP256R1())
    subject = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "authority"),
            x509.NameAttribute(NameOID.COMMON_NAME, "cosched authority"),
        ]
    )
    now = datetime.now(UTC)
    made = (
        _unsigned(subject, subject, key.public_key(), now - _SKEW, now + _AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(authority=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, SHA256())
    )
    return made.public_bytes(Encoding.PEM), _pem(key)


def issue(
    authority: Path,
    kind: Kind,
    name: str,
    into: Path,
    *,
    addresses: Sequence[str] = (),
    life: timedelta = _LIFE,
    now: datetime | None = None,
) -> None:
    """Make an identity in the directory ``into``: KIND.pem, KIND.key, ca.pem; and grant.key or, for a node, grant.pub.

    ``authority`` is the directory with ca.pem, ca.key and grant.key, and may be ``into`` itself; ``addresses`` are
    further names and IP addresses at which a server is dialled. ``now`` is for tests. Raises :class:`BadInput` where
    there is such an identity already.
    """
    checked_name(kind, name)
    issuer, signer = _authority(authority)
    pem, key_path = certificate(kind, into)
    into.mkdir(parents=True, exist_ok=True)
    _absent(pem)
    _absent(key_path)
    key = generate_private_key(SECP256R1())
    made = _signed(issuer, signer, key.public_key(), kind, name, addresses, life, now)
    write_new(key_path, _pem(key), mode=0o600)
    write_new(pem, made.public_bytes(Encoding.PEM))
    issued.record(authority, kind, name, made.serial_number, made.not_valid_after_utc)
    _copy(authority / CA_PEM, into)
    if kind == "scheduler":
        _copy(private(authority / GRANT_KEY), into, mode=0o600)
    if kind == "node":
        _same_or_new(into / GRANT_PUB, _grant_pub(authority).encode())


def sign(
    authority: Path, kind: Kind, key: EllipticCurvePublicKey, name: str, addresses: Sequence[str]
) -> dict[str, str]:
    """An identity for a key that stays where it is: the texts of KIND.pem and ca.pem, by file name.

    Raises :class:`BadInput`.
    """
    checked_name(kind, name)
    issuer, signer = _authority(authority)
    made = _signed(issuer, signer, key, kind, name, addresses, _LIFE, None)
    issued.record(authority, kind, name, made.serial_number, made.not_valid_after_utc)
    return {
        certificate(kind, authority)[0].name: made.public_bytes(Encoding.PEM).decode(),
        CA_PEM: (authority / CA_PEM).read_text(encoding="ascii"),
    }


def sign_node(authority: Path, key: EllipticCurvePublicKey, name: str, addresses: Sequence[str]) -> dict[str, str]:
    """The same of a node: the texts of node.pem, ca.pem and grant.pub. Raises :class:`BadInput`."""
    grant_pub = _grant_pub(authority)
    return sign(authority, "node", key, name, addresses) | {GRANT_PUB: grant_pub}


def _grant_pub(authority: Path) -> str:
    path = authority / GRANT_PUB
    if not path.exists():
        raise BadInput(str(path), "no such file", "the scheduler's request to be signed first: it brings this key")
    load_grant_pub(authority)
    return path.read_text(encoding="ascii")


def serials_of(authority: Path, kind: Kind, name: str) -> list[str]:
    """The serial numbers (hexadecimal) of all certificates that were made for that name, the first in front."""
    return [each.serial for each in issued.read(authority).of(kind, name)]


def serial(pem: Path) -> str:
    """The serial number (hexadecimal) of the certificate in a file. Raises :class:`BadInput` with the file."""
    return f"{_certificate(pem).serial_number:x}"


def addresses_of(pem: Path) -> list[str]:
    """The names and addresses at which a server with that certificate is dialled, other than ``names.SCHEDULER``.

    Raises :class:`BadInput` with the file.
    """
    extension = _certificate(pem).extensions.get_extension_for_class(x509.SubjectAlternativeName)
    return [str(each.value) for each in extension.value if str(each.value) != SCHEDULER]


class Validity(msgspec.Struct, frozen=True):
    """Until when a certificate is valid. ``days_left`` is negative once it has expired."""

    path: str
    until: datetime
    days_left: float


def validity(pem: Path, now: datetime | None = None) -> Validity:
    """Until when the certificate in a file is valid. Raises :class:`BadInput` with the file."""
    until = _certificate(pem).not_valid_after_utc
    return Validity(str(pem), until, (until - (now or datetime.now(UTC))) / timedelta(days=1))


def validities(directory: Path, now: datetime | None = None) -> list[Validity]:
    """The same for every certificate in a directory, the one that expires first in front."""
    return sorted((validity(pem, now) for pem in directory.glob("*.pem")), key=lambda each: each.until)


def write_new(path: Path, data: bytes, *, mode: int = 0o644) -> None:
    """Write a file that must not be there yet; a key has its mode before it has content. Raises :class:`BadInput`."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise BadInput(str(path), "is there already", "a place without it: nothing is written over") from None
    except OSError as error:
        raise BadInput(str(path), f"cannot be written: {error.strerror}") from None
    with open(descriptor, "wb") as file:
        file.write(data)


def _absent(path: Path) -> None:
    if path.exists():
        raise BadInput(str(path), "is there already", "a place without it: nothing is written over")


def _copy(source: Path, into: Path, *, mode: int = 0o644) -> None:
    _same_or_new(into / source.name, source.read_bytes(), mode=mode)


def _same_or_new(target: Path, data: bytes, *, mode: int = 0o644) -> None:
    if target.exists():
        if target.read_bytes() != data:
            raise BadInput(str(target), "belongs to another authority", "a directory of this cluster")
        return
    write_new(target, data, mode=mode)


def _authority(directory: Path) -> tuple[x509.Certificate, EllipticCurvePrivateKey]:
    """The certificate and the key that sign: of those in ca.pem the one that ca.key belongs to."""
    trusted = _certificates(directory / CA_PEM)
    path = private(directory / CA_KEY)
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        raise BadInput(str(path), "not a key", "the authority's key in PEM") from None
    if isinstance(key, EllipticCurvePrivateKey):
        for issuer in trusted:
            if issuer.public_key() == key.public_key():
                return issuer, key
    raise BadInput(str(path), f"not the key of {directory / CA_PEM}", "the authority's own")


def _signed(
    issuer: x509.Certificate,
    signer: EllipticCurvePrivateKey,
    key: EllipticCurvePublicKey,
    kind: Kind,
    name: str,
    addresses: Sequence[str],
    life: timedelta,
    now: datetime | None,
) -> x509.Certificate:
    subject = x509.Name(
        [
            *issuer.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME),
            x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, kind),
            x509.NameAttribute(NameOID.COMMON_NAME, name),
        ]
    )
    start = (now or datetime.now(UTC)) - _SKEW
    end = min(start + _SKEW + life, issuer.not_valid_after_utc)
    also = [SCHEDULER] if kind == "scheduler" and name != SCHEDULER else []
    alternatives = [x509.DNSName(name), *(_alternative(each) for each in [*also, *addresses])]
    return (
        _unsigned(subject, issuer.subject, key, start, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_USES[kind]), critical=False)
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        .sign(signer, SHA256())
    )


def _certificate(path: Path) -> x509.Certificate:
    return _certificates(path)[0]


def _certificates(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except FileNotFoundError:
        raise BadInput(str(path), "no such file", "a certificate, as 'accept' puts it there") from None
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise BadInput(str(path), "not a certificate", "a certificate in PEM") from None


def _unsigned(
    subject: x509.Name, issuer: x509.Name, key: EllipticCurvePublicKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _key_usage(*, authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        if not is_host(name):
            raise BadInput("address", f"{name!r}", "a host's name or an IP address") from None
        return x509.DNSName(name)


def _pem(key: EllipticCurvePrivateKey | Ed25519PrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
