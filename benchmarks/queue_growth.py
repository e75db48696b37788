"""Growth of the cost with the length of the queue: ``./run bench queue_growth [ROUNDS]``.

10², 10³ and 10⁴ jobs that arrive at once behind a job of the whole machine, so that all of them wait, under EASY and
under conservative backfilling. Widths and estimates are drawn from a few, and estimates are exact: nobody's reservation
moves, and what is left is what a pass costs with so many others waiting. What counts is the CPU time per job, the fixed
cost of a process taken off by the simulation of the first job alone.

    ./run bench queue_growth view [ROUNDS [CHECKOUT...]]

What the scheduler's core takes to publish its view after the commit of one submission, with as many jobs waiting: CPU
time of its thread, the median of 200 in a process of their own; interleaved with other checkouts.
"""

import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.measure import interleaved, machine, per_job, show
from cosched.model.job import Job
from cosched.model.node import Node
from cosched.model.time import US_PER_S
from cosched.wire.api import Submission
from space_scheduler.machine import events as ev
from space_scheduler.plugins import resolve
from space_scheduler.service.core.journalled import JournalledCore, Settings
from space_scheduler.service.journal.journal import Journal

_VIEWS = 200
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


def view_us(jobs: int) -> float:
    """Median CPU time of a view after a submission that has been committed, in microseconds."""
    submission = Submission(script="#!/bin/sh\n", directory="/")
    with TemporaryDirectory(prefix="cosched-bench-") as scratch:
        core = JournalledCore(Journal(path := Path(scratch) / "journal.db"), Settings(path, resolve("easy"), "easy"))
        for number in range(64):
            core.take_in(ev.NodeJoined(Node(f"n{number}", 4, 8 << 30)), 0)
        took_s = []
        for number in range(jobs + _VIEWS):
            job = Job(0, 1 + number % 7, (60 + number % 50) * US_PER_S, 0)
            core.submit(job, submission, f"user{number % 5}", number)
            if number >= jobs:
                core.commit()
                began_s = time.thread_time()
                core.view(decided_us=0, accepting=True, problem="")
                took_s.append(time.thread_time() - began_s)
        core.journal.close()
    return statistics.median(took_s) * 1e6


def views(rounds: int, checkouts: list[str]) -> None:
    """Measure the views of all checkouts in turn, and print their medians."""
    for jobs in SIZES:
        found: dict[str, list[float]] = {each: [] for each in checkouts}
        for _ in range(rounds):
            for checkout, medians in found.items():
                command = [sys.executable, __file__, "view_us", str(jobs)]
                environment = os.environ | {"PYTHONPATH": checkout}
                medians.append(float(subprocess.check_output(command, env=environment)))
        for checkout, medians in found.items():
            least_us, most_us = min(medians), max(medians)
            print(
                f"{jobs:>6} waiting, {checkout}: {statistics.median(medians):.1f} µs ({least_us:.1f} to {most_us:.1f})"
            )


def main(arguments: list[str]) -> None:
    """Measure and print."""
    match arguments:
        case ["view_us", count]:
            return print(view_us(int(count)))
        case ["view", *rest]:
            return views(int(rest[0]) if rest else 5, [str(Path(__file__).parents[1]), *rest[1:]])
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
        sizes = {f"{jobs} waiting, {policy}": jobs for jobs in SIZES}
        for name, each_s in per_job(costs, sizes, f"0 waiting, {policy}").items():
            print(f"{policy:>12}, {sizes[name]:>6} waiting: {each_s * 1e6:.0f} µs of CPU a job")


if __name__ == "__main__":
    main(sys.argv[1:])
