"""The keys of grants: the scheduler signs with ``grant.key`` (PEM), nodes verify with ``grant.pub`` (32 bytes, hex)."""

from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from cosched.errors import BadInput
from cosched.identity.names import GRANT_KEY, GRANT_PUB, private


def load_grant_key(directory: Path) -> Ed25519PrivateKey:
    """The scheduler's key for grants. Raises :class:`BadInput` with the file."""
    path = private(directory / GRANT_KEY)
    try:
        key = load_pem_private_key(path.read_bytes(), None)
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise BadInput(str(path), "not a key", "an Ed25519 key in PEM") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise BadInput(str(path), "a key of another algorithm", "an Ed25519 key in PEM")
    return key


def load_grant_pub(directory: Path) -> Ed25519PublicKey:
    """What a node verifies grants with. Raises :class:`BadInput` with the file."""
    path = directory / GRANT_PUB
    try:
        return Ed25519PublicKey.from_public_bytes(bytes.fromhex(path.read_text(encoding="ascii").strip()))
    except FileNotFoundError:
        raise BadInput(str(path), "no such file", "the public half of the scheduler's grant.key") from None
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from None
    except ValueError:
        raise BadInput(str(path), "not a public key", "32 bytes in hexadecimal") from None
