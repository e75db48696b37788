"""Grants: the scheduler's signed word that some nodes may run ranks of a job for each other (design, section 4).

Signed with Ed25519 by a key that only the scheduler has; its public half lies beside every node's certificate. A grant
names the cluster and the epoch, so that one of another lab or of a replaced scheduler is worth nothing.

A grant is renewed when the job's nodes change: for the same attempt, with a higher serial number. Nodes keep the newest
that they were given, and refuse older ones.
"""

from typing import Protocol

import msgspec
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from cosched.errors import BadInput
from cosched.model import quantities as q

_SIGNATURE_BYTES = 64


class Grant(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Ranks of this attempt at this job may run as ``user`` on ``nodes`` (names). ``serial``: how often renewed."""

    cluster_id: str
    epoch: q.Epoch
    job_id: q.JobId
    attempt: q.AttemptNumber
    user: str
    nodes: tuple[str, ...]
    serial: q.Count = 0

    @property
    def age(self) -> tuple[int, int]:
        """Which of two grants for an attempt is the newer one: each scheduler begins to count anew."""
        return self.epoch, self.serial


def signed(grant: Grant, key: Ed25519PrivateKey) -> bytes:
    """The grant with its signature in front. One that was never renewed is as agents of version 1 know it."""
    fields = msgspec.structs.astuple(grant)
    payload = msgspec.msgpack.encode(fields if grant.serial else fields[:-1])
    return key.sign(payload) + payload


class Verifier(Protocol):
    """A public key, or several."""

    def verify(self, signature: bytes, data: bytes, /) -> None:
        """Raises ``InvalidSignature``."""


def verified(blob: bytes, key: Verifier) -> Grant:
    """The grant, when the scheduler signed it. Raises :class:`BadInput`."""
    signature, payload = blob[:_SIGNATURE_BYTES], blob[_SIGNATURE_BYTES:]
    try:
        key.verify(signature, payload)
        return msgspec.msgpack.decode(payload, type=Grant)
    except InvalidSignature:
        raise BadInput("grant", "a signature that is not the scheduler's") from None
    except msgspec.DecodeError as error:
        raise BadInput("grant", str(error), "a grant") from None
