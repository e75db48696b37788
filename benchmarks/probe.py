"""The probe beside the kernel's own account of the same wake-ups, by ``perf sched``, while others want the same CPU.

The known disturbance: probe and two CPU-bound processes on one CPU, the probe with the smallest share. For each wake-up
``perf sched timehist`` says how long the probe was ready and did not run; the probe says how much later than due it
was. Its own figure is longer by the timer's slack and by what Python needs to look at the clock, tens of microseconds
of milliseconds. Needs root and Debian's linux-perf; ends with status 1 where p50 or p99 differ by more than 10 %.

    ./run bench probe [SECONDS]
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import machine
from local_load.samples import read

CPU = 0
RATE_HZ = 10  # seldom: a wake-up is over before the next is due
AGREED = 0.10
_NICE = 19
#: Who slept for less, hardly slept: such looks, and Python's own short waits, are left out on both sides.
_LEAST_SLEEP_S = 0.005
#: time, [CPU], command[thread], ms it waited before, ms from being woken to running, ms it ran, state in which it left
_LINE = re.compile(r"\s*[\d.]+ +\[\d+\] .*\[(\d+)[/\d]*\] +([\d.]+) +([\d.]+) +[\d.]+ +(\S+)\s*")

Seconds = NDArray[np.float64]


def main() -> int:
    """Measure, and print a table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    if shutil.which("perf") is None or os.geteuid():
        raise SystemExit("needs root and perf (Debian: linux-perf)")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as ended:
        folder = Path(name)
        probe = _pinned(ended, f"{sys.executable} -P -m cosched.apps.cli.main local-load probe --calls nanosleep"
                        f" --rate {RATE_HZ} --seconds {seconds:g} --out {folder / 'out'}", _NICE)  # fmt: skip
        tid = _child(probe.pid)
        hogs = [_pinned(ended, "sh -c 'while :; do :; done'", 0) for _ in range(2)]
        recorded = folder / "perf.data"
        perf = ["perf", "sched", "record", "-C", str(CPU), "-o", str(recorded), "--", "sleep", f"{seconds + 20:g}"]
        recorder = subprocess.Popen(perf, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ended.callback(recorder.kill)
        if probe.wait(timeout=seconds + 60):
            raise SystemExit("the probe failed")
        recorder.send_signal(signal.SIGINT)
        recorder.wait(timeout=60)
        for hog in hogs:
            hog.kill()
        samples = read(folder / "out")[1].of("nanosleep")
        slept_s = samples.at_s[1:] - (samples.at_s + samples.response_s)[:-1]
        late_s = samples.response_s[1:][slept_s >= _LEAST_SLEEP_S]
        delays_s = _delays_s(recorded, tid)
    return _told(late_s, delays_s)


def _pinned(ended: contextlib.ExitStack, command: str, nice: int) -> "subprocess.Popen[bytes]":
    words = ["taskset", "-c", str(CPU), "nice", "-n", str(nice), "sh", "-c", f"exec {command}"]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    ended.callback(process.wait)
    ended.callback(process.kill)
    return process


def _child(pid: int) -> int:
    """The probe's own process, below the command."""
    give_up_s = time.monotonic() + 30
    while time.monotonic() < give_up_s:
        for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
            with contextlib.suppress(OSError):
                if b"local_load.probe" in Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
        time.sleep(0.02)
    raise SystemExit("no probe came up")


def _delays_s(recorded: Path, tid: int) -> Seconds:
    """For each time that the thread slept: from being woken to running."""
    command = ["perf", "sched", "timehist", "-i", str(recorded), "--tid", str(tid), "--state"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    found = []
    left_in = ""
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None or int(match[1]) != tid:
            continue
        if left_in == "S" and float(match[2]) / 1e3 >= _LEAST_SLEEP_S:  # else it was taken from the processor
            found.append(float(match[3]) / 1e3)
        left_in = match[4]
    return np.array(found)


def _told(late_s: Seconds, delays_s: Seconds) -> int:
    print(f"{machine()}; {len(late_s)} wake-ups by the probe, {len(delays_s)} by perf\n")
    print("| | probe, late by ms | perf sched, ready and not running for ms | differ by |\n|---|---|---|---|")
    apart = 0
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
        probe_s, perf_s = float(np.quantile(late_s, share)), float(np.quantile(delays_s, share))
        off = probe_s / perf_s - 1
        apart += name != "p90" and abs(off) > AGREED
        print(f"| {name} | {1000 * probe_s:.3f} | {1000 * perf_s:.3f} | {off:+.1%} |")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
