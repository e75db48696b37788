"""Profiles of the lab's programs on this machine: ``./run bench programs [SECONDS] [--rounds N] [--class LETTER …]``.

Each program, class and number of ranks runs for so many seconds (3) under a plain ``mpirun`` in the environment of a
job on one node: ranks talk by TCP over loopback, and yield while they wait. All of them in turn, three rounds; medians.
Memory is the resident peak of the largest rank; communication the share of the time that ranks spend in MPI calls,
waiting for others included; calls and bytes are a rank's; ``whole class`` is the time of an iteration times the class's
iterations. Beyond the machine's processors ranks share them, and communication includes waiting for a processor.
"""

import argparse
import getpass
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.measure import header, machine
from cosched.programs.command import PROGRAMS
from cosched.wire.hostfile import hostfile
from cosched.wire.messages import Peer
from space_scheduler.launch import Context, job_environment

BIN = Path(sys.executable).parent


def environment(folder: Path, ranks: int) -> Mapping[str, str]:
    """What a job of so many tasks on this node has."""
    peers = (Peer("here", "127.0.0.1", 1, ranks),)
    context = Context(
        job_id=1, attempt=1, name="bench", tasks=ranks, user=getpass.getuser(), cluster="bench", peers=peers,
        submitted={"PATH": f"{BIN}:{os.environ['PATH']}"},
    )  # fmt: skip
    (folder / "nodes").write_text(hostfile(peers))
    places = {"{node_file}": folder / "nodes", "{rsh}": "/bin/false", "{tmp}": folder}
    return {**{k: str(places.get(v, v)) for k, v in job_environment(context).items()}, "HOME": str(folder)}


def profile(folder: Path, program: str, letter: str, ranks: int, seconds: float) -> dict[str, Any]:
    """One run's report."""
    command: list[str | Path] = [BIN / "mpirun", sys.executable, "-m", "cosched.programs", program, "--class", letter]
    ended = subprocess.run(
        [*command, "--seconds", str(seconds), "--json"], env=environment(folder, ranks), capture_output=True, text=True,
        timeout=60 + 10 * seconds, check=False,
    )  # fmt: skip
    if ended.returncode:
        raise SystemExit(f"{program} {letter} on {ranks} ranks failed with {ended.returncode}: {ended.stderr}")
    report: dict[str, Any] = json.loads(ended.stdout)
    return report


def main(arguments: list[str]) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="./run bench programs", description=__doc__)
    parser.add_argument("seconds", nargs="?", type=float, default=3.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--class", dest="letters", nargs="+", default=["S", "W", "A"], choices=["S", "W", "A", "B"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4, 8])
    options = parser.parse_args(arguments)
    cases = list(product(PROGRAMS, options.letters, options.ranks))
    found: dict[tuple[str, str, int], list[dict[str, Any]]] = {case: [] for case in cases}
    with tempfile.TemporaryDirectory() as name:
        for _ in range(options.rounds):
            for case in cases:
                found[case].append(profile(Path(name), *case, options.seconds))
    print(f"{machine()}\n")
    header(
        "program | class | ranks | MB a rank | communication | calls/s | bytes a call | s an iteration | whole class"
    )
    for (program, letter, ranks), reports in found.items():
        each_s = median(report["seconds"] / report["iterations"] for report in reports)
        memory_mb, calls, size = (
            median(report[key] for report in reports) for key in ("peak_memory_bytes", "calls_per_s", "bytes_per_call")
        )
        shares = sorted(100 * report["comm_ratio"] for report in reports)
        print(
            f"| {program} | {letter} | {ranks} | {memory_mb / 1e6:.0f} "
            f"| {median(shares):.0f} % [{shares[0]:.0f} … {shares[-1]:.0f}] | {calls:.0f} | {size:.0f} "
            f"| {each_s:.3g} | {each_s * PROGRAMS[program].sizes[letter]['iterations']:.0f} s |"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
