"""TLS between the parts of a cluster: version 1.3 alone, both sides show a certificate of the cluster's authority.

Names, not addresses, are checked: who dials a node gives the node's name as ``server_hostname``, who dials the
scheduler gives ``names.SCHEDULER``. A certificate says what it may be used for (a user's never serves, a scheduler's
never dials), and :func:`peer_of` tells kind and name of the other side once the handshake is done.

Imports ``ssl`` and nothing of X.509: an agent stays small.
"""

import ssl
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

from cosched.errors import BadInput
from cosched.identity.names import CA_PEM, TOKEN, Kind, certificate, private

_KINDS: Final[tuple[Kind, ...]] = get_args(Kind)


class Peer(NamedTuple):
    """Who is on the other side, by his certificate."""

    kind: Kind
    name: str


def server_context(directory: Path, *, tokens: bool = False) -> ssl.SSLContext:
    """For the scheduler's port: agents and users show certificates; where there are ``tokens``, users need none.

    A certificate that is shown must be of the authority either way. Raises :class:`BadInput` with the file.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, directory, "scheduler")
    if tokens:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def agent_server_context(directory: Path) -> ssl.SSLContext:
    """For an agent's port: other agents show certificates. Raises :class:`BadInput` with the file."""
    return _context(ssl.PROTOCOL_TLS_SERVER, directory, "node")


def client_context(directory: Path) -> ssl.SSLContext:
    """For an agent or a user who dials: with the node's certificate, if there is one here, else the user's.

    A user with a token and no certificate shows none. Give ``server_hostname``: ``names.SCHEDULER`` or a node's name.
    Raises :class:`BadInput` with the file.
    """
    kind: Kind | None = "node" if certificate("node", directory)[0].exists() else "user"
    if kind == "user" and not certificate("user", directory)[0].exists() and (directory / TOKEN).exists():
        kind = None
    context = _context(ssl.PROTOCOL_TLS_CLIENT, directory, kind)
    context.check_hostname = True
    return context


def _context(protocol: int, directory: Path, kind: Kind | None) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    authority = directory / CA_PEM
    try:
        context.load_verify_locations(authority)
    except FileNotFoundError:
        raise BadInput(str(authority), "no such file", "the authority's certificate, made by 'cosched init'") from None
    except (ssl.SSLError, OSError) as error:
        raise BadInput(str(authority), f"cannot be used: {_said(error)}", "a certificate in PEM") from None
    if kind is None:
        return context
    pem, key = certificate(kind, directory)
    if not pem.exists():
        raise BadInput(str(pem), "no such file", f"the {kind}'s certificate, made by 'cosched init'")
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


def peer_of(connection: ssl.SSLObject | ssl.SSLSocket) -> Peer:
    """Kind and name of the other side of a connection whose handshake is done. Raises :class:`BadInput`."""
    shown: dict[str, Any] = connection.getpeercert() or {}
    fields = {key: value for part in shown.get("subject", ()) for key, value in part}
    kind, name = fields.get("organizationalUnitName"), fields.get("commonName")
    if kind not in _KINDS or not name:
        raise BadInput("certificate", f"of kind {kind!r}, name {name!r}", "a " + ", a ".join(_KINDS))
    return Peer(kind, name)


def serial_of(connection: ssl.SSLObject | ssl.SSLSocket) -> str:
    """The serial number of the other side's certificate, in hexadecimal; empty where it showed none."""
    shown: dict[str, Any] = connection.getpeercert() or {}
    return f"{int(shown['serialNumber'], 16):x}" if "serialNumber" in shown else ""


def expiry_of(connection: ssl.SSLObject | ssl.SSLSocket) -> float | None:
    """When the other side's certificate expires, in seconds since 1970; None where it showed none."""
    shown: dict[str, Any] = connection.getpeercert() or {}
    return ssl.cert_time_to_seconds(shown["notAfter"]) if "notAfter" in shown else None


def expect(connection: ssl.SSLObject | ssl.SSLSocket, kind: Kind, name: str | None = None) -> Peer:
    """The other side, if it is of that kind (and name). Raises :class:`BadInput`."""
    peer = peer_of(connection)
    if peer.kind != kind or (name is not None and peer.name != name):
        raise BadInput("certificate", f"of {peer.kind} {peer.name!r}", f"of {kind}" + (f" {name!r}" if name else ""))
    return peer
