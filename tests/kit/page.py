"""The page as a browser asks for it, without a browser: a link, its cookie, and the stream's events."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import aiohttp

from cosched.wire.api import PAGE_COOKIE
from kit.service import DEADLINE_S, Running


class Entered(NamedTuple):
    """A visit: its address, and the headers that show its cookie."""

    path: str
    headers: dict[str, str]


async def entered(service: Running, session: aiohttp.ClientSession | None = None) -> Entered:
    """The visit that a new link opens."""
    session = session or service.http
    async with session.post("/v1/page") as answer:
        assert answer.status == 201, await answer.text()
        link = (await answer.json())["path"]
    async with session.get(link, cookies={}) as answer:
        text = await answer.text()
        assert answer.status == 200, text
        cookie = answer.cookies[PAGE_COOKIE]
    session.cookie_jar.clear()
    found = re.search(r'href="\.\./(s/\w+/)"', text)
    assert found
    return Entered(f"/page/{found[1]}", {"Cookie": f"{PAGE_COOKIE}={cookie.value}"})


class Events:
    """A stream of events as they come."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        self._answer = answer
        self.last_id = ""

    async def next(self, *kinds: str) -> tuple[str, Any]:
        """The next event of these kinds (none: of any), and its document."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                kind, data = "", ""
                while line := (await self._answer.content.readuntil(b"\n")).decode().rstrip("\n"):
                    name, _, value = line.partition(": ")
                    kind, data = (value if name == "event" else kind), (value if name == "data" else data)
                    self.last_id = value if name == "id" else self.last_id
                if kind in kinds or not kinds:
                    return kind, json.loads(data)

    async def comment(self) -> str:
        """What comes next that is a comment, or an event's kind."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                line = (await self._answer.content.readuntil(b"\n")).decode().rstrip("\n")
                if line.startswith((":", "event: ")):
                    return line.removeprefix("event: ")

    async def until(self, wanted: Any) -> Any:
        """The next frame for which that holds."""
        while True:
            _, frame = await self.next("all", "some")
            if wanted(frame):
                return frame

    async def ended(self) -> None:
        """Until the service ends it."""
        async with asyncio.timeout(DEADLINE_S):
            while await self._answer.content.readany():
                pass


@asynccontextmanager
async def events(
    service: Running, visit: Entered, session: aiohttp.ClientSession | None = None, **headers: str
) -> AsyncIterator[Events]:
    """A visit's stream."""
    given = visit.headers | {name.replace("_", "-"): value for name, value in headers.items()}
    async with (session or service.http).get(f"{visit.path}events", headers=given) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        stream = Events(answer)
        stream._answer.content._high_water = 1 << 24  # a frame is one line
        yield stream
