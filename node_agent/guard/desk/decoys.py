"""Decoys: beside a ceiling, an owner whose processes wake each other does not wait for the scheduler's next tick.

Why it would, and what each step is for: docs/design/contract.md. On each processor three processes take turns every two
milliseconds, while a ceiling is in force and a job is there:

* a *herald* in the parallel side goes before all jobs there. Where the side was stopped meanwhile, it is the first to
  run when it comes back, and wakes
* a *decoy* in the owner's group, which wakes a *recall* there and sleeps. The herald goes on, for some microseconds
  that count hundreds of times in the idle class, and wakes the decoy again: now the owner's group runs ahead of nobody,
  and goes to sleep with a lag that is kept for the owner's next process.

Where the owner's own processes compute, parallel work gets next to nothing, and a herald would take the whole of it:
then it runs but seldom.
"""

import contextlib
import os
import time
from functools import partial
from typing import Any, Final

from cosched.linux import process
from cosched.linux.cgroups import DECOYS, PERIOD_US, Cgroups
from node_agent.guard.desk.helpers import end, forked

_EVERY_S: Final = 0.002
_RUN_NS: Final = 20_000
#: A ceiling keeps a herald waiting for a period, and for what the side has used too much: until the kernel's next tick.
_PERIOD_S: Final = PERIOD_US / 1e6
_TOO_MUCH_S: Final = 0.01
#: So often in a row: once may be the hypervisor.
_TIMES_LATE: Final = 3
_SELDOM_S: Final = 0.5
_LOWEST: Final = 19
_FIRST, _AGAIN = b"1", b"2"


class Decoys:
    """Those of this node; ``problem`` says why there are none, though they are wanted."""

    def __init__(self, cgroups: Cgroups, desk: str, *, allowed: bool) -> None:
        self._cgroups = cgroups
        self._desk = desk
        self._pidfds: list[int] = []
        self._heralds: list[tuple[int, int]] = []
        self._ceiling_cpus: float | None = None
        self.problem = "" if allowed else "not asked for (cgroup.decoys)"

    def keep(self, ceiling_cpus: float | None) -> None:
        """Have those of a ceiling, or with None not; costs nothing where that is so already."""
        if self._ceiling_cpus != ceiling_cpus:
            self.stop()
            self._ceiling_cpus = ceiling_cpus
        if ceiling_cpus is None or self._pidfds or self.problem:
            return
        cpus = sorted(os.sched_getaffinity(0))
        patience_s = _PERIOD_S + _TOO_MUCH_S * len(cpus) / ceiling_cpus
        try:
            for cpu in cpus:
                self._start(cpu, patience_s)
        except OSError as error:
            self.stop()
            self.problem = f"{error.filename or 'fork'}: {error.strerror}"

    def stop(self) -> None:
        """End them, and remove what was made for them.

        A herald leaves the parallel side first: while the owner's processes compute, that side has a few
        hundred-thousandths of a processor, and a process that is killed there needs minutes to exit.
        """
        for pid, pidfd in self._heralds:
            if not process.await_end(pidfd, 0):
                with contextlib.suppress(OSError):  # it cannot be moved, and ends where it is
                    self._cgroups.place_at_desk(pid, self._desk, DECOYS)
        self._heralds = []
        end(self._pidfds)
        if self._pidfds:
            self._cgroups.forget_decoys(self._desk)
        self._pidfds = []

    def status_fields(self) -> dict[str, Any]:
        """For ``status``."""
        return {"decoys": {"processes": len(self._pidfds), "problem": self.problem}}

    def _start(self, cpu: int, patience_s: float) -> None:
        ends = [*os.pipe2(os.O_CLOEXEC), *os.pipe2(os.O_CLOEXEC)]
        decoys_ear, heralds_voice, recalls_ear, decoys_voice = ends
        at_desk = partial(self._cgroups.place_at_desk, desk=self._desk, leaf=DECOYS)
        try:
            for keep, work, place in (
                ((decoys_ear, decoys_voice), lambda: _decoy(decoys_ear, decoys_voice), at_desk),
                ((recalls_ear,), lambda: _recall(recalls_ear), at_desk),
                ((heralds_voice,), lambda: _herald(heralds_voice, patience_s), self._cgroups.place_herald),
            ):
                pid, pidfd = forked("cosched-decoy", keep, work, cpu)
                self._pidfds.append(pidfd)
                place(pid)
            self._heralds.append((pid, pidfd))  # the last of them
        finally:
            for each in ends:
                os.close(each)


def _herald(voice: int, patience_s: float, every_s: float = _EVERY_S) -> None:
    """Who comes later than that again and again has not waited for a ceiling, but for an owner who computes."""
    os.set_blocking(voice, False)
    pause_s, times_late = every_s, 0
    while True:
        slept_s = time.monotonic()
        time.sleep(pause_s)
        late = time.monotonic() - slept_s > pause_s + patience_s
        times_late = times_late + 1 if late else 0
        pause_s = every_s if times_late < _TIMES_LATE else _SELDOM_S
        if pause_s == _SELDOM_S:
            continue
        with contextlib.suppress(BlockingIOError):  # they have not been let run for long
            os.write(voice, _FIRST)
        until_ns = time.perf_counter_ns() + _RUN_NS
        while time.perf_counter_ns() < until_ns:
            pass
        with contextlib.suppress(BlockingIOError):
            os.write(voice, _AGAIN)


def _decoy(ear: int, voice: int) -> None:
    while told := os.read(ear, 1):
        if told == _FIRST:
            os.write(voice, _FIRST)


def _recall(ear: int) -> None:
    os.nice(_LOWEST)  # it must still want to run when the decoy sleeps
    while os.read(ear, 1):
        pass
