"""Grants: the scheduler's signed word that some nodes may run ranks of a job for each other (design, section 4).

Signed with Ed25519 by a key that only the scheduler has; its public half lies beside every node's certificate. A grant
names the cluster and the epoch, so that one of another lab or of a replaced scheduler is worth nothing.
"""

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from cosched.errors import BadInput

_SIGNATURE_BYTES = 64


class Grant(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Ranks of this attempt at this job may run as ``user`` on ``nodes`` (names)."""

    cluster_id: str
    epoch: int
    job_id: int
    attempt: int
    user: str
    nodes: tuple[str, ...]


def signed(grant: Grant, key: Ed25519PrivateKey) -> bytes:
    """The grant with its signature in front."""
    payload = msgspec.msgpack.encode(grant)
    return key.sign(payload) + payload


def verified(blob: bytes, key: Ed25519PublicKey) -> Grant:
    """The grant, when the scheduler signed it. Raises :class:`BadInput`."""
    signature, payload = blob[:_SIGNATURE_BYTES], blob[_SIGNATURE_BYTES:]
    try:
        key.verify(signature, payload)
        return msgspec.msgpack.decode(payload, type=Grant)
    except InvalidSignature:
        raise BadInput("grant", "a signature that is not the scheduler's") from None
    except msgspec.DecodeError as error:
        raise BadInput("grant", str(error), "a grant") from None
