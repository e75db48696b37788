"""What is heavy to answer: long lists and output. Bounded for each user and in all, until the answer has been read.

A list of a thousand jobs is tens of milliseconds of work, and a megabyte until its reader has taken it. One is made at
a time, and each user has two on the way: others of his wait for those, and everybody else is answered in between.
Output is streamed in pieces at its reader's pace; of that each user has sixteen.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Final, Literal

from aiohttp import web

from space_scheduler.service.access.callers import Caller, Callers
from space_scheduler.service.api.places import Places

Handler = Callable[[web.Request, Caller], Awaitable[web.StreamResponse]]

_LISTS_OF_ONE_USER: Final = 2
_LISTS: Final = 32
_MADE_AT_ONCE: Final = 1
_WAITING: Final = 254  # 256 with those two: more than the connections of one user, where they are as they come
_STREAMS_OF_ONE_USER: Final = 16
_STREAMS: Final = 128
_PIECE_BYTES: Final = 64 << 10


class Heavy:
    """Has handlers called, and bounds those of what is heavy."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers
        self._bounds: dict[str, tuple[Places, str, AbstractAsyncContextManager[None]]] = {
            "list": (Places(_LISTS_OF_ONE_USER, _LISTS, _WAITING), "long lists", asyncio.Semaphore(_MADE_AT_ONCE)),
            "stream": (Places(_STREAMS_OF_ONE_USER, _STREAMS, 0), "streams of output", nullcontext()),
        }

    def answering(
        self, handler: Handler, heavy: Literal["", "list", "stream"], operators: str
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """The handler as the application calls it: told its caller, within the bounds of what is heavy.

        A ``list`` is an answer that is made at once and may be long, a ``stream`` one that is sent as it comes.
        ``operators``: what operators alone do by it; others are refused.
        """

        async def answered(request: web.Request) -> web.StreamResponse:
            caller = self._callers.of(request)
            if operators:
                caller.check_operator(operators)
            if not heavy:
                return await handler(request, caller)
            places, what, made = self._bounds[heavy]
            async with places.place_of(caller.user, what):
                async with made:
                    answer = await handler(request, caller)
                # what does not read keeps its place, and holds the answer once: a transport copies what it is given
                return await _sent(answer, request)

        return answered


async def _sent(answer: web.StreamResponse, request: web.Request) -> web.StreamResponse:
    body = answer.body if isinstance(answer, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= _PIECE_BYTES:
        return answer
    streamed = web.StreamResponse(status=answer.status, headers=answer.headers)
    streamed.content_length = len(body)
    try:
        await streamed.prepare(request)
        for at in range(0, len(body), _PIECE_BYTES):
            await streamed.write(body[at : at + _PIECE_BYTES])
        await streamed.write_eof()
    except ConnectionError as error:  # its reader has gone
        # asyncio's future refers to the error, the error's frames refer to that future and to the list: a cycle, which
        # would keep the list until the cyclic collector looks at objects of that age
        error.__traceback__ = None
    return streamed
