"""What the wake-up probe costs, and whether it feels anything: alone, and beside a computing process on each CPU.

The probe is a process as the guard forks it, without a group of its own. The computing processes are of its weight, so
what it feels beside them is what an owner would who is not protected. Promised: 0.2 % of a core; the exit status is 1
where it takes more.

    ./run bench wakeups [SECONDS] [ROUNDS]
"""

import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

from benchmarks.measure import header, machine, spread
from cosched.linux.wakeups import BOUNDS_S, Counted, WakeupCounts, probe
from node_agent.guard.desk.helpers import forked

PROMISED_PERCENT = 0.2


def cpu_s(pid: int) -> float:
    """CPU seconds a process has used so far, to the nanosecond."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def compute() -> None:
    """Without end."""
    while True:
        pass


@contextmanager
def running(names: list[str], counts: WakeupCounts) -> Iterator[int]:
    """The probe's process, and those that compute; all of them end with the context."""
    made = [forked(name, (), compute, cpu) for cpu, name in zip(sorted(os.sched_getaffinity(0)), names, strict=False)]
    made.append(forked("cosched-probe", (), lambda: probe(counts, Random())))
    try:
        yield made[-1][0]
    finally:
        for pid, pidfd in made:
            os.close(pidfd)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def felt(counted: Counted, share: float) -> str:
    """The bucket in which that share of the wake-ups is reached."""
    rank, seen = share * sum(counted.counts), 0
    for bound_s, count in zip(BOUNDS_S, counted.counts, strict=False):
        seen += count
        if seen >= rank:
            return f"≤ {1000 * bound_s:g} ms"
    return f"> {1000 * BOUNDS_S[-1]:g} ms"


def main(seconds: float = 60.0, rounds: int = 5) -> int:
    """Print the table; 1 where the probe takes more than is promised."""
    print(machine())
    print()
    header("beside | % of a core, median [lowest … highest] | CPU s an hour | wake-ups | p50 | p99 | mean late")
    dear = False
    cases = {"nobody": [], "a computing process on each CPU": ["compute"] * len(os.sched_getaffinity(0))}
    for beside, names in cases.items():
        percent, counts = [], WakeupCounts()
        for _ in range(rounds):
            with running(names, counts) as pid:
                time.sleep(1.0)
                before_s, began_s = cpu_s(pid), time.monotonic()
                time.sleep(seconds / rounds)
                percent.append(100 * (cpu_s(pid) - before_s) / (time.monotonic() - began_s))
        counted = counts.read()
        median, total = statistics.median(percent), sum(counted.counts)
        late = f"{counted.late_us / total / 1000:.3g} ms"
        columns = (spread(percent), f"{36 * median:.3g}", total, felt(counted, 0.5), felt(counted, 0.99), late)
        print(f"| {beside} | {' | '.join(map(str, columns))} |", flush=True)
        dear = dear or median > PROMISED_PERCENT
    print(f"\npromised: {PROMISED_PERCENT} % of a core ({36 * PROMISED_PERCENT:g} s an hour)")
    return int(dear)


if __name__ == "__main__":
    seconds, rounds = (*sys.argv[1:], *["60", "5"][len(sys.argv) - 1 :])
    sys.exit(main(float(seconds), int(rounds)))
