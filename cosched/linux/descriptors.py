"""Descriptors: how many this process may open, and whether it can open one more."""

import contextlib
import errno
import os
import resource
from typing import Final

_SHORT_OF: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})


def short_of_descriptors(error: OSError) -> bool:
    """Whether a call failed because this process, or this machine, has opened too much."""
    return error.errno in _SHORT_OF


def has_descriptors() -> bool:
    """Whether this process can open anything now."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return not short_of_descriptors(error)
    return True


def raised_limit(most: int) -> int:
    """How many descriptors this process may open, once it has asked for as many as it may have, at most for ``most``.

    Returns ``most`` where there is no limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = most if hard == resource.RLIM_INFINITY else min(hard, most)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return most if soft == resource.RLIM_INFINITY else soft
