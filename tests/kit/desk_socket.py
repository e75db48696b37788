"""The desk's socket of a real guard, asked as the user who runs the guard, or as another."""

import json
import socket
import subprocess
from typing import Any

from kit.guards import RealGuard
from kit.waiting import BOUND_S


def desk(guard: RealGuard, do: str, **fields: Any) -> dict[str, Any]:
    """Ask at the desk."""
    return asked_at_desk(guard, json.dumps({"do": do, **fields}).encode())


def asked_at_desk(guard: RealGuard, packet: bytes) -> dict[str, Any]:
    """What the guard answers to a packet at the desk's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(BOUND_S)
        connection.connect(f"{guard.directory}/run/desk.sock")
        connection.send(packet)
        answer: dict[str, Any] = json.loads(connection.recv(65536))
        return answer


def ask_as(uid: int, guard: RealGuard, **request: Any) -> dict[str, Any]:
    """Ask as a user of that number."""
    code = (
        f"import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); s.settimeout({BOUND_S});"
        "s.connect(sys.argv[1]); s.send(sys.argv[2].encode()); print(s.recv(65536).decode())"
    )
    asker = ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "/usr/bin/python3", "-I", "-c", code]
    done = subprocess.run(
        [*asker, f"{guard.directory}/run/desk.sock", json.dumps(request)],
        capture_output=True, text=True, timeout=BOUND_S, check=True,
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
