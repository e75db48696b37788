"""Cost of simulating real logs: ``./run bench simulator [ROUNDS] [--all]``.

The KTH log under FCFS, EASY and conservative backfilling, and with ``--all`` also RICC (447 794 jobs) under EASY, each
as a whole process ``cosched simulate … --json``, start of Python, reading and writing included.
"""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import interleaved, machine, show
from cosched.workload import catalogue, swf
from cosched.workload.log import Field

KTH, RICC = "KTH-SP2-1996-2.1-cln", "RICC-2010-2"


def main(arguments: list[str]) -> None:
    """Measure and print."""
    with TemporaryDirectory(prefix="cosched-bench-") as scratch:
        _measure(arguments, scratch)


def _measure(arguments: list[str], scratch: str) -> None:
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
        target = _without_jobs_that_never_ran(path, scratch)
        command = [sys.executable, "-m", "cosched.apps.cli.main", "simulate", target, "--policy", policy, "--json"]
        commands[f"{log}, {policy}"] = command
    print(machine())
    show(interleaved(commands, rounds))


def _without_jobs_that_never_ran(path: Path, scratch: str) -> str:
    """A copy of the log that is simulated once: with such jobs both of their readings are."""
    log = swf.read(path)
    ran = (log.column(Field.RUN_S) > 0) & (log.column(Field.PROCS_ALLOCATED) > 0)
    target = str(Path(scratch) / path.name)
    swf.write(log.with_rows(log.rows[ran]), target)
    return target


if __name__ == "__main__":
    main(sys.argv[1:])
