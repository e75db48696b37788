"""The guard's socket: one agent at a time, from the user who may; requests in, answers and events out."""

import contextlib
import json
import os
import select
import socket
import stat
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from cosched.linux.peers import peer_credentials
from node_agent.guard.base.loop import Loop
from node_agent.guard.base.requests import MAX_PACKET_BYTES, SOCKET_NAME, Refusal, decode
from node_agent.guard.base.sockets import listening, make_directory

#: Answers and events that wait for an agent that doesn't read; beyond that it is as good as gone.
_MAX_WAITING: Final = 4096
_MAX_FDS: Final = 16
_BACKLOG: Final = 4

Answer = Callable[[dict[str, Any] | Refusal], None]
#: What is done about a request, with the descriptors that came with it. Returns the answer; None: it comes later.
Handler = Callable[[Any, Sequence[int], Answer], dict[str, Any] | None]


class Server:
    """Listens in the run directory. ``on_left`` is called when the agent has gone."""

    def __init__(self, loop: Loop, run: str, agent_uid: int, on_left: Callable[[], None]) -> None:
        """Raises OSError where the socket cannot be made. No request is read before there are ``handlers``."""
        self._loop = loop
        self._uids = {agent_uid, os.geteuid(), 0}
        self.handlers: Mapping[type, Handler] = {}
        self._on_left = on_left
        self._agent: socket.socket | None = None
        self._waiting: deque[bytes] = deque()
        self._socket = _listening(run, agent_uid)
        loop.watch(self._socket.fileno(), self._knocked)

    def close(self) -> None:
        """Listen no more."""
        with contextlib.suppress(OSError):
            os.unlink(self._socket.getsockname())
        self._socket.close()
        if self._agent is not None:
            self._agent.close()

    def _knocked(self) -> None:
        try:
            fresh, _ = self._socket.accept()
        except OSError:
            return
        uid = peer_credentials(fresh).uid
        if uid not in self._uids or self._agent is not None:
            stranger = Refusal("user", f"uid {uid} may not talk to this guard")
            refusal = Refusal("busy", "another agent is connected") if uid in self._uids else stranger
            with contextlib.suppress(OSError):
                fresh.send(json.dumps(refusal.fields).encode(), socket.MSG_DONTWAIT)
            fresh.close()
            return
        fresh.setblocking(False)
        fresh.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * MAX_PACKET_BYTES)
        self._agent = fresh
        self._loop.watch(fresh.fileno(), self._ready, on_failed=self._leave)

    def _ready(self) -> None:
        """Something to read, or room to write."""
        self._flush()
        assert self._agent is not None
        try:
            packet, fds, flags, _ = socket.recv_fds(self._agent, MAX_PACKET_BYTES, _MAX_FDS)
        except BlockingIOError:
            return
        except OSError:
            self._leave()
            return
        try:
            for fd in fds:
                os.set_inheritable(fd, False)
            if not packet:
                self._leave()
            elif flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
                raise Refusal("unknown", f"more than {MAX_PACKET_BYTES} bytes or {_MAX_FDS} descriptors in a packet")
            else:
                self._obey(packet, fds)
        except Refusal as refusal:
            self.emit({"re": -1, **refusal.fields})
        finally:
            for fd in fds:
                os.close(fd)

    def _obey(self, packet: bytes, fds: list[int]) -> None:
        number, request = decode(packet, len(fds))
        asker = self._agent

        def answer(result: dict[str, Any] | Refusal) -> None:
            if self._agent is not asker:
                return  # who asked has gone
            told = result.fields if isinstance(result, Refusal) else {"ok": True, **result}
            self.emit({"re": number, **told})

        try:
            if isinstance(request, Refusal):
                raise request
            if (found := self.handlers[type(request)](request, fds, answer)) is not None:
                answer(found)
        except Refusal as refusal:
            answer(refusal)
        except OSError as error:
            answer(Refusal("failed", f"{error.filename or 'the system'}: {error.strerror or error}"))
        except Exception as error:  # a mistake of ours: told, and survived
            self._loop.complain(f"a request ({type(request).__name__})", error)
            answer(Refusal("failed", f"a mistake in the guard: {type(error).__name__}: {error}"))

    def emit(self, message: dict[str, Any]) -> None:
        """Tell the agent, if there is one: one who comes later asks for the list."""
        if self._agent is None:
            return
        packet = json.dumps(message, separators=(",", ":")).encode()
        if len(packet) > MAX_PACKET_BYTES:
            too_long = Refusal("failed", "the answer is too long to travel").fields
            packet = json.dumps({"re": message.get("re"), **too_long}).encode()
        self._waiting.append(packet)
        self._flush()
        if len(self._waiting) > _MAX_WAITING:
            self._leave()

    def _flush(self) -> None:
        while self._waiting and self._agent is not None:
            try:
                self._agent.send(self._waiting[0])
            except BlockingIOError:
                break
            except OSError:
                return  # reading tells why
            self._waiting.popleft()
        if self._agent is not None:
            wanted = select.EPOLLIN | (select.EPOLLOUT if self._waiting else 0)
            self._loop.watch(self._agent.fileno(), self._ready, wanted, self._leave)

    def _leave(self) -> None:
        if self._agent is not None:
            self._loop.unwatch(self._agent.fileno())
            self._agent.close()
            self._agent = None
            self._waiting.clear()
            self._on_left()


def _listening(run: str, agent_uid: int) -> socket.socket:
    """The socket, the agent's own with mode 0600, in a directory where nobody else can put one in its place.

    Where the agent's user may write to that directory, the socket is made with his rights: so it cannot be made to
    become something else on the way.
    """
    own = os.geteuid()
    make_directory(run, 0o755, agent_uid)
    status = os.stat(run)
    if status.st_uid not in {0, own, agent_uid} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(
            1,
            f"belongs to uid {status.st_uid} with mode {stat.S_IMODE(status.st_mode):o}: others could write to it",
            run,
        )
    path = os.path.join(run, SOCKET_NAME)
    as_agent = status.st_uid == agent_uid != own
    try:
        if as_agent:
            os.seteuid(agent_uid)
        made = listening(path, 0o177, _BACKLOG)
    finally:
        os.seteuid(own)
    if agent_uid != own and not as_agent:  # the directory is ours, and so is the name in it
        os.chown(path, agent_uid, -1, follow_symlinks=False)
    return made
