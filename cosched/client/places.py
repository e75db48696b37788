"""Where the services of this machine and this user are found: the system's scheduler, and labs.

A lab lies in ``lab_dir(NAME)``; its scheduler's Unix socket is ``scheduler.sock`` there. ``COSCHED_RUNTIME_DIR`` moves
everything of this user elsewhere (tests do that).
"""

import os
import re
import socket
import stat
from pathlib import Path
from typing import Final

from cosched.errors import BadInput, Failed

SYSTEM_SOCKET: Final = Path("/run/cosched/scheduler.sock")
#: A node's settings on its machine, unless said otherwise.
NODE_TOML: Final = Path("/etc/cosched/node.toml")
SOCKET_NAME: Final = "scheduler.sock"
#: How the names of the demo's labs begin.
DEMO: Final = "demo-"

_LAB_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,30}")


def own_umask() -> int:
    """What this user's files are made without: the process's umask, which can only be read by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


def runtime_dir() -> Path:
    """The directory of this user's sockets and labs: /run/cosched for root, else his own; it need not exist yet."""
    if given := os.environ.get("COSCHED_RUNTIME_DIR"):
        return Path(given)
    if os.geteuid() == 0:
        return Path("/run/cosched")
    if given := os.environ.get("XDG_RUNTIME_DIR"):
        return Path(given) / "cosched"
    return Path("/tmp") / f"cosched-{os.geteuid()}"


def made_runtime_dir() -> Path:
    """The same, made where it is missing. Raises :class:`Failed` where it is another user's (in /tmp it may be)."""
    path = runtime_dir()
    path.mkdir(mode=0o755 if os.geteuid() == 0 else 0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise Failed(f"{path} is not this user's own directory (COSCHED_RUNTIME_DIR names another)")
    return path


def lab_dir(name: str) -> Path:
    """The directory of a lab. Raises :class:`BadInput` for what is no lab's name."""
    if not _LAB_NAME.fullmatch(name):
        raise BadInput("lab", f"{name!r}", "letters, digits, - and _, at most 31, a letter or digit first")
    return runtime_dir() / "labs" / name


def lab_socket(name: str) -> Path:
    """The Unix socket of a lab's scheduler."""
    return lab_dir(name) / SOCKET_NAME


def labs() -> list[str]:
    """The names of this user's labs, up or not, sorted."""
    try:
        return sorted(each.name for each in (runtime_dir() / "labs").iterdir() if _LAB_NAME.fullmatch(each.name))
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return []


def labs_up() -> list[str]:
    """The names of this user's labs whose scheduler takes connections, sorted."""
    return [name for name in labs() if answers(lab_socket(name))]


def unnamed(labs: list[str]) -> list[str]:
    """Those of these labs that a command may mean which names none. A demo's is the demo's own while it lasts."""
    return [name for name in labs if not name.startswith(DEMO)]


def answers(path: Path) -> bool:
    """Whether somebody listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True
