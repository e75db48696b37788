"""Asking this machine's guard at the desk's socket: one JSON object there and one back, without any scheduler."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any, Final

from cosched.errors import Failed, NoAnswer

SOCKET: Final = Path("/run/cosched/desk.sock")
_PATIENCE_S: Final = 10.0
_PAUSE_S: Final = 0.02  # before it is tried again, where others keep the guard busy
_MAX_BYTES: Final = 256 << 10


def found_socket() -> Path:
    """This machine's ``desk.sock``; the one of a node that lies beside a scheduler, such as in /run/cosched-node."""
    beside = list(SOCKET.parent.parent.glob(f"{SOCKET.parent.name}-*/{SOCKET.name}"))
    return beside[0] if len(beside) == 1 and not SOCKET.exists() else SOCKET


def ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The guard's answer. Raises :class:`Failed` with its refusal, :class:`NoAnswer` where there is none."""
    answer: dict[str, Any] = json.loads(answer_to(path, json.dumps(request).encode()))
    if "error" in answer:
        raise Failed(str(answer.get("message")))
    until_us = answer.get("paused_until_us")
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return answer | {"paused_for_s": None if until_us is None else max(0.0, until_us / 1e6 - now_s)}


def answer_to(path: Path, request: bytes) -> bytes:
    """What comes back: at this user's own socket where the guard has made one, else at everybody's, until it is late.

    Raises :class:`NoAnswer`.
    """
    deadline_s = time.monotonic() + _PATIENCE_S
    own = path.with_name(path.stem) / f"{os.geteuid()}.sock"
    while True:
        for each in (own, path):
            left_s = max(0.1, deadline_s - time.monotonic())
            try:
                if packet := _asked(each, request, left_s):
                    return packet
                problem = f"the guard at {path} does not answer"
            except OSError as error:
                if each == own:
                    continue
                problem = f"no guard of cosched answers at {path}: {error.strerror or error}"
                if isinstance(error, FileNotFoundError):
                    problem += "; --socket or COSCHED_DESK_SOCKET names desk.sock in another run directory"
                if not isinstance(error, (BlockingIOError, TimeoutError, ConnectionResetError, BrokenPipeError)):
                    raise NoAnswer(problem) from None
        if time.monotonic() >= deadline_s:
            raise NoAnswer(problem)
        time.sleep(_PAUSE_S)


def _asked(path: Path, request: bytes, patience_s: float) -> bytes:
    """One packet there and one back; empty where the guard has hung up. Raises OSError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as guard:
        guard.settimeout(patience_s)
        guard.connect(str(path))
        guard.send(request)
        return guard.recv(_MAX_BYTES)
