"""A Unix socket that every user of this node may connect to, and what the kernel says of who does."""

import contextlib
import os
import socket
import struct


def bound_for_all(path: str) -> socket.socket:
    """A socket at a path, in the place of what an earlier agent left there. Raises OSError."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
    listening = socket.socket(socket.AF_UNIX)
    try:
        listening.bind(path)
        os.chmod(path, 0o666)  # whoever connects is asked of the kernel
    except OSError:
        listening.close()
        raise
    return listening


def credentials(connection: socket.socket) -> tuple[int, int]:
    """Process and user at the other end of a Unix socket."""
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return pid, uid
