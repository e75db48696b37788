"""Who asks: by the Unix socket's peer credentials, the client certificate or a token; never by a field of a request."""

import asyncio
import socket
import ssl
from collections.abc import Callable, Collection
from typing import Final

import msgspec
from aiohttp import web

from cosched.identity.tls import Expired, Peer, peer_of, serial_of
from cosched.linux.peers import peer_credentials
from cosched.linux.users import NO_ACCOUNT
from space_scheduler.service.access.accounts import user_name, user_number
from space_scheduler.service.access.lookups import Lookups
from space_scheduler.service.access.members import Members
from space_scheduler.service.access.operators import Operators
from space_scheduler.service.access.problems import Refusal
from space_scheduler.service.access.tokens import NoToken, Tokens
from space_scheduler.service.log import Log

_BEARER: Final = "bearer "
#: For how long nobody is asked again for the name of a uid that had none.
_UNKNOWN_LASTS_S: Final = 1.0
#: For how long a name holds that is not confirmed any more: its user may have been removed.
_NAME_HOLDS_S: Final = 300.0
#: The address at which agents are told themselves what is wrong with their certificates (:mod:`~.link`).
AGENTS: Final = "/v1/agent"


class Caller(msgspec.Struct, frozen=True):
    """A user, and whether that one may do what operators do. ``named`` is False for a uid without a name on this host.

    ``read_only``: no user, but what reads for monitoring. ``uid`` is the kernel's word; None for one from elsewhere.
    """

    user: str
    operator: bool = False
    named: bool = True
    by_token: bool = False
    read_only: bool = False
    uid: int | None = None

    def may_change(self, owner: str) -> bool:
        """Whether this caller may cancel, hold, release and read the output of that user's jobs."""
        return self.operator or (self.named and self.user == owner)

    def check_operator(self, what: str) -> None:
        """Raise :class:`Refusal` for all but operators, by whom alone ``what`` is done."""
        if not self.operator:
            raise Refusal(403, f"{what} by operators; {self.user} is none", found=self.user)


class Callers:
    """Tells who sends a request. ``tokens`` is None where they are not taken."""

    def __init__(self, operators: Operators, members: Members, tokens: Tokens | None, log: Log) -> None:
        self._operators = operators
        self._names: Lookups[int, str] = Lookups(user_name, failure_lasts_s=_UNKNOWN_LASTS_S)
        self._uids: Lookups[str, int] = Lookups(user_number, failure_lasts_s=_UNKNOWN_LASTS_S)
        self._members = members
        self._tokens = tokens
        self._log = log
        #: Told of a connection whose token is good; False where that user has too many.
        self.proven: Callable[[asyncio.BaseTransport | None, str], bool] = lambda transport, user: True

    def of(self, request: web.Request) -> Caller:
        """Who sent a request. Raises :class:`Refusal` for what is no user."""
        caller = self.identified(request)
        if caller.operator or caller.by_token or not caller.named or caller.user not in self._operators:
            return caller
        return msgspec.structs.replace(caller, operator=True)

    def identified(self, request: web.Request) -> Caller:
        """The same, without looking whether it is an operator by name. Raises :class:`Refusal`."""
        if (secured := secured_by(request)) is not None:
            return self._over_tls(request, secured)
        uid = _uid_of(request)
        user = self._names.get(uid, _NAME_HOLDS_S)
        return Caller(f"uid {uid}" if user is None else user, uid == 0, named=user is not None, uid=uid)

    async def uid_of(self, user: str) -> int:
        """A user's uid on this host; :data:`NO_ACCOUNT` where its directory of users does not know the name.

        While that directory is silent, its last answer counts for a while.
        """
        known = await self._uids.learn_or_last(user, _NAME_HOLDS_S)
        return NO_ACCOUNT if known is None else known

    def _over_tls(self, request: web.Request, secured: ssl.SSLObject | ssl.SSLSocket) -> Caller:
        peer = certificate_of(request)
        if peer is None:
            return self._by_token(request)
        if self._members.is_revoked(serial_of(secured)):
            raise Refusal(403, f"the certificate of {peer.kind} {peer.name!r} was revoked")
        if peer.kind != "user":
            raise Refusal(403, f"the API is for users; this is the certificate of {peer.kind} {peer.name!r}")
        return Caller(peer.name)

    def _by_token(self, request: web.Request) -> Caller:
        if self._tokens is None:
            raise Refusal(401, "a client certificate is needed here: tokens are not taken (listen.tokens)")
        given = request.headers.get("Authorization", "")
        if not given.lower().startswith(_BEARER):
            raise Refusal(401, "neither client certificate nor token: 'cosched token create' on the scheduler's host")
        try:
            token = self._tokens.token_of(given[len(_BEARER) :].strip())
        except NoToken as error:
            self._log.peer(request.remote or "somebody", "token refused", why=str(error))
            raise Refusal(401, str(error)) from None
        user = f"reader {token.id}" if token.read_only else token.user
        if not self.proven(request.transport, user):
            raise Refusal(429, f"{user} has too many connections, or all users have", retry_after_s=1.0)
        return Caller(user, named=not token.read_only, by_token=True, read_only=token.read_only)

    async def admit(self, readable: Collection[str], request: web.Request) -> None:
        """Learn what handlers will ask of a request's sender. Raises :class:`Refusal`.

        No request over TLS passes without a certificate or token, for whatever address. ``readable`` are the addresses
        of routes that a read-only token may get; all else is refused it.
        """
        if secured_by(request) is None:
            user = await self._names.learn_or_last(_uid_of(request), _NAME_HOLDS_S)
            if user is not None:
                await self._operators.learn(user)
        elif request.path != AGENTS:
            caller = self.identified(request)
            resource = request.match_info.route.resource
            read = request.method == "GET" and resource is not None and resource.canonical in readable
            if caller.read_only and not read:
                raise Refusal(403, f"{caller.user} may get {', '.join(readable)}, and nothing else", found=caller.user)
            if not caller.by_token:
                await self._operators.learn(caller.user)


def _uid_of(request: web.Request) -> int:
    """Whose process is at the other end of a Unix socket. Raises :class:`Refusal`."""
    transport = request.transport
    connection = transport.get_extra_info("socket") if transport else None
    if connection is None or connection.family != socket.AF_UNIX:
        raise Refusal(403, "who you are cannot be told from this connection")
    return peer_credentials(connection).uid


def secured_by(request: web.Request) -> ssl.SSLObject | ssl.SSLSocket | None:
    """TLS's own end of a connection, or None where the connection is not TLS."""
    transport = request.transport
    secured = transport.get_extra_info("ssl_object") if transport else None
    return secured if isinstance(secured, ssl.SSLObject | ssl.SSLSocket) else None


def certificate_of(request: web.Request) -> Peer | None:
    """Kind and name of the client certificate, or None where there is none.

    Raises :class:`BadInput`, and :class:`Refusal` for one that has expired.
    """
    secured = secured_by(request)
    if secured is None or not secured.getpeercert():
        return None
    try:
        return peer_of(secured)
    except Expired as error:
        raise Refusal(403, f"{error} ('cosched identity request' and 'sign' renew it)") from None
