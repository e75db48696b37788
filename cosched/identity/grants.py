"""The keys of grants: the scheduler signs with ``grant.key`` (PEM), nodes verify with ``grant.pub`` (32 bytes, hex).

While the scheduler's key is being replaced, ``grant.pub`` has a line for the new and one for the old, the new in front.
"""

from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from cosched.errors import BadInput
from cosched.identity.names import GRANT_KEY, GRANT_PUB, private
from cosched.linux.durable import write_durably

#: The new one and the old one.
MOST_KEYS: Final = 2


def load_grant_key(directory: Path) -> Ed25519PrivateKey:
    """The scheduler's key for grants. Raises :class:`BadInput` with the file."""
    from cryptography.hazmat.primitives.serialization import load_pem_private_key  # noqa: PLC0415 (no agent wants it)

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


class GrantPub:
    """What a node verifies grants with: a signature by any of these keys is the scheduler's."""

    def __init__(self, keys: list[Ed25519PublicKey]) -> None:
        self._keys = keys

    def verify(self, signature: bytes, data: bytes) -> None:
        """Raises ``InvalidSignature``."""
        for key in self._keys:
            try:
                return key.verify(signature, data)
            except InvalidSignature:
                continue
        raise InvalidSignature


def load_grant_pub(directory: Path) -> GrantPub:
    """The same from its file. Raises :class:`BadInput` with the file."""
    path = directory / GRANT_PUB
    try:
        lines = path.read_text(encoding="ascii").split()
        keys = [Ed25519PublicKey.from_public_bytes(bytes.fromhex(line)) for line in lines]
    except FileNotFoundError:
        raise BadInput(str(path), "no such file", "the public half of the scheduler's grant.key") from None
    except OSError as error:
        raise BadInput(str(path), f"cannot be read: {error.strerror}") from None
    except ValueError:
        keys = []
    if not 1 <= len(keys) <= MOST_KEYS:
        raise BadInput(str(path), "not a public key", "32 bytes in hexadecimal, or two lines of that")
    return GrantPub(keys)


def public_text(key: Ed25519PublicKey) -> bytes:
    """A key of grants as ``grant.pub`` has it."""
    return key.public_bytes_raw().hex().encode() + b"\n"


def learn_grant_pub(authority: Path, key: Ed25519PublicKey) -> None:
    """Hand out that key of the scheduler's to nodes from now on, and the one before it as well. Raises OSError."""
    known, text = _lines(authority), public_text(key).decode().strip()
    if known[:1] != [text]:
        _write(authority, [text, *(each for each in known if each != text)][:MOST_KEYS])


def forget_older(authority: Path) -> None:
    """Hand out the key that the scheduler brought last alone from now on. Raises OSError."""
    known = _lines(authority)
    if len(known) > 1:
        _write(authority, known[:1])


def _lines(authority: Path) -> list[str]:
    path = authority / GRANT_PUB
    return path.read_text(encoding="ascii").split() if path.exists() else []


def _write(authority: Path, lines: list[str]) -> None:
    write_durably(authority / GRANT_PUB, ("\n".join(lines) + "\n").encode("ascii"), mode=0o644)
