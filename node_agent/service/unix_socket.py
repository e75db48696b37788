"""A Unix socket that every user of this node may connect to."""

import contextlib
import os
import socket


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
