"""Whole processes, interleaved: CPU, wall time and peak memory of each, medians with their spread.

Machines are noisy and differ; so each run also times a yardstick, one million pushes and pops on a heap in the same
Python, and every cost is given as a multiple of it too.
"""

import math
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

YARDSTICK = """
import heapq, random
rng = random.Random(1)
heap = []
for _ in range(1_000_000):
    heapq.heappush(heap, rng.random())
for _ in range(1_000_000):
    heapq.heappop(heap)
"""


@dataclass
class Cost:
    """What the rounds of one command took."""

    cpu_s: list[float] = field(default_factory=list)
    wall_s: list[float] = field(default_factory=list)
    peak_mb: list[float] = field(default_factory=list)


def run_once(command: Sequence[str]) -> tuple[float, float, float]:
    """CPU seconds, wall seconds and peak resident MB of one process and nothing else."""
    began_s = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall_s = time.perf_counter() - began_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed with status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, wall_s, usage.ru_maxrss / 1024


def interleaved(
    commands: Mapping[str, Sequence[str]], rounds: int, say: Callable[[str], None] = print
) -> dict[str, Cost]:
    """Run every command once per round, in turn, the yardstick among them; the first round warms up and is dropped."""
    everything = {"yardstick": [sys.executable, "-c", YARDSTICK], **commands}
    costs = {name: Cost() for name in everything}
    for round_ in range(rounds + 1):
        for name, command in everything.items():
            cpu_s, wall_s, peak_mb = run_once(command)
            if round_:
                costs[name].cpu_s.append(cpu_s)
                costs[name].wall_s.append(wall_s)
                costs[name].peak_mb.append(peak_mb)
        say(f"round {round_} of {rounds}" + (" (warm-up, not counted)" if not round_ else ""))
    return costs


def spread(values: Sequence[float]) -> str:
    """Median, and the lowest and highest in brackets."""
    return f"{statistics.median(values):.3g} [{min(values):.3g} … {max(values):.3g}]"


def p99(values: Sequence[float]) -> float:
    """The 99th percentile, of fewer than a hundred values the highest."""
    ordered = sorted(values)
    return ordered[math.ceil(0.99 * len(ordered)) - 1]


def ratios(ours: Sequence[float], yardstick: Sequence[float]) -> list[float]:
    """Round by round, how many times the yardstick."""
    return [a / b for a, b in zip(ours, yardstick, strict=True)]


def show(costs: Mapping[str, Cost], say: Callable[[str], None] = print) -> None:
    """Print a Markdown table of all costs."""
    base = costs["yardstick"].cpu_s
    say("| process | CPU s | × yardstick | wall s | peak MB |\n|---|---|---|---|---|")
    for name, cost in costs.items():
        multiple = spread(ratios(cost.cpu_s, base))
        say(f"| {name} | {spread(cost.cpu_s)} | {multiple} | {spread(cost.wall_s)} | {max(cost.peak_mb):.0f} |")


def header(columns: str) -> None:
    """Print the head of a Markdown table; ``columns`` are set apart by bars."""
    print(f"| {columns} |\n|{'---|' * (columns.count('|') + 1)}")


def per_job(costs: Mapping[str, Cost], sizes: Mapping[str, int], none: str) -> dict[str, float]:
    """CPU seconds of a job in each process of so many jobs, less what one of (almost) ``none`` takes: medians."""
    cpu_s = {name: statistics.median(costs[name].cpu_s) for name in (none, *sizes)}
    return {name: (cpu_s[name] - cpu_s[none]) / jobs for name, jobs in sizes.items()}


@contextmanager
def meanwhile(step: Callable[[], object], every_s: float = 0.0) -> Iterator[None]:
    """Do a step again and again in a thread, with so long a pause before each, while the block lasts."""
    done = threading.Event()

    def work() -> None:
        while not done.wait(every_s):
            step()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def until(holds: Callable[[], object], what: str, patience_s: float, every_s: float = 0.05) -> None:
    """Wait until it holds. Raises SystemExit where that takes longer than patience has it."""
    give_up_s = time.monotonic() + patience_s
    while not holds():
        if time.monotonic() > give_up_s:
            raise SystemExit(f"waited {patience_s:g} s for {what}")
        time.sleep(every_s)


def memory_mib(pid: int, key: str = "VmHWM") -> float:
    """Memory of a process by the kernel's word for it: the most since :func:`forget_peak`, or ``VmRSS``."""
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(f"{key}:"))


def forget_peak(pid: int) -> None:
    """Have the kernel count the most memory anew."""
    Path(f"/proc/{pid}/clear_refs").write_text("5", encoding="ascii")


def machine() -> str:
    """The machine in one line, without its name."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), "unknown CPU")
    return f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, {model}"
