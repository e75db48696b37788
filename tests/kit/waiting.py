"""Waiting for what must come: never for a time, always for a condition."""

import os
import time
from collections.abc import Callable
from typing import Final, Literal, TypeVar

import pytest

Found = TypeVar("Found")
#: After so long what is waited for will never come: far more than anything takes on a machine with other work.
BOUND_S: Final = 240.0


def wait_for(condition: Callable[[], Found | Literal[False] | None], what: str, deadline_s: float = BOUND_S) -> Found:
    """The first true thing that the condition gives; fails the test, saying what was waited for, without one.

    Asked more and more rarely: to ask a service a hundred times a second takes the processor from what is waited for.
    """
    end_s, pause_s = time.monotonic() + deadline_s, 0.01
    while not (found := condition()):
        assert time.monotonic() < end_s, f"waited {deadline_s:g} s for {what}"
        time.sleep(pause_s)
        pause_s = min(1.2 * pause_s, 0.1)
    return found


def skip_if_busy(what: str) -> None:
    """Skip the test, which needs ``what``, if more processes than there are CPUs wanted one in the last minutes."""
    wanted, cpus = max(os.getloadavg()[:2]), len(os.sched_getaffinity(0))
    if wanted > cpus:
        pytest.skip(f"needs {what}: {wanted:.1f} processes wanted one of {cpus} CPUs")
