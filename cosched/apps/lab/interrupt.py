"""A process that is asked to end while it has a lab: noted while the lab is made or removed; it is gone at the end."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from cosched.errors import Failed

_ENDING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def like_ctrl_c() -> Iterator[None]:
    """Within, SIGTERM and SIGHUP are KeyboardInterrupt too, so that what was made is removed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    numbers = [each for each in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(each) == signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def deferred() -> Iterator[Callable[[], bool]]:
    """Within, signals that ask for an end are noted instead of obeyed; gives the question whether there was one.

    Afterwards they are KeyboardInterrupt, also where the block failed meanwhile: Ctrl-C reaches every process of the
    terminal, so what the block waits for may be gone by it. A thread that gets no signals is left alone.
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
    except Failed as error:
        if not noted:
            raise
        raise KeyboardInterrupt from error
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if noted:
        raise KeyboardInterrupt
