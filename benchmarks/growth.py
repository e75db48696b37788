"""Growth of the cost with the number of jobs at constant load: ``./run bench growth [ROUNDS]``.

Workloads of 10⁴, 10⁵ and 10⁶ jobs from one model, on one machine at one offered load, under EASY. What counts is the
CPU time per job, the fixed cost of a process taken off by an empty simulation.
"""

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import interleaved, machine, per_job, show

SIZES = (10_000, 100_000, 1_000_000)
LOAD, PROCS = 0.7, 128


def main(arguments: list[str]) -> None:
    """Measure and print."""
    rounds = next((int(each) for each in arguments if each.isdecimal()), 3)
    cosched = [sys.executable, "-m", "cosched.apps.cli.main"]
    with TemporaryDirectory(prefix="cosched-bench-") as scratch:
        commands = {}
        for jobs in (1, *SIZES):
            target = str(Path(scratch) / f"{jobs}.swf")
            make = ["workload", "generate", "lublin03", target, "--jobs", str(jobs), "--procs", str(PROCS)]
            scaled = ["--load", str(LOAD)] if jobs > 1 else []
            subprocess.run([*cosched, *make, *scaled], check=True, stdout=subprocess.DEVNULL)
            commands[f"{jobs:,} jobs".replace(",", " ")] = [*cosched, "simulate", target, "--policy", "easy", "--json"]
        print(f"{machine()}; Lublin–Feitelson 2003, {PROCS} processors, offered load {LOAD}, EASY")
        costs = interleaved(commands, rounds)
    show(costs)
    none, *sized = commands
    found_s = [*per_job(costs, dict(zip(sized, SIZES, strict=True)), none).values()]
    for jobs, each_s in zip(SIZES, found_s, strict=True):
        print(f"{jobs:>9} jobs: {each_s * 1e6:.1f} µs of CPU a job, {each_s / found_s[0]:.2f} × that of {SIZES[0]}")


if __name__ == "__main__":
    main(sys.argv[1:])
