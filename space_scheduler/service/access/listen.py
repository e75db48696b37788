"""Where the service listens."""

import errno
import os
import socket
import stat
from pathlib import Path
from typing import Final, NamedTuple

from cosched.errors import BadInput, Failed

#: What the kernel takes for the path of a Unix socket (sun_path, less the closing NUL).
LONGEST_PATH: Final = 107
#: Descriptors for the journal, listening sockets, libraries.
_OWN: Final = 64
_LEAST: Final = 32


class Limits(NamedTuple):
    """How many connections there may be. ``agents`` is what is left for them."""

    arrived: int
    handshakes: int
    unproven: int
    users: int
    of_one_user: int
    agents: int

    @property
    def needed(self) -> int:
        """Descriptors, were all there."""
        return _OWN + self.arrived + self.handshakes + self.unproven + self.users + self.agents

    @staticmethod
    def of(descriptors: int, nodes: int, users: int, of_one_user: int) -> "Limits":
        """What goes into so many descriptors: places for agents first."""
        agents = max(128, 2 * nodes)
        rest = max(4 * _LEAST, descriptors - _OWN - agents)
        arrived, handshakes = min(256, rest // 4), min(32, rest // 8)
        users = max(_LEAST, min(users, rest - arrived - 2 * handshakes))
        return Limits(arrived, handshakes, handshakes, users, of_one_user, agents)


def checked_path(path: Path) -> Path:
    """The path, if a Unix socket can be there. Raises :class:`BadInput`."""
    length = len(os.fsencode(path))
    if length > LONGEST_PATH:
        raise BadInput(
            "listen.socket", f"{path}: {length} bytes", f"at most {LONGEST_PATH}: Linux takes no longer path"
        )
    if not path.is_absolute():
        raise BadInput("listen.socket", f"{path}", "an absolute path")
    return path


def unix_socket(path: Path) -> socket.socket:
    """A listening socket that every user of this host may connect to; its directory is made where it is missing.

    What a scheduler that was killed has left is removed. Raises :class:`Failed` where one listens, or something else
    is in the way.
    """
    checked_path(path)
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        if _is_stale(path):
            path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            listening.bind(str(path))
            path.chmod(0o666)  # who may do what is decided by who he is
            listening.listen(4096)
        except BaseException:
            listening.close()
            raise
    except OSError as error:
        raise Failed(f"cannot listen on {path}: {error.strerror}") from None
    return listening


def check_unix(path: Path) -> None:
    """Raise :class:`Failed` where :func:`unix_socket` would; nothing is made or removed."""
    there = next(each for each in path.parents if each.exists())
    if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
        raise Failed(f"cannot listen on {path}: nothing can be made in {there}")
    _is_stale(path)


def _is_stale(path: Path) -> bool:
    """Whether a scheduler that is no more has left a socket there. Raises :class:`Failed` for what is in the way."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return False
    if not stat.S_ISSOCK(found.st_mode):
        raise Failed(f"cannot listen on {path}: there is something that is no socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno not in (errno.ECONNREFUSED, errno.ENOENT):
                raise Failed(f"cannot listen on {path}: {error.strerror} (is another scheduler there?)") from None
        else:
            raise Failed(f"cannot listen on {path}: another scheduler does")
    return True


def tcp_socket(address: str, port: int) -> socket.socket:
    """A listening socket on an address of this host; ``::`` is all of them, IPv4 too. Raises :class:`Failed`."""
    try:
        family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        return socket.create_server(
            (address, port),
            family=family,
            backlog=4096,
            dualstack_ipv6=address == "::" and socket.has_dualstack_ipv6(),
        )
    except OSError as error:
        raise Failed(f"cannot listen on {address} port {port}: {error.strerror or error}") from None
