"""Simulations of shared nodes: ``./run bench shared [ROUNDS]``.

The paper's workload and owners (``cosched replicate cisne``) on 100, 1 000 and 10 000 workstations at the same load for
each, under 3DBF-Light and CCS: CPU time per job. And 20 000 jobs on 1 000 workstations, once.
"""

import sys
import time

from benchmarks.measure import interleaved, machine, per_job, show
from cosched.apps.replicate.cisne import setup
from cosched.config import coefficients
from cosched.metrics.summary import summarise
from cosched.model.coscheduling import Mode
from space_scheduler.plugins import resolve
from space_scheduler.progress import Sharing
from space_scheduler.simulator.host import simulate

SIZES = (100, 1_000, 10_000)
JOBS = 2_000
LARGE = (1_000, 20_000)
#: A load that they can carry, the same for each node: arrivals this many execution times apart on sixteen of them.
RATIO_OF_16 = 0.45
POLICY = "3dbf-light"


def one(nodes: int, jobs: int) -> None:
    """A simulation, and what came out of it."""
    began_s = time.perf_counter()
    sharing = Sharing(Mode.CCS, coefficients.read().permille(Mode.CCS))
    load = setup.workload(RATIO_OF_16 * setup.NODES / nodes, 1, jobs=jobs)
    outcome = simulate(load, resolve(POLICY), site=setup.site(1, sharing, count=nodes))
    found = summarise(outcome)
    print(
        f"{nodes} nodes, {jobs} jobs: {time.perf_counter() - began_s:.1f} s, mean wait {found.mean_wait_s:.1f} s, "
        f"{outcome.passes} passes",
        file=sys.stderr,
    )


def main(arguments: list[str]) -> None:
    """Measure and print."""
    if arguments[:1] == ["--one"]:
        one(int(arguments[1]), int(arguments[2]))
        return
    rounds = next((int(each) for each in arguments if each.isdecimal()), 3)
    ours = [sys.executable, "-m", "benchmarks.shared", "--one"]
    commands = {"one job": [*ours, "100", "1"]} | {f"{nodes} nodes": [*ours, str(nodes), str(JOBS)] for nodes in SIZES}
    print(f"{machine()}; the CISNE workload, {POLICY}, CCS, {JOBS} jobs")
    costs = interleaved(commands, rounds)
    show(costs)
    none, *sized = commands
    found_s = [*per_job(costs, dict.fromkeys(sized, JOBS), none).values()]
    for nodes, each_s in zip(SIZES, found_s, strict=True):
        print(f"{nodes:>6} nodes: {each_s * 1e3:.2f} ms of CPU a job, {each_s / found_s[0]:.1f} × that of {SIZES[0]}")
    one(*LARGE)


if __name__ == "__main__":
    main(sys.argv[1:])
