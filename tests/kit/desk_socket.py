"""The desk's socket of a real guard, asked as the user who runs the guard."""

import json
import socket
from typing import Any

from kit.guards import RealGuard


def desk(guard: RealGuard, do: str, **fields: Any) -> dict[str, Any]:
    """Ask at the desk."""
    return asked_at_desk(guard, json.dumps({"do": do, **fields}).encode())


def asked_at_desk(guard: RealGuard, packet: bytes) -> dict[str, Any]:
    """What the guard answers to a packet at the desk's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(30)
        connection.connect(f"{guard.directory}/run/desk.sock")
        connection.send(packet)
        answer: dict[str, Any] = json.loads(connection.recv(65536))
        return answer
