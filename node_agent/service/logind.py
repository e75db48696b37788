"""Questions to logind, by systemd's own client: its D-Bus names are part of its interface, and where logind is,
``busctl`` is. Each costs a process, so they are seldom asked.
"""

import asyncio
import contextlib
import time
from typing import Final

from cosched.linux import inhibitors
from cosched.linux.sessions import Session

NAME: Final = "org.freedesktop.login1"
PATH: Final = "/org/freedesktop/login1"
_PATIENCE_S: Final = 2.0
#: For the answer as a whole, however it comes; and of how many bytes it may be.
_DEADLINE_S: Final = 4.0
_MOST_BYTES: Final = 1 << 20
_ASK_S: Final = 5.0


async def asked(*arguments: str) -> str:
    """What ``busctl`` prints. Raises OSError where it is not there; empty where logind does not answer, or too much."""
    process = await asyncio.create_subprocess_exec(
        "busctl", "--system", f"--timeout={_PATIENCE_S:g}", "--json=short", *arguments,
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
        limit=_MOST_BYTES,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        async with asyncio.timeout(_DEADLINE_S):
            await process.stdout.readexactly(_MOST_BYTES + 1)
    except asyncio.IncompleteReadError as whole:
        return whole.partial.decode(errors="replace")
    except TimeoutError:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            process.kill()
        await process.wait()
    return ""


class Inhibitors:
    """Whether programs on the screen keep the desktop from being idle, as logind knows it."""

    def __init__(self) -> None:
        self._asked_s = float("-inf")
        self._there = False

    async def there(self, sessions: list[Session]) -> bool:
        """Whether one of these sessions, which are on the screen, has such a program; what is not known is none."""
        now_s = time.monotonic()
        if now_s - self._asked_s >= _ASK_S:
            self._asked_s = now_s
            try:
                answer = await asked("call", NAME, PATH, f"{NAME}.Manager", "ListInhibitors")
                self._there = inhibitors.on_screen(inhibitors.listed(answer), sessions)
            except (OSError, ValueError):
                self._there = False
        return self._there
