"""The agent's end of the guard's socket: packets out, answers and events in, for blocking callers and for loops.

In an event loop, watch :meth:`GuardClient.fileno` for reading, and call :meth:`GuardClient.receive` until None::

    client = GuardClient(path)
    loop.add_reader(client.fileno(), on_readable)      # while (message := client.receive()) is not None: ...
    number = client.send(requests.Relax(until_us, epoch=7))   # the answer has "re": number

A request is one of :mod:`node_agent.guard.base.requests`. A message with ``re`` is the answer to that request, one with
``event`` comes unasked (``node_agent.guard.base.requests``).
"""

import contextlib
import json
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from node_agent.guard.base import requests
from node_agent.guard.base.requests import MAX_PACKET_BYTES, Refusal

#: For how long a packet may wait for room on its way to the guard, and by default an answer on its way back.
PATIENCE_S = 10.0

Message = dict[str, Any]


class GuardGone(ConnectionError):
    """The guard is not there, has closed the connection, or gives no answer."""


class GuardRefused(Refusal):
    """The guard refused a request; ``code`` as in ``cosched.wire.messages.Refused``."""


class GuardClient(contextlib.AbstractContextManager["GuardClient"]):
    """One connection to the guard. Raises :class:`GuardGone` from any call once it is lost."""

    def __init__(self, path: str) -> None:
        """Connect to the socket at ``path`` (``guard.sock`` in the run directory)."""
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_PACKET_BYTES)
            self._socket.settimeout(PATIENCE_S)
            self._socket.connect(path)
        except OSError as error:
            self._socket.close()
            raise GuardGone(f"no guard at {path}: {error.strerror or error}") from None
        self._socket.setblocking(False)
        self._packet = memoryview(bytearray(MAX_PACKET_BYTES))
        self._requests = 0
        self._kept: deque[Message] = deque()

    def fileno(self) -> int:
        """The descriptor to watch for reading."""
        return self._socket.fileno()

    def send(self, request: requests.Request, fds: Sequence[int] = ()) -> int:
        """Send one request, with descriptors (which stay open here too), and return its number, ``re`` in the answer.

        Waits for room only while the guard has many requests before it. Raises ValueError for a request that is too
        long to travel.
        """
        self._requests += 1
        packet = self._encode(request, self._requests)
        if len(packet) > MAX_PACKET_BYTES:
            raise ValueError(f"a request of {len(packet)} bytes; at most {MAX_PACKET_BYTES} travel to the guard")
        deadline_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                socket.send_fds(self._socket, [packet], list(fds))
                return self._requests
            except BlockingIOError:
                self._wait(select.POLLOUT, deadline_s)
            except OSError as error:
                if (last := self._arrived()) is not None:  # why it hung up, perhaps
                    self._kept.append(last)
                raise GuardGone(f"the guard has gone: {error.strerror}") from None

    def receive(self) -> Message | None:
        """The next answer or event, or None when there is none now."""
        return self._kept.popleft() if self._kept else self._arrived()

    def ask(self, request: requests.Request, fds: Sequence[int] = (), timeout_s: float = PATIENCE_S) -> Message:
        """Send, wait for the answer and return it. Raises :class:`GuardRefused`. For callers that may block.

        Events that come meanwhile are kept for :meth:`receive`.
        """
        number = self.send(request, fds)
        deadline_s = time.monotonic() + timeout_s
        while True:
            message = self._arrived()
            if message is None:
                self._wait(select.POLLIN, deadline_s)
            elif message.get("re") != number:
                self._kept.append(message)
            elif "error" in message:
                raise GuardRefused(str(message["error"]), str(message.get("message", "")))
            else:
                return message

    def close(self) -> None:
        """Hang up: the guard arms the contract, and jobs go on."""
        self._socket.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _encode(self, request: requests.Request, number: int) -> bytes:
        return requests.encode(request, number)

    def _arrived(self) -> Message | None:
        try:
            try:
                length = self._socket.recv_into(self._packet)
            except ConnectionResetError:  # it left something of ours unread; what it said before comes after that
                length = self._socket.recv_into(self._packet)
        except BlockingIOError:
            return None
        except OSError as error:
            raise GuardGone(f"the guard has gone: {error.strerror}") from None
        packet = bytes(self._packet[:length])
        if not packet:
            raise GuardGone("the guard has closed the connection")
        message = json.loads(packet)
        if not isinstance(message, dict):
            raise GuardGone(f"not the guard: it said {packet[:80]!r}")
        if "re" not in message and "error" in message:  # said at the door, before it is closed
            raise GuardGone(f"the guard is {message['error']}: {message.get('message', '')}")
        return message

    def _wait(self, what: int, deadline_s: float) -> None:
        poll = select.poll()
        poll.register(self._socket, what)
        if not poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            raise GuardGone("the guard does not answer")
