"""What an idle agent and its guard cost: CPU as a share of a core, and resident memory, node by node of an idle lab.

./run bench agent [SECONDS]
"""

import os
import sys
import time
from pathlib import Path

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
    with Lab.up(nodes=4, name=f"idle-{os.getpid()}") as lab:
        time.sleep(10)  # what happens at the start is not idle
        found = processes(lab)
        before = {pid: cpu_s(pid) for pids in found.values() for pid in pids}
        time.sleep(seconds)
        print(f"{lab.headline}\n\n| process | node | % of a core | resident MB |\n|---|---|---|---|")
        for what, pids in found.items():
            for pid, node in sorted(pids.items(), key=lambda item: item[1]):
                share = (cpu_s(pid) - before[pid]) / seconds
                print(f"| {what} | {node} | {share:.2%} | {resident_mb(pid):.0f} |")


if __name__ == "__main__":
    main()
