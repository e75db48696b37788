"""What goes wrong in the API, as HTTP has it: a status, and a :class:`Problem` that tells the story."""

from collections.abc import Awaitable, Callable
from math import ceil
from time import monotonic
from typing import Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from cosched.errors import BadInput, Failed
from cosched.wire.api import Problem
from space_scheduler.service.log import Log

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_WHO: Final = 401
_WORDS: Final = {404: "there is nothing at this address", 405: "this address does not take that method"}


class Refusal(Exception):
    """A request that is not carried out: status and problem of the answer."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        where: str = "",
        found: str = "",
        expected: str = "",
        nearest: str = "",
        retry_after_s: float | None = None,
    ) -> None:
        """``retry_after_s``: when to ask again."""
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.problem = Problem(message, where, found, expected, nearest)


class TooLarge(BadInput):
    """Well-formed, and more of it than is taken."""


def answer(document: object, status: int = 200) -> web.Response:
    """A document as JSON."""
    return web.Response(body=msgspec.json.encode(document), status=status, content_type="application/json")


def told(
    log: Log,
    admit: Callable[[web.Request], Awaitable[None]],
    counted: Callable[[web.Request, web.StreamResponse, float], None],
) -> Middleware:
    """The middleware: errors become problems, and the service's own faults are logged with their traces.

    ``admit`` refuses requests of which no handler is to know; ``counted`` is told of each answer, and of the seconds
    that it took.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        began_s = monotonic()
        try:
            await admit(request)
            answered = await handler(request)
        except ConnectionError:
            raise  # the client has gone: there is nobody to tell
        except (Refusal, BadInput, Failed, web.HTTPException) as error:
            answered = _told(request, error)
        except Exception as error:
            log.fault("request failed", error, method=request.method, path=request.path)
            answered = answer(
                Problem(f"the service failed on this request ({type(error).__name__}); its log has more"), 500
            )
        counted(request, answered, monotonic() - began_s)
        return answered

    return middleware


def _told(request: web.Request, error: Refusal | BadInput | Failed | web.HTTPException) -> web.Response:
    if isinstance(error, BadInput):  # the same message as on a terminal, and its parts
        status, parts = 413 if isinstance(error, TooLarge) else 400, (error.where, error.found, error.expected)
        return answer(Problem(str(error), *parts, error.nearest), status)
    if isinstance(error, Refusal):
        told = answer(error.problem, error.status)
        if error.status == _WHO:
            told.force_close()  # a stranger: its place is needed
        if error.retry_after_s is not None:
            told.headers["Retry-After"] = str(max(1, ceil(error.retry_after_s)))
        return told
    if isinstance(error, Failed):  # the journal cannot be written or read, or the service is being stopped
        return answer(Problem(str(error)), 503)
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        return answer(
            Problem(f"the body is longer than the {request.client_max_size} bytes that are taken", "body"), 413
        )
    problem = Problem(_WORDS.get(error.status, error.reason), request.path, request.method)
    refused = answer(problem, error.status)
    if "Allow" in error.headers:
        refused.headers["Allow"] = error.headers["Allow"]
    return refused
