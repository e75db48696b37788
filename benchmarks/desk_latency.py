"""What a person at a desk waits for beside CPU-bound parallel tasks when nothing is done about it: plain fair sharing.

One node of a lab with all of this machine's CPUs, an XWindows user at its desk, and 0, 1, 2 and 4 ranks of BT on each
CPU (plain ``mpirun``, no agent of ours has a hand in it). Twice: the ranks among the desk's own processes, as when
somebody logs in and starts them; and in a control group of their own with the desk's weight, as another user's session
or a service has it. This is the baseline that the social contract has to beat. Needs root. Each round is SECONDS long.

    ./run bench desk-latency [SECONDS [DIRECTORY]]

Prints a table in Markdown, and draws ``same-group`` and ``own-group`` (PNG and SVG) into DIRECTORY, where each round's
samples are too (``cosched local-load report`` reads and compares them).
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from benchmarks.measure import header, machine
from cosched.apps.lab import cgroups
from cosched.apps.lab.lab import Lab
from local_load import report, samples
from local_load.machine import cpu_s

NODE = "node1"
TASKS_PER_CPU = (0, 1, 2, 4)
PLACES = {"same-group": "among the desk's processes", "own-group": "a group of equal weight"}
SHOWN = ("nanosleep", "spawn", "burst", "key", report.ALL)


def groups(lab: Lab) -> list[Path]:
    """Control groups beside the desk's, with its weight, made for the ranks."""
    made = [Path(door).parents[1] / "plain" for door in cgroups.doors(lab.name, NODE, "desk")]
    for group in made:
        group.mkdir(exist_ok=True)
        for name in ("cpuset.cpus", "cpuset.mems"):
            if (group / name).exists():
                (group / name).write_text((group.parent / name).read_text())
    return made


@contextmanager
def ranks(lab: Lab, count: int, doors: list[Path]) -> Iterator[None]:
    """So many ranks of BT at work while the block lasts."""
    if not count:
        yield
        return
    enter = "".join(f"echo 0 > '{door}/cgroup.procs'; " for door in doors)
    mpirun = [str(Path(sys.executable).parent / "mpirun"), "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE"]
    program = [sys.executable, "-m", "cosched.programs", "bt", "--class", "S", "--seconds", "86400"]
    command = ["sh", "-c", f'{enter}exec "$@"', "ranks", *mpirun, "--bind-to", "none", "-n", str(count), *program]
    with tempfile.TemporaryFile("w+") as output:
        running = lab.popen(NODE, command, stdout=output, stderr=output, cwd="/")
        try:
            give_up_s = time.monotonic() + 60
            while len(busy(lab)) < count:
                if running.poll() is not None or time.monotonic() > give_up_s:
                    output.seek(0)
                    raise SystemExit(f"mpirun did not start {count} ranks:\n{output.read()}")
                time.sleep(0.1)
            time.sleep(2.0)  # the first iterations, which are warmer for none
            yield
            if len(busy(lab)) != count:
                output.seek(0)
                raise SystemExit(f"{len(busy(lab))} of {count} ranks are left:\n{output.read()}")
        finally:
            running.send_signal(signal.SIGTERM)
            running.wait(60)
            give_up_s = time.monotonic() + 60
            while busy(lab) and time.monotonic() < give_up_s:
                time.sleep(0.1)


def busy(lab: Lab) -> list[int]:
    """The ranks that there are in this lab."""
    mark = f"COSCHED_LAB={lab.name}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            is_rank = b"cosched.programs" in words and words[1:2] == [b"-m"]
            if is_rank and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def user(lab: Lab, seconds: float, out: Path) -> dict[str, object]:
    """An XWindows user at the desk for so long; what he says."""
    command = [sys.executable, "-P", "-m", "cosched.apps.cli.main", "local-load", "run", "--profile", "xwindows"]
    command += ["--seconds", f"{seconds:g}", "--out", str(out), "--json"]
    running = lab.popen(NODE, command, stdout=subprocess.PIPE, cwd="/")
    told, _ = running.communicate(timeout=seconds + 300)
    if running.returncode:
        raise SystemExit(f"the user ended with {running.returncode}")
    document: dict[str, object] = json.loads(told)
    return document


def main() -> None:
    """Measure, print, draw."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # the lab goes down whatever ends this
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120.0
    folder = Path(sys.argv[2] if len(sys.argv) > 2 else "results/desk-latency").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    cpus = os.cpu_count() or 1
    theirs: dict[tuple[str, int], float] = {}
    with Lab.up(1, cpus=cpus, memory_bytes=2 << 30, name=f"desk-{os.getpid()}", keep=[folder]) as lab:
        if lab.tier != 1:
            raise SystemExit(f"needs a lab of tier 1: {lab.why}")
        for place in PLACES:
            doors = groups(lab) if place == "own-group" else []
            for tasks in TASKS_PER_CPU:
                print(f"{place}, {tasks} a CPU", file=sys.stderr, flush=True)
                with ranks(lab, tasks * cpus, doors):
                    pids = busy(lab)
                    before_s, began_s = cpu_s(pids), time.monotonic()
                    user(lab, seconds, folder / place / f"{tasks}-a-cpu")
                    theirs[place, tasks] = (cpu_s(pids) - before_s) / (time.monotonic() - began_s)
    print(f"{machine()}; {seconds:g} s each\n")
    header("ranks | a CPU | their CPUs | his (of 15 %) | call | samples | p50 ms | p95 ms | p99 ms | max ms | > 400 ms")
    for place, words in PLACES.items():
        runs = {}
        for tasks in TASKS_PER_CPU:
            first = f"| {words} | {tasks} | {theirs[place, tasks]:.2f}"
            summary, found = samples.read(folder / place / f"{tasks}-a-cpu")
            runs[f"{tasks} on each CPU"] = found
            got = summary["targets"]["cpu"]["achieved_share"]
            for call in SHOWN:
                ms = (found if call == report.ALL else found.of(call)).response_s * 1000
                if not len(ms):
                    continue
                figures = [f"{value:.3g}" for value in [*np.quantile(ms, [0.5, 0.95, 0.99]), ms.max()]]
                above = f"{np.mean(ms > 400):.2%}"
                print(f"{first} | {got:.1%} | {call} | {len(ms)} | {' | '.join(figures)} | {above} |")
        for path in report.plot(runs, folder / place):
            print(path, file=sys.stderr)


if __name__ == "__main__":
    main()
