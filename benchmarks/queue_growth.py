"""Growth of the cost with the length of the queue: ``./run bench queue_growth [ROUNDS]``.

10², 10³ and 10⁴ jobs that arrive at once behind a job of the whole machine, so that all of them wait, under EASY and
under conservative backfilling. Widths and estimates are drawn from a few, and estimates are exact: nobody's reservation
moves, and what is left is what a pass costs with so many others waiting. What counts is the CPU time per job, the fixed
cost of a process taken off by the simulation of the first job alone.
"""

import random
import statistics
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import interleaved, machine, show

SIZES = (100, 1_000, 10_000)
POLICIES = ("easy", "conservative")
PROCS = 128
WIDTHS, ESTIMATES_S = (1, 2, 4, 8, 16, 32), (600, 1800, 3600, 7200, 14_400)


def queued(jobs: int) -> str:
    """A log in which so many jobs wait for one that has the whole machine for a day."""
    chance = random.Random(1)
    waiting = [_line(number, 60, chance.choice(ESTIMATES_S), chance.choice(WIDTHS)) for number in range(2, jobs + 2)]
    return "\n".join([f"; MaxProcs: {PROCS}", _line(1, 0, 86_400, PROCS), *waiting]) + "\n"


def _line(number: int, submit_s: int, run_s: int, procs: int) -> str:
    return f"{number} {submit_s} -1 {run_s} {procs} -1 -1 {procs} {run_s} -1 1 1 -1 -1 -1 -1 -1 -1"


def main(arguments: list[str]) -> None:
    """Measure and print."""
    rounds = next((int(each) for each in arguments if each.isdecimal()), 5)
    commands = {}
    with TemporaryDirectory(prefix="cosched-bench-") as scratch:
        for jobs in (0, *SIZES):
            log = Path(scratch) / f"{jobs}.swf"
            log.write_text(queued(jobs), encoding="ascii")
            for policy in POLICIES:
                simulate = ["simulate", str(log), "--policy", policy, "--json"]
                commands[f"{jobs} waiting, {policy}"] = [sys.executable, "-m", "cosched.apps.cli.main", *simulate]
        print(f"{machine()}; {PROCS} processors, all jobs wait at once")
        costs = interleaved(commands, rounds)
    show(costs)
    for policy in POLICIES:
        cpu_s = [statistics.median(costs[f"{jobs} waiting, {policy}"].cpu_s) for jobs in (0, *SIZES)]
        per_job = [(each_s - cpu_s[0]) / jobs for jobs, each_s in zip(SIZES, cpu_s[1:], strict=True)]
        for jobs, each_s in zip(SIZES, per_job, strict=True):
            print(f"{policy:>12}, {jobs:>6} waiting: {each_s * 1e6:.0f} µs of CPU a job")


if __name__ == "__main__":
    main(sys.argv[1:])
