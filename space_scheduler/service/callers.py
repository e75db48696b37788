"""Who asks: by the Unix socket's peer credentials, or by the client certificate; never by anything in a request."""

import pwd
import socket
import ssl
import struct
from collections.abc import Container
from typing import Final

import msgspec
from aiohttp import web

from cosched.identity.tls import Peer, peer_of
from space_scheduler.service.problems import Refusal

_CREDENTIALS: Final = struct.Struct("iII")  # struct ucred: pid, uid, gid


class Caller(msgspec.Struct, frozen=True):
    """A user, and whether he may do what operators do. ``named`` is False for a uid without a name on this host."""

    user: str
    operator: bool = False
    named: bool = True

    def may_change(self, owner: str) -> bool:
        """Whether he may cancel, hold, release and read the output of that user's jobs."""
        return self.operator or (self.named and self.user == owner)


def caller_of(request: web.Request, operators: Container[str]) -> Caller:
    """Who sent a request. Raises :class:`Refusal` for what is no user."""
    peer = certificate_of(request)
    if peer is not None:
        if peer.kind != "user":
            raise Refusal(403, f"the API is for users; this is the certificate of {peer.kind} {peer.name!r}")
        return Caller(peer.name, peer.name in operators)
    transport = request.transport
    connection = transport.get_extra_info("socket") if transport else None
    if connection is None or connection.family != socket.AF_UNIX:
        raise Refusal(403, "who you are cannot be told from this connection")
    packed = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(packed)
    try:
        user = pwd.getpwuid(uid).pw_name
    except KeyError:
        return Caller(f"uid {uid}", uid == 0, named=False)
    return Caller(user, uid == 0 or user in operators)


def certificate_of(request: web.Request) -> Peer | None:
    """Kind and name of the client certificate, or None where the connection is not TLS."""
    transport = request.transport
    secured = transport.get_extra_info("ssl_object") if transport else None
    return peer_of(secured) if isinstance(secured, ssl.SSLObject | ssl.SSLSocket) else None
