"""A rank killed within 150 ms of its start, many times: how soon its job has ended, and whether that rank is named.

    ./run campaign rank-kills [TIMES] [--seed S]

Each round submits a job of two ranks to a lab, half of them on one node and half on two, and kills one rank (kill -9)
after a time between 0 and 150 ms from its first appearance; which and when come from the seed. Measured is from the
kill to the job's end in the scheduler; it must be failed, and the message name the rank and its node. Needs root, for
a lab of tier 1, and Open MPI 5 (the extra ``lab``).
"""

import argparse
import contextlib
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.measure import machine
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.model.job import TERMINAL
from cosched.wire.api import JobDoc, Submission

_RANK = """
#include <mpi.h>
#include <unistd.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    pause();
    return 0;
}
"""
_PROGRAM = "waits-for-ever"
_ENDED = {str(state) for state in TERMINAL}
_LIMIT_S = 60.0
_PROMISED_S = 10.0
_WITHIN_S = 0.15


def ranks() -> dict[int, int]:
    """The processes of the program on all nodes, by their ranks."""
    found = {}
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError, StopIteration, ValueError):
            if comm.read_text().strip() == _PROGRAM:
                words = comm.with_name("environ").read_bytes().split(b"\0")
                rank = next(word for word in words if word.startswith(b"PMIX_RANK="))
                found[int(rank.partition(b"=")[2])] = int(comm.parent.name)
    return found


def ended(client: Client, job_id: int) -> JobDoc:
    """The job, once it has ended."""
    while (job := client.job(job_id)).state not in _ENDED:
        time.sleep(0.02)
    return job


def one(client: Client, program: Path, chance: random.Random, *, spread: bool) -> tuple[float, str]:
    """Seconds from the kill to the job's end, and what is wrong with what it says; empty where nothing is."""
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"}
    script = f"#!/bin/sh\nexec mpirun {program}\n"
    submission = Submission(script=script, tasks=2, time_limit_s=_LIMIT_S, directory="/", environment=environment)
    job_id = client.submit(submission).job_id
    culprit, after_s = chance.randrange(2), chance.uniform(0, _WITHIN_S)
    while culprit not in (there := ranks()):
        if client.job(job_id).state in _ENDED:
            return 0.0, f"job {job_id} ended before it was touched"
    time.sleep(after_s)
    os.kill(there[culprit], signal.SIGKILL)
    began_s = time.monotonic()
    job = ended(client, job_id)
    took_s = time.monotonic() - began_s
    node = job.nodes[culprit if spread else 0].name
    said = job.failure
    if job.state != "failed" or said is None or (said.rank, said.node) != (culprit, node):
        return took_s, f"job {job_id} is {job.state}, rank {culprit} on {node} was killed, and it says {said}"
    return took_s, ""


def main() -> None:
    """Kill and print."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the lab goes down whatever ends this
    parser = argparse.ArgumentParser(prog="./run campaign rank-kills", description=__doc__.splitlines()[0])
    parser.add_argument("times", nargs="?", type=int, default=200, help="how many kills, half of each placement (200)")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    chance = random.Random(options.seed)
    took: dict[bool, list[float]] = {False: [], True: []}
    wrong = []
    with tempfile.TemporaryDirectory(prefix="rank-kills-") as folder:
        Path(folder).chmod(0o755)
        program = Path(folder) / _PROGRAM
        program.with_suffix(".c").write_text(_RANK)
        compiler = Path(sys.executable).with_name("mpicc")
        path = {**os.environ, "PATH": f"{compiler.parent}:{os.environ['PATH']}"}
        subprocess.run([compiler, program.with_suffix(".c"), "-o", program], check=True, env=path)
        for spread in (False, True):
            name = f"kills-{os.getpid()}-{int(spread)}"
            with Lab.up(1 + spread, cpus=2 - spread, name=name, keep=[folder]) as lab, lab.client() as client:
                for _ in range(options.times // 2):
                    took_s, why = one(client, program, chance, spread=spread)
                    took[spread].append(took_s)
                    if why or took_s > _PROMISED_S:
                        wrong.append(why or f"took {took_s:.1f} s")
                        print(wrong[-1], file=sys.stderr, flush=True)
    print(f"{machine()}; seed {options.seed}\n")
    print("| ranks | kills | median s | worst s |\n|---|---|---|---|")
    for spread, values in took.items():
        where = "on two nodes" if spread else "on one node"
        print(f"| {where} | {len(values)} | {statistics.median(values):.2f} | {max(values):.2f} |")
    print(f"\nNot as promised: {len(wrong)}")
    raise SystemExit(bool(wrong))


if __name__ == "__main__":
    main()
