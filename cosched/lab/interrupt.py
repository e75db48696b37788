"""Ctrl-C while a lab is made or removed: noted, and obeyed when it is whole or gone."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def deferred() -> Iterator[Callable[[], bool]]:
    """Within, signals that ask for an end are noted instead of obeyed; gives the question whether there was one.

    Afterwards they are KeyboardInterrupt, unless the block ended with another exception. A thread that gets no signals
    is left alone.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return
    noted: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        noted.append(number)

    before = {number: signal.signal(number, note) for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN}
    try:
        yield lambda: bool(noted)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if noted:
        raise KeyboardInterrupt
