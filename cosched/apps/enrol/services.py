"""Guard and agent of this machine as services: by systemd where it runs, else as processes of their own.

Where systemd has the one hierarchy of control groups (version 2), parallel work lies in ``cosched.slice``, which is in
the idle class, and there below ``cosched-jobs.service``, which systemd leaves to us (``Delegate=``). That service only
holds the place: guard and agent are ordinary services, for they must answer when the owner needs all of the machine.

Detached processes are noted in ``run/NAME.pid`` with their start time, so that none is taken for another's.
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

from cosched.config.node import NodeConfig
from cosched.errors import Failed

UNITS: Final = Path("/etc/systemd/system")
NAMES: Final = ("cosched-guard", "cosched-agent")  # in the order of their start
SLICE: Final = "cosched.slice"
JOBS: Final = "cosched-jobs.service"
#: The parallel side's group there.
PLACE: Final = f"{SLICE}/{JOBS}/jobs"
_MOUNT: Final = Path("/sys/fs/cgroup")
_MODULES: Final = {"cosched-guard": "node_agent.guard", "cosched-agent": "node_agent"}
_STOP_S: Final = 15.0
_PATIENCE_S: Final = 30.0
_LOOK_S: Final = 0.05


def has_systemd() -> bool:
    """Whether systemd runs this machine."""
    return Path("/run/systemd/system").is_dir()


def place() -> str:
    """The parallel side's group where systemd has the one hierarchy; empty elsewhere: then the guard makes its own."""
    return PLACE if has_systemd() and (_MOUNT / "cgroup.controllers").exists() else ""


def units(config: Path, *, placed: bool) -> dict[str, str]:
    """The text of each unit, by its file's name; ``placed``: with a slice for parallel work.

    Stopping guard or agent stops no job: the guard's supervisors outlive it. Stopping the slice does.
    """
    texts = _placing() if placed else {}
    for name in NAMES:
        what, needed = ("guard", JOBS if placed else "") if name == NAMES[0] else ("agent", f"{NAMES[0]}.service")
        texts[f"{name}.service"] = f"""\
# Made by 'cosched node add'.
[Unit]
Description=cosched's {what} on this workstation
After=network-online.target {needed}
Wants=network-online.target {needed}
# However often it ends, it is started again.
StartLimitIntervalSec=0

[Service]
ExecStart={command(name, config)}
UMask=0022
{settings(name)}

[Install]
WantedBy=multi-user.target
"""
    return texts


def settings(name: str) -> str:
    """The lines of ``[Service]`` that docs/guide/operate.md asks for, of guard or agent."""
    lines = ["Restart=always", "RestartSec=200ms", "KillMode=process", "LimitNOFILE=65536"]
    if name == NAMES[0]:
        lines += ["Type=notify", "WatchdogSec=10s", "WatchdogSignal=SIGKILL"]
    return "\n".join(lines)


def _placing() -> dict[str, str]:
    group = _MOUNT / SLICE / JOBS
    return {
        SLICE: """\
# Made by 'cosched node add'.
[Unit]
Description=parallel work, behind everything else on this workstation

[Slice]
# Before version 252 systemd does not know "idle", says so, and keeps the lowest weight.
CPUWeight=1
CPUWeight=idle
IOWeight=1
""",
        JOBS: f"""\
# Made by 'cosched node add'.
[Unit]
Description=the place of parallel jobs on this workstation

[Service]
Slice={SLICE}
Delegate=yes
ExecStart=/bin/sleep infinity
# No process may be in a group whose groups have controllers.
ExecStartPost=/bin/sh -c 'mkdir -p {group}/holder && echo $MAINPID >{group}/holder/cgroup.procs'
""",
    }


def command(name: str, config: Path) -> str:
    """What starts a service; quoted as systemd wants it."""
    words = [sys.executable, "-I", "-m", _MODULES[name], "--config", str(config)]
    return " ".join(f'"{word}"' if " " in word else word for word in words)


def start(path: Path, config: NodeConfig, how: str) -> str:
    """Start both (anew, if they run); how it was done. Raises :class:`Failed` where they do not come up."""
    stop(config, "restart")
    if how == "systemd":
        for name, text in units(path, placed=config.cgroup.cosched == PLACE).items():
            (UNITS / name).write_text(text, encoding="utf-8")
        _systemctl("daemon-reload")
        _systemctl("enable", "--quiet", *NAMES)
        _systemctl("restart", *NAMES)
    else:
        for name in NAMES:
            _detached(name, path, config)
    end_s = time.monotonic() + _PATIENCE_S
    for name, socket in zip(NAMES, ("guard.sock", "agent.sock"), strict=True):
        while not (Path(config.paths.run) / socket).exists():
            if time.monotonic() > end_s or (how != "systemd" and _running(name, config) is None):
                raise Failed(f"{name} does not come up: {_last_words(name, config, how)}")
            time.sleep(_LOOK_S)
    return how


def stop(config: NodeConfig, why: str = "stop") -> list[str]:
    """Stop both, wherever they came from; the names of those that ran. Jobs go on."""
    stopped = [name for name in reversed(NAMES) if stop_one(name, config)]
    if why == "stop" and has_systemd():
        for name in NAMES:
            if (unit := UNITS / f"{name}.service").exists():
                _systemctl("disable", "--quiet", name)
                unit.unlink()
        for name in (JOBS, SLICE):
            if (unit := UNITS / name).exists():
                _systemctl("stop", name)
                unit.unlink()
        _systemctl("daemon-reload")
    return stopped


def stop_one(name: str, config: NodeConfig) -> bool:
    """Stop one of them; whether it ran."""
    ran = False
    if has_systemd() and (UNITS / f"{name}.service").exists():
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
            [sys.executable, "-I", "-m", _MODULES[name], "--config", str(path)],
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
