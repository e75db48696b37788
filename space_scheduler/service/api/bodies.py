"""Bodies of requests: read within bounds, decoded, whatever they are.

A body that is on its way holds memory for as long as its sender likes. So a body has a time-out, and those that are
long, or of unknown length, are read one at a time for each user and three at a time in all. Of one user's long bodies
some may wait for that; what they wait with stays in the socket.
"""

import asyncio
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from cosched.config.convert import convert
from cosched.errors import BadInput
from space_scheduler.service.access.problems import Refusal
from space_scheduler.service.api.places import Places

MAX_BODY_BYTES: Final = 8 << 20  # a script of the largest size, every character escaped
#: What is shorter is read at once: it is hardly more than the connection itself holds.
SHORT_BYTES: Final = 64 << 10
_PATIENCE_S: Final = 20.0
_OF_ONE_USER: Final = 1
_IN_ALL: Final = 3
_WAITING: Final = 4  # of one user
Document = TypeVar("Document", bound=msgspec.Struct)


class Bodies:
    """Reads bodies for the handlers."""

    def __init__(self, patience_s: float = _PATIENCE_S) -> None:
        """``patience_s``: within which a body has to arrive, once it is its turn."""
        self._patience_s = patience_s
        self._places = Places(_OF_ONE_USER, _IN_ALL, _WAITING)

    async def read(self, request: web.Request, user: str) -> bytes:
        """The body. Raises :class:`Refusal`: 408, 413, 415 or 429, and :class:`BadInput` where it is no body."""
        if encoding := request.headers.get("Content-Encoding", ""):
            raise Refusal(
                415,
                "bodies are taken as they are, not compressed (Content-Encoding)",
                where="body",
                found=encoding[:40],
                expected="identity",
            )
        length = request.content_length if "Content-Length" in request.headers else None
        if length is None and not request.can_read_body:
            return b""
        if length is not None and length > MAX_BODY_BYTES:
            raise _too_long()
        if length is not None and length <= SHORT_BYTES:
            return await self._in_time(request)
        async with self._places.place_of(user, "long bodies"):
            return await self._in_time(request)

    async def document(
        self, request: web.Request, user: str, kind: type[Document], where: str, expected: str = "a document as JSON"
    ) -> Document:
        """The body as a structure of that kind, its defaults where there is none. Raises as :meth:`read` does."""
        body = await self.read(request, user)
        return convert(decoded(body, expected) if body.strip() else {}, kind, where)

    async def _in_time(self, request: web.Request) -> bytes:
        body = bytearray()
        try:
            async with asyncio.timeout(self._patience_s):
                while piece := await request.content.readany():
                    body += piece
                    if len(body) > MAX_BODY_BYTES:
                        raise _too_long()
        except TimeoutError:
            raise Refusal(
                408, f"the body has not arrived within {self._patience_s:g} s", where="body", found=f"{len(body)} bytes"
            ) from None
        except (HttpProcessingError, web.RequestPayloadError) as error:
            raise BadInput("body", f"not one of HTTP: {str(error)[:200]}", "a body as its headers say") from None
        return bytes(body)


def decoded(body: bytes, expected: str) -> Any:
    """The JSON in a body. Raises :class:`BadInput`."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput("body", f"not JSON: {error}", expected) from None


def _too_long() -> Refusal:
    return Refusal(413, f"the body is longer than the {MAX_BODY_BYTES} bytes that are taken", where="body")
