"""Progress on standard error for what takes over two seconds: a bar on a terminal, else a plain line now and then."""

import sys
import time
from types import TracebackType

_FIRST_S = 2.0
_LINE_EVERY_S = 10.0
_BAR = 30


class Progress:
    """Call it with how much is done. Quiet when the work is done within two seconds."""

    def __init__(self, what: str, total: int) -> None:
        self._what = what
        self._total = max(1, total)
        self._next_s = time.monotonic() + _FIRST_S
        self._terminal = sys.stderr.isatty()
        self._drawn = False

    def __enter__(self) -> "Progress":
        return self

    def __call__(self, done: int) -> None:
        """Show that ``done`` of the total is done, if it is time to."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return
        share = min(1.0, done / self._total)
        if self._terminal:
            filled = round(share * _BAR)
            sys.stderr.write(f"\r{self._what} {'█' * filled}{'░' * (_BAR - filled)} {share:4.0%} ")
            self._drawn = True
            self._next_s = now_s + 0.1
        else:
            sys.stderr.write(f"{self._what}: {done} of {self._total} ({share:.0%})\n")
            self._next_s = now_s + _LINE_EVERY_S
        sys.stderr.flush()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            sys.stderr.write("\r" + " " * (len(self._what) + _BAR + 7) + "\r")
            sys.stderr.flush()
