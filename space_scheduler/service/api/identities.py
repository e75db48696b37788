"""The API's part for certificates: which ones the service knows, until when they are valid, and which count no more."""

from collections.abc import Callable, Container
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from cosched.identity.names import Kind, checked_name
from cosched.wire import api as docs
from space_scheduler.service.access.callers import Caller
from space_scheduler.service.access.certificates import Certificates
from space_scheduler.service.access.members import Members, checked_serials
from space_scheduler.service.access.problems import Refusal, answer
from space_scheduler.service.api.bodies import Bodies
from space_scheduler.service.link.link import Link
from space_scheduler.service.log import Log

_WHAT: Final = "certificates are listed and revoked"


class Identities:
    """The handlers. ``cut`` ends the connections on which certificates of those serial numbers were shown."""

    def __init__(self, link: Link, members: Members, certificates: Certificates, bodies: Bodies, log: Log) -> None:
        self._link = link
        self._members = members
        self._known = certificates
        self._bodies = bodies
        self._log = log
        self.cut: Callable[[Container[str]], int] = lambda serials: 0

    async def certificates(self, request: web.Request, caller: Caller) -> web.Response:
        """Those that were shown, and those that were revoked."""
        caller.check_operator(_WHAT)
        revoked = self._members.revocations()
        found = {
            each.serial: _document(each.serial, each.peer.kind, each.peer.name, each.until_s, each.serial in revoked)
            for each in self._known.shown()
        }
        for serial, (kind, name) in revoked.items():
            found.setdefault(serial, _document(serial, kind, name, None, True))
        expires = {name: _time(until_s) for name, until_s in self._known.expiries().items()}
        return answer(docs.CertificateList(list(found.values()), expires))

    async def revoke_certificates(self, request: web.Request, caller: Caller) -> web.Response:
        """Certificates count no more."""
        caller.check_operator(_WHAT)
        asked = await self._bodies.document(request, caller.user, docs.RevokeRequest, "revoke")
        name = checked_name(asked.kind, asked.name)
        serials = checked_serials(asked.serials, "revoke")
        if not asked.only:
            serials = [*serials, *(each.serial for each in self._known.of(asked.kind, name))]
        serials = list(dict.fromkeys(serials))
        if not serials:
            message = f"no certificate of {asked.kind} {name!r} is known here: name its serial number"
            raise Refusal(404, message, where="revoke: serials", found=name)
        own = self._known.own_serial
        if own in serials and not asked.only:
            message = f"{own} is the certificate that this scheduler shows, and all agents would leave it"
            raise Refusal(409, f"{message}: renew it first, or name it alone (--serial)", where="revoke: serials")
        self._members.revoke(asked.kind, name, serials)
        if asked.kind != "user":
            self._link.tell_revoked()
        closed = self.cut(frozenset(serials))
        whose = f"{asked.kind} {name}"
        self._log.info("certificates revoked", whose=whose, serials=serials, closed=closed, by=caller.user)
        return answer(docs.RevokedDoc(serials, closed))


def _document(serial: str, kind: Kind, name: str, until_s: float | None, revoked: bool) -> docs.CertificateDoc:
    return docs.CertificateDoc(serial, kind, name, _time(until_s) if until_s is not None else None, revoked)


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
