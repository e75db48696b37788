"""How long a job that has computed its last takes to end, beside an owner who computes; and what the owner feels of it.

    ./run bench endings [TIMES]

Two desks of a lab, a processor each, at each an owner who computes without a pause, and a job with a rank at each. Its
ranks have called MPI_Finalize and wait for a file to end; measured is from the moment at which no rank is left to the
job's end in the scheduler. At the first desk a probe wakes up 100 times a second all the while (``cosched local-load
probe``): its 99th percentile is that of stretches with an ending against stretches of the same length with the job
still waiting. Needs root, for a lab of tier 1, two processors, and a machine on which nothing else runs.
"""

import argparse
import contextlib
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.measure import machine, p99, until
from cosched.apps.experiments.jobs import ENDED
from cosched.apps.experiments.site import LabDesk, owners_word
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.linux.process import stat_of
from cosched.wire.api import Submission

_RANK = """
#include <fcntl.h>
#include <mpi.h>
#include <unistd.h>
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Finalize();
    close(creat(argv[2], 0644));
    while (access(argv[1], F_OK))
        usleep(50000);
    return 0;
}
"""
_PROGRAM = "ends-on-a-file"
_PATIENCE_S = 240.0
_STRETCH_S = 4.0
_CALLS = ("nanosleep",)


class Ending(NamedTuple):
    """Seconds from the last rank's end to the job's, and the owner's 99th percentiles (ms) before and during it."""

    took_s: float
    before_ms: float
    during_ms: float


def ranks() -> set[int]:
    """The processes of the program, on all nodes."""
    found = set()
    for comm in Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            pid = int(comm.parent.name)
            if comm.read_text().strip() == _PROGRAM and (stat := stat_of(pid)) and stat.state not in "ZX":
                found.add(pid)
    return found


@contextlib.contextmanager
def owners(lab: Lab) -> Iterator[None]:
    """Somebody at each desk who computes without a pause while the block lasts."""
    computing = ["timeout", f"{_PATIENCE_S:g}", "sh", "-c", "while :; do :; done"]
    with contextlib.ExitStack() as stack, open(os.devnull, "r+b") as null:
        for node in lab.nodes:
            stack.enter_context(lab.start(node, computing, streams=[null.fileno()] * 3))
        yield


def felt_ms(desk: LabDesk, meanwhile: Callable[[], None] | None = None) -> float:
    """The owner's 99th percentile in a stretch, milliseconds."""
    command = [sys.executable, "-m", "cosched.apps.cli.main", "local-load", "probe", "--seconds", f"{_STRETCH_S:g}"]
    command += ["--rate", "100", "--calls", ",".join(_CALLS), "--json"]
    told = owners_word(desk, command, _STRETCH_S + 60, meanwhile)
    return 1e3 * float(told["calls"]["nanosleep"]["p99_s"])


def one(lab: Lab, client: Client, desk: LabDesk, program: Path, *, probe: bool) -> Ending:
    """One job from its start to its end."""
    go = program.with_name("go")
    finalized = program.with_name("finalized")
    for file in (go, finalized):
        file.unlink(missing_ok=True)
    environment = {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"}
    script = f"#!/bin/sh\nmpirun {program} {go} {finalized}\n"
    submission = Submission(script=script, tasks=2, time_limit_s=600.0, directory="/", environment=environment)
    job_id = client.submit(submission).job_id
    until(finalized.exists, "the ranks", _PATIENCE_S)
    time.sleep(1.0)
    took: list[float] = []

    def end() -> None:
        go.touch()
        until(lambda: not ranks(), "the ranks' end", _PATIENCE_S, 0.01)
        began_s = time.monotonic()
        until(lambda: client.job(job_id).state in ENDED, "the job's end", _PATIENCE_S, 0.01)
        took.append(time.monotonic() - began_s)

    with owners(lab):
        time.sleep(0.5)
        before_ms = felt_ms(desk) if probe else 0.0
        during_ms = 0.0
        if probe:
            during_ms = felt_ms(desk, end)
        else:
            end()
    if (ended := client.job(job_id)).state != "completed":
        raise SystemExit(f"job {job_id} is {ended.state}: {ended.failure}")
    return Ending(took[0], before_ms, during_ms)


def main() -> None:
    """Measure and print."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the lab goes down whatever ends this
    parser = argparse.ArgumentParser(prog="./run bench endings", description=__doc__.splitlines()[0])
    parser.add_argument("times", nargs="?", type=int, default=20, help="how many endings (20)")
    parser.add_argument("--no-probe", action="store_true", help="the owner's latency is not measured")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="endings-") as folder:
        program = Path(folder) / _PROGRAM
        program.with_suffix(".c").write_text(_RANK)
        compiler = Path(sys.executable).with_name("mpicc")
        path = {**os.environ, "PATH": f"{compiler.parent}:{os.environ['PATH']}"}
        subprocess.run([compiler, program.with_suffix(".c"), "-o", program], check=True, env=path)
        with Lab.up(2, pin=True, name=f"endings-{os.getpid()}", keep=[folder]) as lab, lab.client() as client:
            desk = LabDesk(lab)
            found = []
            for number in range(options.times):
                found.append(one(lab, client, desk, program, probe=not options.no_probe))
                print(f"{number + 1}: {found[-1]}", file=sys.stderr, flush=True)
    took = [each.took_s for each in found]
    print(f"{machine()}; {len(found)} endings\n")
    print("| | median | worst |\n|---|---|---|")
    print(f"| from the last rank's end to the job's, s | {statistics.median(took):.2f} | {max(took):.2f} |")
    for name, values in (
        ("with the job waiting", [each.before_ms for each in found]),
        ("with its ending", [each.during_ms for each in found]),
    ):
        if not options.no_probe:
            print(f"| owner's p99 in stretches {name}, ms | {statistics.median(values):.2f} | {p99(values):.2f} |")


if __name__ == "__main__":
    main()
