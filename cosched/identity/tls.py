"""TLS between the parts of a cluster: version 1.3 alone, both sides show a certificate of the cluster's authority.

Names, not addresses, are checked: who dials a node gives the node's name as ``server_hostname``, who dials the
scheduler gives ``names.SCHEDULER``. A certificate says what it may be used for (a user's never serves, a scheduler's
never dials), and :func:`peer_of` tells kind and name of the other side once the handshake is done.

Between scheduler and nodes a certificate that has expired is still taken for :data:`GRACE_S` (docs/design/identity.md),
so the handshake itself does not look at dates there, and :func:`peer_of` does: who uses these contexts has to call it.

Imports ``ssl`` and nothing of X.509: an agent stays small.
"""

import ssl
import time
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from cosched.errors import BadInput
from cosched.identity.names import CA_PEM, TOKEN, Kind, certificate, private

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)
_DAY_S: Final = 86_400.0
#: For how long after its end a certificate still counts, so that what runs goes on while it is renewed. A user's does
#: not: nothing that runs depends on it.
GRACE_S: Final[dict[Kind, float]] = {"scheduler": 14 * _DAY_S, "node": 14 * _DAY_S, "user": 0.0}
#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which ``ssl`` has no name for.
_NO_CHECK_TIME: Final = 0x200000


class Expired(BadInput):
    """The other side's certificate is not valid now, nor within the time that its kind has beyond its end."""


class Peer(NamedTuple):
    """Who is on the other side, by his certificate."""

    kind: Kind
    name: str


def server_context(directory: Path, *, tokens: bool = False) -> ssl.SSLContext:
    """For the scheduler's port: agents and users show certificates; where there are ``tokens``, users need none.

    A certificate that is shown must be of the authority either way. Raises :class:`BadInput` with the file.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, directory, "scheduler", dates=False)
    if tokens:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def agent_server_context(directory: Path) -> ssl.SSLContext:
    """For an agent's port: other agents show certificates. Raises :class:`BadInput` with the file."""
    return _context(ssl.PROTOCOL_TLS_SERVER, directory, "node", dates=False)


def client_context(directory: Path) -> ssl.SSLContext:
    """For an agent or a user who dials: with the node's certificate, if there is one here, else the user's.

    A user with a token and no certificate shows none. Give ``server_hostname``: ``names.SCHEDULER`` or a node's name.
    Raises :class:`BadInput` with the file.
    """
    kind: Kind | None = "node" if certificate("node", directory)[0].exists() else "user"
    if kind == "user" and not certificate("user", directory)[0].exists() and (directory / TOKEN).exists():
        kind = None
    context = _context(ssl.PROTOCOL_TLS_CLIENT, directory, kind, dates=kind != "node")
    context.check_hostname = True
    return context


def _context(protocol: int, directory: Path, kind: Kind | None, *, dates: bool) -> ssl.SSLContext:
    """``dates``: whether the handshake itself refuses what has expired."""
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    if not dates:
        context.verify_flags |= ssl.VerifyFlags(_NO_CHECK_TIME)
    authority = directory / CA_PEM
    try:
        context.load_verify_locations(authority)
    except FileNotFoundError:
        raise BadInput(
            str(authority), "no such file", "the authority's certificate, as 'accept' puts it there"
        ) from None
    except (ssl.SSLError, OSError) as error:
        raise BadInput(str(authority), f"cannot be used: {_said(error)}", "a certificate in PEM") from None
    if kind is None:
        return context
    pem, key = certificate(kind, directory)
    if not pem.exists():
        raise BadInput(str(pem), "no such file", f"the {kind}'s certificate, as 'accept' puts it there")
    private(key)
    try:
        context.load_cert_chain(pem, key)
    except ssl.SSLError as error:
        words = "the key is another certificate's" if "MISMATCH" in str(error.reason) else _said(error)
        raise BadInput(f"{pem} with {key.name}", words, "a certificate and its key, in PEM") from None
    except OSError as error:
        raise BadInput(str(pem), f"cannot be read: {_said(error)}") from None
    return context


def _said(error: OSError) -> str:
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.replace("_", " ").lower()
    return error.strerror or str(error)


def peer_of(connection: ssl.SSLObject | ssl.SSLSocket, now_s: float | None = None) -> Peer:
    """Kind and name of the other side of a connection whose handshake is done; ``now_s`` is for tests.

    Raises :class:`BadInput`, and :class:`Expired` where its certificate counts no more, or not yet.
    """
    shown: dict[str, Any] = connection.getpeercert() or {}
    fields = {key: value for part in shown.get("subject", ()) for key, value in part}
    kind, name = fields.get("organizationalUnitName"), fields.get("commonName")
    if kind not in _KINDS or not name:
        raise BadInput("certificate", f"of kind {kind!r}, name {name!r}", "a " + ", a ".join(_KINDS))
    now_s = time.time() if now_s is None else now_s
    if "notAfter" in shown and ssl.cert_time_to_seconds(shown["notAfter"]) + GRACE_S[kind] < now_s:
        raise Expired("certificate", f"that of {kind} {name!r} expired on {shown['notAfter']}", "a renewed one")
    if "notBefore" in shown and ssl.cert_time_to_seconds(shown["notBefore"]) > now_s:
        expected = "clocks that agree"
        raise Expired("certificate", f"that of {kind} {name!r} is not valid before {shown['notBefore']}", expected)
    return Peer(kind, name)


def serial_of(connection: ssl.SSLObject | ssl.SSLSocket) -> str:
    """The serial number of the other side's certificate, in hexadecimal; empty where it showed none."""
    shown: dict[str, Any] = connection.getpeercert() or {}
    return f"{int(shown['serialNumber'], 16):x}" if "serialNumber" in shown else ""


def expiry_of(connection: ssl.SSLObject | ssl.SSLSocket) -> float | None:
    """When the other side's certificate expires, in seconds since 1970; None where it showed none."""
    shown: dict[str, Any] = connection.getpeercert() or {}
    return ssl.cert_time_to_seconds(shown["notAfter"]) if "notAfter" in shown else None


def since_of(connection: ssl.SSLObject | ssl.SSLSocket) -> float | None:
    """From when on it is valid, in seconds since 1970, by the clock of its authority; None where it showed none."""
    shown: dict[str, Any] = connection.getpeercert() or {}
    return ssl.cert_time_to_seconds(shown["notBefore"]) if "notBefore" in shown else None


def expect(connection: ssl.SSLObject | ssl.SSLSocket, kind: Kind, name: str | None = None) -> Peer:
    """The other side, if it is of that kind (and name). Raises :class:`BadInput`."""
    peer = peer_of(connection)
    if peer.kind != kind or (name is not None and peer.name != name):
        raise BadInput("certificate", f"of {peer.kind} {peer.name!r}", f"of {kind}" + (f" {name!r}" if name else ""))
    return peer
