"""Mistakes of the guard's own, told on its error output: each once a minute, with how often it was kept back."""

import contextlib
import sys
import time
import traceback
from typing import Final

_EVERY_S: Final = 60.0
#: Of so many mistakes it is remembered when they were last told.
_REMEMBERED: Final = 64


class Complaints:
    """What failed, and where: the same failure at the same line is one cause."""

    def __init__(self) -> None:
        self._told: dict[tuple[str, str, int], tuple[float, int]] = {}

    def __call__(self, what: str, error: BaseException) -> None:
        """Tell of an exception and where it came from, unless the same was told within the last minute."""
        with contextlib.suppress(Exception):  # telling of a failure must never be one
            *_, (frame, line) = [(None, 0), *traceback.walk_tb(error.__traceback__)]
            # the exception's kind, and the line that raised it
            cause = type(error).__name__, frame.f_code.co_filename if frame else "", line
            now_s = time.monotonic()
            told_s, kept_back = self._told.get(cause, (None, 0))
            if told_s is not None and now_s - told_s < _EVERY_S:
                self._told[cause] = told_s, kept_back + 1
                return
            if len(self._told) >= _REMEMBERED:
                del self._told[next(iter(self._told))]
            self._told.pop(cause, None)
            self._told[cause] = now_s, 0
            more = f" ({kept_back} more since it was last told)" if kept_back else ""
            story = "".join(traceback.format_exception(error, limit=-8))
            sys.stderr.write(f"guard: {what} failed{more}: {story}")
            sys.stderr.flush()
