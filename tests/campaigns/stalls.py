"""All tests on a machine whose processors are taken away at random: a test that fails then is a defect.

    ./run campaign stalls [--seed S] [--every SECONDS] [-- ARGUMENTS OF ./run test]

On each processor a process of the real-time class (SCHED_FIFO) computes for 0.1 to 3 s, then sleeps for a random time,
6 s in the mean, so that about a fifth of the machine's time is gone and now and then all of it at once, as on a host
whose hypervisor gives the processors to others. Without arguments the whole suite runs, with its system packages. Ends
with the tests' own exit status. Needs root, for the class.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from cosched.linux import process

ROOT: Final = Path(__file__).resolve().parents[2]
_SHORTEST_S, _LONGEST_S = 0.1, 3.0


def take_away(cpu: int, seed: int, pause_s: float, campaign: int) -> None:
    """Stall that processor again and again, until the campaign's process ends."""
    process.die_with_parent(campaign)
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    chance = random.Random(f"{seed} {cpu}")
    while True:
        time.sleep(chance.expovariate(1 / pause_s))
        until_s = time.monotonic() + chance.uniform(_SHORTEST_S, _LONGEST_S)
        while time.monotonic() < until_s:
            pass


def main() -> None:
    parser = argparse.ArgumentParser(prog="./run campaign stalls", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--every", type=float, default=6.0, metavar="SECONDS", help="mean time between two stalls (6)")
    parser.add_argument("tests", nargs="*", help="arguments of ./run test (--whole --system)")
    given = parser.parse_args()
    if os.geteuid() != 0:
        raise SystemExit("needs root: stalls are processes of the real-time class")
    stallers, campaign = [], os.getpid()
    for cpu in sorted(os.sched_getaffinity(0)):
        pid = os.fork()
        if pid == 0:
            try:
                take_away(cpu, given.seed, given.every, campaign)
            finally:
                os._exit(1)
        stallers.append(pid)
    try:
        ended = subprocess.run([ROOT / "run", "test", *(given.tests or ["--whole", "--system"])], check=False)
    finally:
        for pid in stallers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    sys.exit(ended.returncode)


if __name__ == "__main__":
    main()
