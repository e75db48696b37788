"""Children of the guard that report on a pipe: whatever may hang (names, file systems) happens in one of them.

The loop forks them (``Loop.fork``) and hears what they report.
"""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, Final

from cosched.linux import process
from node_agent.guard.base.requests import Refusal

_LAST_FD: Final = 1 << 20

Result = dict[str, Any] | Refusal


class Child:
    """A process that does ``work(pipe)`` with the descriptors of ``keep`` and no others of the guard's.

    ``heard`` gets what each line of JSON says that it writes, ``gone`` comes once, when no process holds the pipe any
    more. ``pid`` is 0 before it is forked.
    """

    def __init__(
        self,
        work: Callable[[int], None],
        heard: Callable[[Result], None],
        gone: Callable[[], None],
        keep: Iterable[int],
    ) -> None:
        self.work, self.heard, self.gone, self.keep = work, heard, gone, keep
        self.pid = 0


class Errand(Child):
    """A child that does ``do()`` and ends; ``done`` gets its result, once: what comes after a timeout is dropped.

    An exception is a refusal, and so is a child that ends without a result; ``ended`` comes when it is gone. The child
    dies with the guard: a successor finds what was done by then, and nothing is added to it.
    """

    def __init__(
        self,
        do: Callable[[], dict[str, Any]],
        done: Callable[[Result], None],
        ended: Callable[[], object] = lambda: None,
        keep: Iterable[int] = (),
    ) -> None:
        super().__init__(self._report, self.settle, self._gone, keep)
        self._do, self._done, self._ended = do, done, ended
        self._guard = os.getpid()
        self.settled = False

    def settle(self, result: Result) -> None:
        """Have ``done`` take a result, unless it has one."""
        if not self.settled:
            self.settled = True
            self._done(result)

    def give_up(self, code: str, why: str) -> None:
        """Kill the child, as far as that is possible, and have ``done`` take a refusal, unless it has a result."""
        if not self.settled:
            if self.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
            self.settle(Refusal(code, why))

    def _gone(self) -> None:
        self.settle(Refusal("failed", "a child of the guard died"))
        self._ended()

    def _report(self, pipe: int) -> None:
        """In the child: do it, and say what came of it."""
        process.die_with_parent(self._guard)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        try:
            result = self._do()
        except Exception as error:
            result = (error if isinstance(error, Refusal) else Refusal("failed", str(error))).fields
        with contextlib.suppress(OSError):
            os.write(pipe, json.dumps(result).encode() + b"\n")


def close_all_but(keep: Iterable[int]) -> None:
    """Close every descriptor from 3 on but these."""
    for before, after in pairwise([2, *sorted({fd for fd in keep if fd > 2}), _LAST_FD]):
        os.closerange(before + 1, after)
