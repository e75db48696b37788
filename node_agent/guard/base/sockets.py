"""Unix sockets at which the guard and its supervisors listen."""

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
