"""What a service tells whoever started it, as systemd has it: that it is ready, and again and again that it lives.

``NOTIFY_SOCKET`` says where, ``WATCHDOG_USEC`` how long it may be silent before it is killed and started anew. A lab's
process 1 does the same (``cosched.apps.lab.keeping``).
"""

import contextlib
import os
import socket
from typing import Final

_TIMES: Final = 4  # signs of life within the time of the watchdog


def notify(message: str) -> None:
    """Tell it, where somebody wants to know."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with (
        contextlib.suppress(OSError),  # it does not listen: then nobody waits for it
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as sender,
    ):
        sender.sendto(message.encode(), address)


class Watchdog:
    """Signs of life, in time; none where nobody watches."""

    def __init__(self) -> None:
        text, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
        meant = not pid or pid == str(os.getpid())
        self._every_us = int(text) // _TIMES if text.isdecimal() and meant else 0
        self._due_us = 0

    def due_us(self) -> int | None:
        """When :meth:`tick` is wanted next; None: never."""
        return self._due_us if self._every_us else None

    def tick(self, now_us: int) -> None:
        """Give a sign, if it is time."""
        if self._every_us and now_us >= self._due_us:
            notify("WATCHDOG=1")
            self._due_us = now_us + self._every_us
