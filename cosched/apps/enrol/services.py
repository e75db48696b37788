"""Guard and agent of this machine as services: by systemd where it runs, else as processes of their own.

systemd's units, and the account of the agent, are those of :mod:`cosched.install`. Detached processes are whoever
starts them, and are noted in ``run/NAME.pid`` with their start time, so that none is taken for another's.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from cosched.apps.enrol import laying
from cosched.config.node import NodeConfig
from cosched.errors import Failed
from cosched.install import roles
from cosched.install.layout import UNITS, Layout
from cosched.install.modules import MODULES
from cosched.linux import machine

NAMES: Final = ("cosched-guard", "cosched-agent")  # in the order of their start
_STOP_S: Final = 15.0
_PATIENCE_S: Final = 30.0
_LOOK_S: Final = 0.05


def lay(config: NodeConfig, layout: Layout, how: str) -> None:
    """Write settings and, for systemd, units, and make the account. Raises :class:`Failed`."""
    made = roles.node(config, layout)
    if how == "systemd":
        laying.lay(made)
        _systemctl("daemon-reload")
    else:
        Path(layout.settings).write_text(made.text(layout.settings), encoding="utf-8")


def start(config: NodeConfig, layout: Layout, how: str) -> None:
    """Start both (anew, if they run). Raises :class:`Failed` where they do not come up."""
    stop(config, "restart")
    if how == "systemd":
        _systemctl("enable", "--quiet", *NAMES)
        _systemctl("restart", *NAMES)
    else:
        for name in NAMES:
            _detached(name, Path(layout.settings), config)
    end_s = time.monotonic() + _PATIENCE_S
    for name, socket in zip(NAMES, ("guard.sock", "agent.sock"), strict=True):
        while not (Path(config.paths.run) / socket).exists():
            if time.monotonic() > end_s or (how != "systemd" and _running(name, config) is None):
                raise Failed(f"{name} does not come up: {_last_words(name, config, how)}")
            time.sleep(_LOOK_S)


def stop(config: NodeConfig, why: str = "stop") -> list[str]:
    """Stop both, wherever they came from; the names of those that ran. Jobs go on."""
    stopped = [name for name in reversed(NAMES) if stop_one(name, config)]
    if why == "stop" and machine.has_systemd():
        made = roles.node(config, Layout())
        there = [name for name in made.units if Path(UNITS, name).exists()]
        for name in there:
            _systemctl("disable", "--quiet", name) if name in made.services else _systemctl("stop", name)
        laying.take_away(made)
        _systemctl("daemon-reload")
    return stopped


def stop_one(name: str, config: NodeConfig) -> bool:
    """Stop one of them; whether it ran."""
    ran = False
    if machine.has_systemd() and Path(UNITS, f"{name}.service").exists():
        _systemctl("stop", name)
        ran = True
    if (pid := _running(name, config)) is not None:
        _end(pid)
        ran = True
    _note(name, config).unlink(missing_ok=True)
    return ran


def _detached(name: str, path: Path, config: NodeConfig) -> None:
    run, state = Path(config.paths.run), Path(config.paths.state)
    for directory in (run, state):
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (state / f"{name}.log").open("ab") as log:
        started = subprocess.Popen(
            [sys.executable, "-I", "-m", MODULES[name], "--config", str(path)],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",
            start_new_session=True,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"},
        )
    _note(name, config).write_text(f"{started.pid} {_start_time(started.pid)}\n", encoding="ascii")
    started.returncode = 0  # it outlives this program: nobody waits for it


def _note(name: str, config: NodeConfig) -> Path:
    return Path(config.paths.run) / f"{name}.pid"


def _running(name: str, config: NodeConfig) -> int | None:
    """The process that was started detached, if it is that one still."""
    try:
        pid, begun = (int(word) for word in _note(name, config).read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return None
    return pid if _start_time(pid) == begun else None


def _start_time(pid: int) -> int:
    """When a process began, in ticks since the boot; -1 for one that has ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    except OSError:
        return -1
    return -1 if words[0] in "ZX" else int(words[19])


def _end(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            for number in (signal.SIGTERM, signal.SIGKILL):
                signal.pidfd_send_signal(handle, number)
                if select.select([handle], [], [], _STOP_S)[0]:
                    return
        finally:
            os.close(handle)


def _systemctl(*arguments: str) -> None:
    ended = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, timeout=60, check=False)
    if ended.returncode:
        raise Failed(f"systemctl {' '.join(arguments)}: {ended.stderr.strip() or f'status {ended.returncode}'}")


def _last_words(name: str, config: NodeConfig, how: str) -> str:
    if how == "systemd":
        return f"'journalctl -u {name}' says why"
    log = Path(config.paths.state) / f"{name}.log"
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        lines = []
    return f"{lines[-1] if lines else 'it has said nothing'} ({log})"
