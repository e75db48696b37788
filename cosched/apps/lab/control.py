"""What ``cosched lab`` and a node's process 1 say to each other: JSON packets over a Unix socket, descriptors beside.

requests
    {do: status}                           answers {services: {name: {pid, ended, starts}}}
    {do: run, tty: false} + 4 descriptors  the order (JSON: argv, env, cwd, umask), stdin, stdout, stderr
    {do: run, tty: true} + 1 descriptor    the order, which has rows and columns too
              answers {pid, cwd} (with a terminal: and its master's descriptor), or {error, status};
              later, when it has ended, {status} or {signal}
    {do: signal, signal: n}                to the group of the command that this connection runs
The order is a file without a name: arguments and environments may be longer than a packet. A command whose caller goes
away gets SIGHUP.
"""

import array
import contextlib
import json
import os
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from cosched.linux.peers import peer_credentials

MAX_PACKET_BYTES: Final = 64 << 10
MAX_ORDER_BYTES: Final = 8 << 20
_MAX_DESCRIPTORS: Final = 4
#: What :func:`services` says of one that runs.
RUNNING: Final = "running"


def listen(path: Path) -> socket.socket:
    """The node's end, for the owner alone."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(path))
    os.chmod(path, 0o600)
    listener.listen(64)
    listener.setblocking(False)
    return listener


def connect(path: Path, timeout_s: float = 10.0) -> socket.socket:
    """The caller's end. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(timeout_s)
    try:
        connection.connect(str(path))
    except OSError:
        connection.close()
        raise
    return connection


def send(connection: socket.socket, message: dict[str, Any], descriptors: Sequence[int] = ()) -> None:
    """One packet."""
    beside = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))] if descriptors else []
    connection.sendmsg([json.dumps(message).encode()], beside)


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """One packet and the descriptors beside it; None at the end. Raises OSError and ValueError."""
    room = socket.CMSG_SPACE(_MAX_DESCRIPTORS * array.array("i").itemsize)
    data, beside, flags, _ = connection.recvmsg(MAX_PACKET_BYTES, room, socket.MSG_CMSG_CLOEXEC)
    descriptors = array.array("i")
    for level, kind, content in beside:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(content[: len(content) - len(content) % descriptors.itemsize])
    try:
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ValueError("a packet that is too long")
        if not data:
            close(descriptors)
            return None
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError("not an object")
    except ValueError:
        close(descriptors)
        raise
    return message, list(descriptors)


def close(descriptors: Sequence[int]) -> None:
    """Close all of these."""
    for descriptor in descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)


def written_order(order: dict[str, Any]) -> int:
    """An order as the descriptor of a file without a name. Bytes that are not UTF-8 survive."""
    descriptor = os.memfd_create("order")
    data = json.dumps(order).encode()
    while data:
        data = data[os.write(descriptor, data) :]
    return descriptor


def read_order(descriptor: int) -> dict[str, Any]:
    """The order in such a file. Raises OSError and ValueError."""
    order = json.loads(os.pread(descriptor, MAX_ORDER_BYTES, 0))
    if not (isinstance(order, dict) and order.get("argv") and isinstance(order.get("env"), dict)):
        raise ValueError("not an order")
    return order


def may_command(connection: socket.socket) -> bool:
    """Whether the other side is root or the lab's own user."""
    return peer_credentials(connection).uid in (0, os.geteuid())


def services(path: Path) -> dict[str, str]:
    """How the services of the process 1 that listens there are: running, or how they ended."""
    try:
        with contextlib.closing(connect(path)) as connection:
            send(connection, {"do": "status"})
            packet = receive(connection)
    except OSError as error:
        return {"init": f"does not answer: {error.strerror or error}"}
    if packet is None:
        return {"init": "has ended"}
    return {name: _told(each["ended"]) for name, each in packet[0]["services"].items()}


def _told(ended: dict[str, int] | None) -> str:
    if ended is None:
        return RUNNING
    return f"ended with signal {ended['signal']}" if "signal" in ended else f"ended with status {ended['status']}"
