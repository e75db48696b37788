"""Children of the guard that report on a pipe: whatever may hang (names, file systems) happens in one of them."""

import contextlib
import json
import os
import signal
from collections.abc import Callable
from typing import Any, Final

from cosched.linux import process
from node_agent.guard.loop import Loop
from node_agent.guard.requests import Refusal
from node_agent.guard.supervisor import close_all_but

_READ_BYTES: Final = 16 << 10
_LINE_BYTES: Final = 64 << 10

OnReport = Callable[[dict[str, Any]], None]
OnGone = Callable[[], None]


class Children:
    """Forks them, listens to them, and reaps them and whatever orphans come to the guard."""

    def __init__(self, loop: Loop, keep: int) -> None:
        """``keep`` is the descriptor that errands need."""
        self._loop = loop
        self._keep = keep
        loop.on_child_ended = self._reap

    def fork(self, work: Callable[[int], None], on_report: OnReport, on_gone: OnGone) -> int:
        """Run ``work(pipe)`` in a child, and return its pid.

        ``on_report`` gets each line of JSON it writes, ``on_gone`` comes once, when nobody holds the pipe any more.
        Raises :class:`Refusal` when the machine has no room for another process.
        """
        read = write = -1
        try:
            read, write = os.pipe()
            pid = os.fork()
        except OSError as error:
            for fd in {read, write} - {-1}:
                os.close(fd)
            raise Refusal("failed", f"no further process: {error.strerror}") from None
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                work(write)
            finally:
                os._exit(0)
        os.close(write)
        os.set_blocking(read, False)
        kept = bytearray()
        self._loop.watch(read, lambda: self._heard(read, kept, on_report, on_gone))
        return pid

    def errand(
        self, work: Callable[[], dict[str, Any]], on_done: OnReport, on_result: OnReport = lambda _: None
    ) -> int:
        """Run ``work()`` in a child that has but one of the guard's descriptors; ``on_done`` gets its result, once.

        That is when the child is gone; ``on_result`` gets the result before, when it is there.
        An exception is told as {error, message}, and so is a child that ends without a result. The child dies with the
        guard: a successor finds what was done by then, and nothing is added to it.
        """
        answers: list[dict[str, Any]] = []
        guard = os.getpid()

        def told(write: int) -> None:
            process.die_with_parent(guard)
            close_all_but([write, self._keep])
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, signal.SIG_DFL)
            try:
                result = work()
            except Exception as error:
                code = getattr(error, "code", "failed")
                result = {"error": code if isinstance(code, str) else "failed", "message": str(error)}
            with contextlib.suppress(OSError):
                os.write(write, json.dumps(result).encode() + b"\n")

        def gone() -> None:
            on_done(answers[0] if answers else {"error": "failed", "message": "a child of the guard died"})

        def heard(result: dict[str, Any]) -> None:
            answers.append(result)
            on_result(result)

        return self.fork(told, heard, gone)

    def _heard(self, fd: int, kept: bytearray, on_report: OnReport, on_gone: OnGone) -> None:
        try:
            data = os.read(fd, _READ_BYTES)
        except BlockingIOError:
            return
        kept += data
        while (end := kept.find(b"\n")) >= 0:
            line = bytes(kept[:end])
            del kept[: end + 1]
            with contextlib.suppress(ValueError):
                on_report(json.loads(line))
        if not data or len(kept) > _LINE_BYTES:
            self._loop.unwatch(fd)
            os.close(fd)
            on_gone()

    @staticmethod
    def _reap() -> None:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
