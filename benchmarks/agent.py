"""What an agent and its guard cost: CPU as a share of a core, and resident memory, node by node.

In an idle lab of four nodes; and in one of two nodes, on which a job that blocks, raised whenever a message comes
(``ccs``), or one that polls, in turns (``gang``), runs beside a computing task on each. All processes are watched over
the same windows of time, one window after another, so what else the machine does meets all of them alike. ``all`` is
agent, guard, decoys and wake-up probe of a node together. Promised for an agent: 0.5 % of a core idle, 2 % while it
coschedules, and 60 MB.

    ./run bench agent [SECONDS] [WINDOWS]
"""

import os
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.measure import machine, p99, spread
from cosched.apps.experiments.coscheduling import CoschedulingRuns, Experiment
from cosched.apps.experiments.matrix import COMPANIES, WORKS, Work
from cosched.apps.lab.lab import Lab

BLOCKING, POLLING = (next(work for work in WORKS if work.name == f"{how}, 1 ms") for how in ("block", "poll"))
#: What guards fork for themselves, by its name.
FORKED = {"cosched-decoy": "decoys", "cosched-probe": "probe"}


def processes(lab: Lab) -> dict[str, dict[int, str]]:
    """The lab's agents, guards and what guards fork: what -> {pid: node}."""
    found: dict[str, dict[int, str]] = {"agent": {}, "guard": {}, "decoys": {}, "probe": {}}
    for process in psutil.process_iter(["cmdline", "name"]):
        words = process.info["cmdline"] or []
        text = " ".join(words)
        if str(lab.directory) not in text:
            continue
        for what, module in (("agent", "node_agent"), ("guard", "node_agent.guard")):
            if module in words:
                called = FORKED.get(process.info["name"], what)
                found[called][process.pid] = next((node for node in lab.nodes if f"/{node}/" in text), "?")
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used so far, to the nanosecond where the kernel tells."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError):
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system


def resident_mb(pid: int) -> float:
    """Resident memory in MB."""
    return psutil.Process(pid).memory_info().rss / (1 << 20)


def watched(lab: Lab, seconds: float, windows: int) -> None:
    """Watch a lab's agents and guards, and print a table."""
    found = processes(lab)
    percent: dict[tuple[str, str], list[float]] = {}
    for _ in range(windows):
        before = {pid: cpu_s(pid) for pids in found.values() for pid in pids}
        began_s = time.monotonic()
        time.sleep(seconds / windows)
        past_s = time.monotonic() - began_s
        used: dict[tuple[str, str], float] = {}
        for what, pids in found.items():
            for pid, node in pids.items():
                for row in (what, "all"):
                    used[row, node] = used.get((row, node), 0.0) + 100 * (cpu_s(pid) - before[pid]) / past_s
        for key, value in used.items():
            percent.setdefault(key, []).append(value)
    print("\n| process | node | % of a core, median [lowest … highest] | p99 | resident MB |\n|---|---|---|---|---|")
    resident = {(what, node): resident_mb(pid) for what, pids in found.items() for pid, node in pids.items()}
    for what, node in sorted(percent):
        values = percent[what, node]
        mb = sum(resident[each] for each in resident if each[1] == node and what in (each[0], "all"))
        print(f"| {what} | {node} | {spread(values)} | {p99(values):.3g} | {mb:.0f} |")
    agents = [values for (what, _), values in percent.items() if what == "agent"]
    print(f"\nthe busiest agent: {max(statistics.median(values) for values in agents):.3g} % of a core", flush=True)


@contextmanager
def coscheduled(lab: Lab, work: Work, mode: str) -> Iterator[None]:
    """A job of that kind, without end, and a computing task on each node beside it; they are gone at the end."""
    with lab.client() as client:
        plan = CoschedulingRuns([work], [COMPANIES[0]], [mode], rounds=1, seconds=1.0, nodes=len(lab.nodes))
        with Experiment(client, plan, print).together(work, COMPANIES[0], mode):
            time.sleep(5)  # by then agents know how it receives
            yield


def main() -> None:
    """Measure, and print the tables."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    windows = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    print(f"{machine()}; {windows} windows of {seconds / windows:g} s")
    with Lab.up(nodes=4, name=f"idle-{os.getpid()}") as lab:
        time.sleep(10)  # what happens at the start is not idle
        print(f"\nidle (promised: 0.5 %); {lab.headline}")
        watched(lab, seconds, windows)
    with Lab.up(nodes=2, name=f"turns-{os.getpid()}", pin=True, mpl=3) as lab:
        for work, mode in ((BLOCKING, "ccs"), (POLLING, "gang")):
            with coscheduled(lab, work, mode):
                print(f"\n{work.name}, under {mode} (promised: 2 %)")
                watched(lab, seconds, windows)


if __name__ == "__main__":
    main()
