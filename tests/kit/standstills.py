"""Says when the machine stood still during a run: tests that wait may then fail without a fault of theirs."""

import threading
import time
from collections.abc import Callable

import pytest

_PAUSE_S = 1.0
#: A pause that is longer by so much is reported: other work alone hardly delays a thread so long.
_LEAST_S = 3.0


class Standstills:
    """Looks at the clock each second until told to stop; ``found``: when (s since the epoch) and for how long (s)."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.found: list[tuple[float, float]] = []
        self._clock = clock
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self.look, name="standstills", daemon=True)

    def pytest_sessionstart(self) -> None:
        self._thread.start()

    def look(self, pauses: Callable[[float], bool] | None = None) -> None:
        pauses = pauses or self._ends.wait
        before_s = self._clock()
        while not pauses(_PAUSE_S):
            now_s = self._clock()
            if (away_s := now_s - before_s - _PAUSE_S) > _LEAST_S:
                self.found.append((time.time() - away_s, away_s))
            before_s = now_s

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        self._ends.set()
        for began_s, away_s in self.found:
            at = time.strftime("%H:%M:%S", time.localtime(began_s))
            terminalreporter.write_line(f"the machine stood still, or let nothing run, for {away_s:.0f} s at {at}")
