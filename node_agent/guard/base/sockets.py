"""Unix sockets at which the guard and its supervisors listen, and the directories that the guard makes."""

import contextlib
import os
import socket

from cosched.linux import files


def listening(path: str, mask: int, backlog: int, kind: int = socket.SOCK_SEQPACKET) -> socket.socket:
    """A socket that does not block, in place of a predecessor's, made under that umask. Raises OSError."""
    made = socket.socket(socket.AF_UNIX, kind | socket.SOCK_NONBLOCK)
    before = os.umask(mask)
    try:
        files.drop(path)
        made.bind(path)
        made.listen(backlog)
    except OSError:
        made.close()
        raise
    finally:
        os.umask(before)
    return made


def make_directory(path: str, mode: int, uid: int) -> None:
    """Make a directory for a user, with those above it; one that is there stays as it is. Raises OSError."""
    with contextlib.suppress(FileExistsError):
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        os.mkdir(path, mode)
        os.chmod(path, mode)
        os.chown(path, uid, -1)
