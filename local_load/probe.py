"""The latency probe: how long calls take at the desk, each counted from the moment at which it was to begin.

Started as ``python -m local_load.probe`` with one line of JSON; gives binary samples (:data:`SAMPLE`) until its time is
over, standard output is closed, or its parent is dead.

*No coordinated omission.* The moments are drawn from a seed beforehand, a fixed number a second, jittered so that they
fall into step with nothing. A call's **response** runs from its moment to its end: what kept the probe from starting in
time (the very thing to be measured) counts for this call and for every one that became due meanwhile. A probe that
waits for one call's end before it thinks of the next would see one slow call where a person would have felt forty. The
call's own time, from its real start, is kept beside it. More than a second late, a due call is not made any more: its
lateness, which its response would have exceeded, is its sample, and is marked.
"""

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import resource
import select
import struct
import sys
import time
from collections.abc import Iterator
from random import Random
from typing import Any, Final

from local_load import machine
from local_load.calls import Calls
from local_load.terminal import Terminal
from local_load.work import Worker, work

#: Call's index in :data:`CALLS`, 1 where it was not made, its moment and its response, its own time; nanoseconds.
SAMPLE: Final = struct.Struct("<BB6xqqq")
#: How many of each there are in a hundred. ``key`` is for a probe without a user: it makes somebody be present.
MIX: Final = {
    "nanosleep": 25, "poll": 15, "getpid": 16, "pipe": 15, "open": 12, "mmap": 10, "burst": 2, "spawn": 1, "key": 4,
}  # fmt: skip
CALLS: Final = tuple(MIX)
#: A sample of the probe's own CPU time: its moment, nanoseconds of CPU so far, samples that nobody fetched.
OWN: Final = 255
DEFAULT_RATE_HZ: Final = 40.0
BURST_S: Final = 0.001
_KEY_S: Final = 0.0002
_TOO_LATE_NS: Final = 1_000_000_000
_BATCH_NS: Final = 500_000_000
_PIPE_BYTES: Final = 1 << 20
_F_SETPIPE_SZ: Final = 1031
_NS: Final = 1_000_000_000


def moments(calls: tuple[str, ...], rate_hz: float, seed: int | str) -> Iterator[tuple[int, str]]:
    """(nanoseconds after the start, call), without end: so many a second, each somewhere in its own slot."""
    random = Random(f"probe {seed}")
    slot_ns = round(_NS / rate_hz)
    deck: list[str] = []
    slot = 0
    while True:
        if not deck:
            deck = [call for call in calls for _ in range(MIX[call])]
            random.shuffle(deck)
        yield slot * slot_ns + random.randrange(slot_ns), deck.pop()
        slot += 1


class Timer:
    """A timer that a poll waits for (timerfd)."""

    def __init__(self) -> None:
        """Raises OSError."""
        self.descriptor = machine.libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self.descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "timerfd")
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)

    def wait_until_ns(self, moment_ns: int) -> None:
        """Poll until the timer goes off at that moment of CLOCK_MONOTONIC."""
        never = machine.Timespec()  # no period
        setting = (machine.Timespec * 2)(never, machine.Timespec(*divmod(moment_ns, _NS)))
        machine.libc.timerfd_settime(self.descriptor, 1, ctypes.byref(setting), None)
        self._poll.poll()
        os.read(self.descriptor, 8)


class Probe:
    """Makes the calls. ``order`` is what :func:`main` reads."""

    def __init__(self, order: dict[str, Any]) -> None:
        self._calls = tuple(order["calls"])
        self._moments = moments(self._calls, order["rate_hz"], order["seed"])
        self._end_ns = round(order["seconds"] * _NS)
        self._base_ns: int = order["base_ns"]
        worker = Worker()
        self._burst_units = max(1, round(BURST_S * worker.units_per_s))
        self._terminal = Terminal(round(_KEY_S * worker.units_per_s)) if "key" in self._calls else None
        self._timer = Timer()
        self._made = Calls()
        self._by_name = self._made.by_name | {"burst": lambda: work(self._burst_units)}
        self._batch: list[bytes] = []
        self._sent_ns = 0
        self._unsent = 0

    def run(self) -> None:
        """Measure to the end."""
        gc.disable()  # nothing here makes cycles, and a collection would be measured
        now = time.monotonic_ns
        start_ns = now()
        offset_ns = start_ns - self._base_ns
        try:
            for at_ns, call in self._moments:
                if at_ns >= self._end_ns:
                    break
                due_ns = start_ns + at_ns
                began_ns, ended_ns, made = self._one(call, due_ns)
                record = CALLS.index(call), not made, offset_ns + at_ns, ended_ns - due_ns, ended_ns - began_ns
                self._batch.append(SAMPLE.pack(*record))
                if ended_ns - self._sent_ns >= _BATCH_NS:
                    self._send(ended_ns)
            machine.sleep_until_ns(start_ns + self._end_ns)
        finally:
            self._send(now())
            if self._terminal:
                self._terminal.close()

    def _one(self, call: str, due_ns: int) -> tuple[int, int, bool]:
        """Make a call at its moment: when it began and ended, and whether it was made."""
        now = time.monotonic_ns
        if now() - due_ns > _TOO_LATE_NS:
            moment = now()
            return moment, moment, False
        if call == "poll":
            self._timer.wait_until_ns(due_ns)
            return due_ns, now(), True
        machine.sleep_until_ns(due_ns)
        began_ns = now()
        if call == "nanosleep":
            return due_ns, began_ns, True
        if call == "key":
            assert self._terminal is not None
            took_ns = self._terminal.press(due_ns)
            return began_ns, due_ns + took_ns if took_ns >= 0 else now(), True
        self._by_name[call]()
        return began_ns, now(), True

    def _send(self, now_ns: int) -> None:
        self._sent_ns = now_ns
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = time.process_time() + ended.ru_utime + ended.ru_stime
        cpu_s += machine.cpu_s([self._terminal.editor] if self._terminal else [])
        own = SAMPLE.pack(OWN, 0, now_ns - self._base_ns, round(cpu_s * 1e9), self._unsent)
        try:
            os.write(1, b"".join([*self._batch, own]))
        except BlockingIOError:  # nobody reads: that must not delay what is measured
            self._unsent += len(self._batch)
        self._batch = []


def main() -> None:
    """Probe, as the line on standard input says."""
    order = json.loads(sys.stdin.readline())
    machine.die_with_parent(order["parent"])
    with contextlib.suppress(OSError):  # no pipe, or no more such large ones for this user
        fcntl.fcntl(1, _F_SETPIPE_SZ, _PIPE_BYTES)
    os.set_blocking(1, False)
    with contextlib.suppress(BrokenPipeError):
        Probe(order).run()
    os._exit(0)


if __name__ == "__main__":
    main()
