"""A real Chromium without a screen, spoken to by its DevTools protocol: what it shows, asks for and complains of."""

import asyncio
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

#: For anything to come of a command, or to be seen.
BOUND_S = 60.0
_ARROWS = {"ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
_KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "Home": 36, **_ARROWS}
_LONGEST_MESSAGE = 64 << 20


class Tab:
    """One tab. ``asked`` has the address of each request; ``complaints`` what went wrong in the page, in its words."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._session: str | None = None
        self.asked: list[str] = []
        self.complaints: list[str] = []
        self._reader = asyncio.create_task(self._read())

    async def begin(self) -> None:
        """A tab of its own, with nothing in it, which goes with the connection."""
        context = await self.call("Target.createBrowserContext", disposeOnDetach=True)
        target = await self.call("Target.createTarget", url="about:blank", browserContextId=context["browserContextId"])
        attached = await self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            await self.call(f"{domain}.enable")

    async def call(self, method: str, **given: Any) -> Any:
        """One command; its result."""
        number = len(self._answers) + 1
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        session = {"sessionId": self._session} if self._session else {}
        await self._connection.send(json.dumps({"id": number, "method": method, "params": given, **session}))
        async with asyncio.timeout(BOUND_S):
            return await answer

    async def go(self, url: str) -> None:
        """Open an address."""
        await self.call("Page.navigate", url=url)

    async def js(self, expression: str) -> Any:
        """The value of an expression, or of what it promises."""
        found = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    async def until(self, expression: str) -> Any:
        """The value of an expression as soon as it is true."""
        deadline_s = time.monotonic() + BOUND_S
        while True:
            try:
                if found := await self.js(expression):
                    return found
                text = await self.js("document.body ? document.body.innerText.slice(0, 3000) : ''")
            except AssertionError as error:  # another page is on its way
                text = str(error)
            assert time.monotonic() < deadline_s, (expression, text, self.complaints)
            await asyncio.sleep(0.02)

    async def key(self, key: str, *, shift: bool = False) -> None:
        """Press a key."""
        code = _KEYS.get(key, ord(key[0].upper()))
        event = {"key": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        if key == "Enter":
            event["text"] = "\r"
        elif len(key) == 1:
            event["text"] = key
        await self.call("Input.dispatchKeyEvent", type="keyDown", **event)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **event)

    async def looks(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """The size of the window in pixels, and which theme the system prefers."""
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def _read(self) -> None:
        async for frame in self._connection:
            said = json.loads(frame)
            if "id" in said:
                answer = self._answers[said["id"]]
                if not answer.done():
                    if "error" in said:
                        answer.set_exception(AssertionError(said["error"]))
                    else:
                        answer.set_result(said["result"])
            elif said["method"] == "Network.requestWillBeSent":
                self.asked.append(said["params"]["request"]["url"])
            elif said["method"] == "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(said["params"]["exceptionDetails"]))
            elif said["method"] == "Log.entryAdded" and said["params"]["entry"]["level"] == "error":
                self.complaints.append(said["params"]["entry"]["text"])

    def close(self) -> None:
        """Stop reading."""
        self._reader.cancel()


class Chromium:
    """A browser with a profile of its own. It ends with the process that has begun it, however that ends."""

    def __init__(self) -> None:
        program = shutil.which("chromium")
        assert program, "needs Debian's package chromium"
        self._profile = Path(tempfile.mkdtemp(prefix="browser-"))
        self._process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", program,
             "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--disable-extensions", "--mute-audio",
             "--force-color-profile=srgb", "--remote-debugging-port=0", f"--user-data-dir={self._profile}",
             "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
            env={**os.environ, "HOME": str(self._profile), "TZ": "UTC"},
        )  # fmt: skip

    @asynccontextmanager
    async def tab(self) -> AsyncIterator[Tab]:
        """A tab that shares neither cookies nor anything that is kept with others; gone when the block ends."""
        port, path = await self._listening()
        async with connect(f"ws://127.0.0.1:{port}{path}", max_size=_LONGEST_MESSAGE, proxy=None) as connection:
            tab = Tab(connection)
            try:
                await tab.begin()
                yield tab
            finally:
                tab.close()

    async def _listening(self) -> tuple[int, str]:
        deadline_s = time.monotonic() + BOUND_S
        said = self._profile / "DevToolsActivePort"
        while True:
            lines = said.read_text().split() if said.exists() else []
            if len(lines) == 2:
                return int(lines[0]), lines[1]
            assert self._process.poll() is None, "the browser has ended"
            assert time.monotonic() < deadline_s, "the browser does not listen"
            await asyncio.sleep(0.05)

    def close(self) -> None:
        """End it, with its profile."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        shutil.rmtree(self._profile, ignore_errors=True)


@contextmanager
def chromium() -> Iterator[Chromium]:
    """A browser; gone when the block ends."""
    browser = Chromium()
    try:
        yield browser
    finally:
        browser.close()
