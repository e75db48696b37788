"""``cosched desk``: what the person at this desk decides, without the scheduler: it talks to this machine's guard."""

import json
import os
import socket
import time
from pathlib import Path
from typing import Any

import click

from cosched.apps.cli.service import echo_json, json_option, lasting
from cosched.config.units import duration_us
from cosched.errors import BadInput, Failed, NoAnswer

_SOCKET = Path("/run/cosched/desk.sock")
_PATIENCE_S = 10.0
_PAUSE_S = 0.02  # before it is tried again, where others keep the guard busy
_MAX_BYTES = 64 << 10

_socket_option = click.option(
    "--socket",
    "path",
    type=click.Path(path_type=Path),
    default=_SOCKET,
    show_default=True,
    envvar="COSCHED_DESK_SOCKET",
    metavar="FILE",
    help="Where this machine's guard listens (desk.sock in its run directory).",
)


@click.group("desk")
def command() -> None:
    """What runs beside you on this machine, and a pause from it.

    \b
    Example: cosched desk pause --for 2h
    """


@command.command("status")
@_socket_option
@json_option
def status_command(path: Path, as_json: bool) -> None:
    """Whether parallel work is paused or limited on this machine.

    \b
    Example: cosched desk status
    """
    _tell(_ask(path, {"do": "status"}), as_json)


@command.command("pause")
@click.option("--for", "duration", metavar="TIME", help="Go on by itself after this time, such as 2h.")
@_socket_option
@json_option
def pause_command(path: Path, duration: str | None, as_json: bool) -> None:
    """Stop all parallel work on this machine, at once: for root, and for who is logged in at the machine itself.

    What runs is frozen and goes on after 'cosched desk resume'; its memory stays in use.

    \b
    Example: cosched desk pause --for 30min
    """
    seconds = None if duration is None else duration_us(duration, "--for") / 1e6
    if seconds is not None and seconds <= 0:
        raise BadInput("--for", f"found {duration}", "a time above 0")
    _tell(_ask(path, {"do": "pause", "seconds": seconds}), as_json)


@command.command("resume")
@_socket_option
@json_option
def resume_command(path: Path, as_json: bool) -> None:
    """Let parallel work go on.

    \b
    Example: cosched desk resume
    """
    _tell(_ask(path, {"do": "resume"}), as_json)


def _ask(path: Path, request: dict[str, Any]) -> dict[str, Any]:
    """The guard's answer. Raises :class:`Failed` with its refusal, :class:`NoAnswer` where there is none."""
    packet = _answer(path, json.dumps(request).encode())
    answer: dict[str, Any] = json.loads(packet)
    if "error" in answer:
        raise Failed(str(answer.get("message")))
    until_us = answer.get("paused_until_us")
    now_s = time.clock_gettime(time.CLOCK_BOOTTIME)
    return answer | {"paused_for_s": None if until_us is None else max(0.0, until_us / 1e6 - now_s)}


def _answer(path: Path, request: bytes) -> bytes:
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


def _tell(answer: dict[str, Any], as_json: bool) -> None:
    limits = answer["limits"]
    if as_json:
        shown = ("paused", "paused_for_s", "armed", "contract", "limits")
        echo_json({key: answer.get(key) for key in shown})
        return
    if answer["paused"]:
        left = answer.get("paused_for_s")
        click.echo(f"paused: {answer['paused']}" + ("" if left is None else f", for {lasting(left)} more"))
        return
    ceiling = "no limit on CPU" if limits["cpus"] is None else f"at most {limits['cpus']:g} CPUs"
    click.echo(f"parallel work: {ceiling}, {'behind' if limits['idle'] else 'beside'} everything of yours")
