"""What an idle agent and its guard cost: CPU as a share of a core, and resident memory, node by node of an idle lab.

All processes are watched over the same windows of time, one window after another, so what else the machine does meets
all of them alike. ``both`` is agent and guard of a node together; promised are 0.5 % of a core and 60 MB for an agent.

    ./run bench agent [SECONDS] [WINDOWS]
"""

import os
import statistics
import sys
import time
from pathlib import Path

from benchmarks.measure import machine, p99, spread
from cosched.lab.lab import Lab

_TICKS = os.sysconf("SC_CLK_TCK")


def processes(lab: Lab) -> dict[str, dict[int, str]]:
    """The lab's agents and guards: what -> {pid: node}."""
    found: dict[str, dict[int, str]] = {"agent": {}, "guard": {}}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        text = " ".join(words)
        if str(lab.directory) not in text:
            continue
        for what, module in (("agent", "node_agent"), ("guard", "node_agent.guard")):
            if module in words:
                found[what][int(folder.name)] = next((node for node in lab.nodes if f"/{node}/" in text), "?")
    return found


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used so far, to the nanosecond where the kernel tells."""
    try:
        return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mb(pid: int) -> float:
    """Resident memory in MB: what /proc calls VmRSS."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    """Measure, and print a table."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 60.0
    windows = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    with Lab.up(nodes=4, name=f"idle-{os.getpid()}") as lab:
        time.sleep(10)  # what happens at the start is not idle
        found = processes(lab)
        percent: dict[tuple[str, str], list[float]] = {}
        for window in range(windows):
            before = {pid: cpu_s(pid) for pids in found.values() for pid in pids}
            began_s = time.monotonic()
            time.sleep(seconds / windows)
            past_s = time.monotonic() - began_s
            for what, pids in found.items():
                for pid, node in pids.items():
                    used = 100 * (cpu_s(pid) - before[pid]) / past_s
                    percent.setdefault((what, node), []).append(used)
                    both = percent.setdefault(("both", node), [])
                    both += [0.0] * (window + 1 - len(both))
                    both[window] += used
        print(f"{lab.headline}\n{machine()}; {windows} windows of {seconds / windows:g} s\n")
        print("| process | node | % of a core, median [lowest … highest] | p99 | resident MB |\n|---|---|---|---|---|")
        resident = {(what, node): resident_mb(pid) for what, pids in found.items() for pid, node in pids.items()}
        for what, node in sorted(percent):
            values = percent[what, node]
            mb = sum(resident[each] for each in resident if each[1] == node and what in (each[0], "both"))
            print(f"| {what} | {node} | {spread(values)} | {p99(values):.3g} | {mb:.0f} |")
        agents = [values for (what, _), values in percent.items() if what == "agent"]
        worst = max(statistics.median(values) for values in agents)
        print(f"\nthe busiest agent: {worst:.3g} % of a core (promised: 0.5)")


if __name__ == "__main__":
    main()
