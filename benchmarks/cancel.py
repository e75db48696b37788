"""How long a job takes to end when it is cancelled: from the answer to the cancellation until nothing is left of it.

    ./run bench cancel [ROUNDS] [--owners]

Three kinds of jobs in turn, each of which has all four nodes of a lab: ``sleeps`` is a script on the first that ends
at SIGTERM, ``mpirun`` has a rank on each node that computes, and ``stays`` is a script that ignores SIGTERM, so that it
is killed when the grace of a second is over. A job's end is told by the scheduler once its control group is empty on
every node. With ``--owners`` somebody computes at each desk without a pause. Needs root, for a lab of tier 1.
"""

import argparse
import os
import signal
import time
from contextlib import nullcontext

from benchmarks.endings import owners
from benchmarks.launch import PATH
from benchmarks.measure import machine, p99, spread, until
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.wire.api import Submission

_STARTED = "echo up"
_SCRIPTS = {
    "sleeps": f"{_STARTED}\nexec sleep 600\n",
    "mpirun": f"exec mpirun sh -c '{_STARTED}; while :; do :; done'\n",
    "stays": f"trap '' TERM\n{_STARTED}\nwhile :; do sleep 1; done\n",
}
_PATIENCE_S = 60.0


def one(client: Client, kind: str, tasks: int) -> float:
    """Seconds from the answer to a cancellation to the job's end, all of it running at first. Raises SystemExit."""
    submission = Submission(
        script=f"#!/bin/sh\n{_SCRIPTS[kind]}",
        tasks=tasks,
        time_limit_s=600.0,
        directory="/",
        environment={"PATH": PATH},
    )
    job_id = client.submit(submission).job_id
    awaited = tasks if kind == "mpirun" else 1
    until(
        lambda: client.job(job_id).state == "running" and _lines(client, job_id) >= awaited,
        f"job {job_id} ({kind}) to run",
        _PATIENCE_S,
    )
    client.cancel(job_id)
    began_s = time.monotonic()
    job = client.wait(job_id, _PATIENCE_S)
    took_s = time.monotonic() - began_s
    if job.state != "cancelled":
        raise SystemExit(f"job {job_id} ({kind}) is {job.state}: {job.failure}")
    return took_s


def _lines(client: Client, job_id: int) -> int:
    return client.output(job_id, "stdout").data.count(b"\n")


def main() -> None:
    """Measure, and print a table."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the lab goes down whatever ends this
    parser = argparse.ArgumentParser(prog="./run bench cancel", description=__doc__.splitlines()[0])
    parser.add_argument("rounds", nargs="?", type=int, default=20, help="how many of each kind (20)")
    parser.add_argument("--owners", action="store_true", help="somebody computes at each desk")
    options = parser.parse_args()
    taken: dict[str, list[float]] = {kind: [] for kind in _SCRIPTS}
    with Lab.up(nodes=4, name=f"cancel-{os.getpid()}") as lab, lab.client() as client:
        if lab.tier != 1:
            raise SystemExit(f"needs a lab of tier 1: {lab.why}")
        for _ in range(options.rounds):
            for kind, values in taken.items():
                with owners(lab) if options.owners else nullcontext():
                    values.append(one(client, kind, len(lab.nodes)))
    desks = "an owner who computes at each desk" if options.owners else "nobody at the desks"
    print(f"{machine()}; {options.rounds} rounds, one of each in turn, {desks}\n")
    print("| job | median s [lowest … highest] | p99 s |\n|---|---|---|")
    for kind, values in taken.items():
        print(f"| {kind} | {spread(values)} | {p99(values):.3g} |")


if __name__ == "__main__":
    main()
