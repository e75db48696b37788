"""Cost of simulating real logs: ``./run bench simulator [ROUNDS] [--all]``.

The KTH log under FCFS, EASY and conservative backfilling, and with ``--all`` also RICC (447 794 jobs) under EASY, each
as a whole process ``cosched simulate … --json``, start of Python, reading and writing included.
"""

import sys

from benchmarks.measure import interleaved, machine, show
from cosched.workload import catalogue

KTH, RICC = "KTH-SP2-1996-2.1-cln", "RICC-2010-2"


def main(arguments: list[str]) -> None:
    """Measure and print."""
    rounds = next((int(each) for each in arguments if each.isdecimal()), 5)
    cases = [(KTH, policy) for policy in ("fcfs", "easy", "conservative")]
    if "--all" in arguments:
        cases.append((RICC, "easy"))
    commands = {}
    for log, policy in cases:
        path = catalogue.find(log)
        if path is None:
            print(f"{log} is not here; 'cosched workload fetch {log}' downloads it")
            continue
        command = [sys.executable, "-m", "cosched.apps.cli.main", "simulate", str(path), "--policy", policy, "--json"]
        commands[f"{log}, {policy}"] = command
    print(machine())
    show(interleaved(commands, rounds))


if __name__ == "__main__":
    main(sys.argv[1:])
