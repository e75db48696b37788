"""Requests for certificates: a key that is made where it is used, and a certificate for it that says who it is.

Of a request only the public key is taken, and the proof that its sender has the private one: kind, name and addresses
are the authority's to say. The same holds for the key of grants that a scheduler's request brings.
"""

from base64 import b64decode, b64encode
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)
from cryptography.x509.oid import NameOID

from cosched.errors import BadInput
from cosched.identity.authority import new_grant_key, write_new
from cosched.identity.grants import load_grant_key
from cosched.identity.names import GRANT_KEY, private

_PUBLIC: Final = "-----BEGIN PUBLIC KEY-----"
_PROOF: Final = "cosched-grant-key-proof:"


def new_request(name: str, key_path: Path) -> str:
    """Make a key in a file that must not be there yet (mode 0600), and the request for its certificate, in PEM."""
    key = generate_private_key(SECP256R1())
    write_new(key_path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), mode=0o600)
    return _request(name, key)


def request_again(name: str, key_path: Path) -> str:
    """The request for a certificate of a key that is there already. Raises :class:`BadInput` with the file."""
    path = private(key_path)
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except (ValueError, TypeError):
        raise BadInput(str(path), "not a key", "a key in PEM") from None
    if not isinstance(key, EllipticCurvePrivateKey):
        raise BadInput(str(path), "a key of another kind", "ECDSA on P-256")
    return _request(name, key)


def _request(name: str, key: EllipticCurvePrivateKey) -> str:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    return (
        x509.CertificateSigningRequestBuilder()
        .subject_name(subject)
        .sign(key, SHA256())
        .public_bytes(Encoding.PEM)
        .decode()
    )


def requested_key(pem: str) -> EllipticCurvePublicKey:
    """The public key of a request whose sender has the private one. Raises :class:`BadInput`."""
    try:
        request = x509.load_pem_x509_csr(pem.encode())
        key = request.public_key()
        if not request.is_signature_valid:
            raise BadInput("certificate request", "a signature that is not its key's", "the request as it was made")
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadInput("certificate request", str(error)[:200], "a request in PEM") from None
    if not isinstance(key, EllipticCurvePublicKey) or not isinstance(key.curve, SECP256R1):
        raise BadInput("certificate request", "a key of another kind", "ECDSA on P-256")
    return key


def with_grant(request: str, directory: Path) -> str:
    """A scheduler's request, with the public half of its key of grants, which is made if it is missing.

    That key's signature over the request shows that whoever asks has the private half.
    """
    key = load_grant_key(directory) if (directory / GRANT_KEY).exists() else new_grant_key(directory)
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    proof = b64encode(key.sign(_proved(request))).decode()
    return f"{request}{public.decode()}{_PROOF}\n{proof}\n"


def requested_grant(pem: str) -> Ed25519PublicKey | None:
    """The key of grants that a scheduler's request brings; None: none. Raises :class:`BadInput`."""
    at = pem.find(_PUBLIC)
    if at < 0:
        return None
    public, _, proof = pem[at:].partition(_PROOF)
    try:
        key = load_pem_public_key(public.encode())
    except (ValueError, UnsupportedAlgorithm) as error:
        raise BadInput("certificate request", str(error)[:200], "the request as it was made") from None
    if not isinstance(key, Ed25519PublicKey):
        raise BadInput("certificate request", "a key of grants of another kind", "Ed25519")
    try:
        key.verify(b64decode(proof.strip(), validate=True), _proved(pem))
    except (ValueError, InvalidSignature):
        expected = "its signature over the request, as 'cosched identity request' makes it"
        raise BadInput("certificate request", "a key of grants without proof of its private half", expected) from None
    return key


def _proved(pem: str) -> bytes:
    """What a key of grants signs to show that a request is of whoever has it: no grant begins like this."""
    return _PROOF.encode() + x509.load_pem_x509_csr(pem.encode()).public_bytes(Encoding.DER)
