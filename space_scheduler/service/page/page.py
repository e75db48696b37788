"""The page's addresses. Each is a GET, changes nothing, and is one user's: the connection's, as for the API.

A browser comes through ``cosched page``, whose connection says who it is; a port of the loopback interface is open to
everybody on that machine, so what it shows wants the cookie too that a one-time link has set (:mod:`~.visits`).
"""

from functools import partial
from typing import Final

import msgspec
from aiohttp import hdrs, web

from cosched.wire.api import PAGE_COOKIE, PageLink
from space_scheduler.service.access.callers import Caller, Callers
from space_scheduler.service.access.problems import Refusal, answer
from space_scheduler.service.api.api import Api
from space_scheduler.service.api.heavy import Handler
from space_scheduler.service.api.rates import Rates
from space_scheduler.service.page.assets import assets
from space_scheduler.service.page.rows import JobRow
from space_scheduler.service.page.streams import Stream, Streams
from space_scheduler.service.page.visits import LINK_S, VISIT_S, NoVisit, Visit, Visits

_PIECE_BYTES: Final = 64 << 10
#: What is shown holds still; and a comment, which no page sees, so that it is noticed when the reader has gone.
_STILL: Final = b"event: still\ndata: {}\n\n"
_NOTHING: Final = b":\n\n"
#: Streams that one user may open in a minute, and links that one may ask for.
_PER_MINUTE: Final = 60
_OPENS: Final = "opens the page"
#: Nothing of elsewhere, no inline code, in nobody's frame, no text that becomes code; nothing is stored.
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cache-Control": "no-store",
}
#: A page of its own goes on to the page: the cookie is sent where a link of another site has led to this one.
_ENTERED: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>cosched</title>'
    '<link rel="icon" href="../static/icon.svg"><meta http-equiv="refresh" content="0; url=../s/{visit}/">'
    '<p><a href="../s/{visit}/">The page</a></p></html>'
)
_SORRY: Final = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    '<title>cosched</title><link rel="icon" href="/page/static/icon.svg">'
    "<h1>Nobody is let in here</h1><p>{words}</p></html>"
)


class Page:
    """The handlers."""

    def __init__(self, callers: Callers, api: Api, streams: Streams) -> None:
        self._callers = callers
        self._api = api
        self._streams = streams
        self._visits = Visits()
        self._assets = assets()
        self._rates = Rates(_PER_MINUTE)

    def routes(self) -> list[web.RouteDef]:
        """All addresses but the API's."""
        return [
            web.get("/page/enter/{secret}", self.enter, allow_head=False),
            web.get("/page/static/{name}", self.asset),
            web.get("/page/s/{visit}/", self.index),
            web.get("/page/s/{visit}/events", self.events, allow_head=False),
            web.get("/page/s/{visit}/jobs/{id}", partial(self.told, self._api.job)),
            web.get("/page/s/{visit}/set-aside", partial(self.told, self._api.set_aside)),
        ]

    async def page_link(self, _: web.Request, caller: Caller) -> web.Response:
        """A one-time link for whoever asks."""
        self._rates.take(caller.user, _OPENS)
        return answer(PageLink(f"/page/enter/{self._visits.link(caller.user)}", LINK_S), 201)

    async def enter(self, request: web.Request) -> web.Response:
        """Use a link: the cookie, and on to the page."""
        user = self._callers.identified(request).user
        try:
            visit, cookie = self._visits.enter(request.match_info["secret"], user)
        except NoVisit as error:
            return _sorry(error)
        entered = web.Response(text=_ENTERED.format(visit=visit.id), content_type="text/html", headers=HEADERS)
        entered.set_cookie(
            PAGE_COOKIE, cookie, path=f"/page/s/{visit.id}/", max_age=int(VISIT_S), httponly=True, samesite="Strict"
        )
        return entered

    async def asset(self, request: web.Request) -> web.Response:
        """A script or a style: the same for everybody."""
        self._callers.identified(request)
        return self._sent(request.match_info["name"])

    async def index(self, request: web.Request) -> web.Response:
        """The page itself."""
        try:
            self._visit(request)
        except NoVisit as error:
            return _sorry(error)
        return self._sent("index.html")

    def _sent(self, name: str) -> web.Response:
        if name not in self._assets:
            raise web.HTTPNotFound
        body, content_type = self._assets[name]
        return web.Response(body=body, content_type=content_type, charset="utf-8", headers=HEADERS)

    async def told(self, handler: Handler, request: web.Request) -> web.StreamResponse:
        """A job, or what is set aside, as the API tells it."""
        self._asked_by_page(request)
        found = await handler(request, self._callers.of(request))
        found.headers.update(HEADERS)
        return found

    async def events(self, request: web.Request) -> web.StreamResponse:
        """What there is to see and what changes, for as long as the reader stays."""
        visit = self._asked_by_page(request)
        self._rates.take(visit.user, _OPENS)
        response = web.StreamResponse(headers=HEADERS | {"Content-Type": "text/event-stream; charset=utf-8"})
        stream = self._streams.open(visit.user)
        try:
            await response.prepare(request)
            await self._tell(request, response, stream)
            await response.write_eof()
        except ConnectionError as error:  # its reader has gone, or was cut off
            error.__traceback__ = None  # as in ``heavy``: no cycle through the frames
        finally:
            self._streams.close(stream)
        return response

    async def _tell(self, request: web.Request, response: web.StreamResponse, stream: Stream) -> None:
        streams, position = self._streams, request.headers.get("Last-Event-ID", "")
        told_own: list[JobRow] | None = None  # a browser that comes back has those of before
        await response.write(b"retry: 2000\nevent: you\ndata: %b\n\n" % msgspec.json.encode({"user": stream.user}))
        while not streams.stopping and self._lasts(request):
            if stream.replaced:
                await response.write(b"event: replaced\ndata: {}\n\n")
                return
            if not streams.ready:
                await stream.waited()
                continue
            number, events = streams.feed.since(position)
            position, own = streams.feed.position(number), streams.own.get(stream.user, [])
            if own != told_own:
                told_own, events = own, [*events, b"event: own\ndata: %b\n\n" % msgspec.json.encode(own)]
            for event in events:
                for at in range(0, len(event), _PIECE_BYTES):
                    await response.write(event[at : at + _PIECE_BYTES])
            if not await stream.waited():
                await response.write(_STILL if streams.seeing else _NOTHING)

    def _lasts(self, request: web.Request) -> bool:
        """Whether the visit, and what proves whose the connection is, are still good."""
        try:
            self._visit(request)
        except Refusal:
            return False
        return True

    def _asked_by_page(self, request: web.Request) -> Visit:
        """Whose data are asked for, by the page itself and no other site's. Raises :class:`Refusal`."""
        origin = request.headers.get(hdrs.ORIGIN)
        site = request.headers.get("Sec-Fetch-Site", "same-origin")
        own = (None, f"http://{request.host}", f"https://{request.host}")
        if site not in ("same-origin", "none") or origin not in own:
            raise Refusal(403, "this is for the page itself to ask, not for other sites")
        return self._visit(request)

    def _visit(self, request: web.Request) -> Visit:
        user = self._callers.identified(request).user
        return self._visits.of(request.match_info["visit"], request.cookies.get(PAGE_COOKIE, ""), user)


def _sorry(error: NoVisit) -> web.Response:
    return web.Response(text=_SORRY.format(words=error), status=403, content_type="text/html", headers=HEADERS)
