"""Every socket of a node at full speed, from three uids and a job; what owner, guard and agent have of it.

    ./run bench floods [--seconds 60] [--only none,desk,agent,port]

On a lab of one node: three processes of users without accounts at its desk, and a job on that node, connect, say
something and hold connections as fast as they can. Beside them a process of root's pauses parallel work and resumes
it. Twice for each socket. Promised: no process is started anew, a pause is answered within 1 s, guard and agent grow by
at most 64 MB, and by less than 5 % more in the second flood; logs grow by a few lines; the guard uses at most 1 % of a
CPU for all of them (and 1 % for who pauses). Prints a table; ends with 1 where a promise is broken. Needs root.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.agent import cpu_s, processes
from benchmarks.measure import forget_peak, header, machine, memory_mib
from cosched.apps.lab.lab import Lab
from cosched.errors import Failed
from cosched.wire.api import Submission

ROOT = Path(__file__).resolve().parents[1]
RUN = "/run/cosched"
NODE = "node1"
UIDS = (61001, 61002, 61003)
_PAUSE_S, _GROWN_MB, _AGAIN, _LOG_BYTES, _SHARE = 1.0, 64.0, 1.05, 20_000, 0.02


@dataclass
class Flood:
    """How a socket is flooded: what kind of socket it is, and where, on a lab's first node."""

    kind: str
    address: Callable[[Lab], str]


def port(lab: Lab) -> str:
    """Where the first node's agent listens for others."""
    directory = next(Path(node["directory"]) for node in lab.state["nodes"] if node["name"] == NODE)
    launch = tomllib.loads((directory / "node.toml").read_text())["launch"]
    return f"{launch['address']}:{launch['port']}"


#: A part of the system with another socket adds it here.
FLOODS: dict[str, Flood] = {
    "none": Flood("none", lambda _: ""),  # how long a pause takes on this machine anyway
    "desk": Flood("packets", lambda _: f"{RUN}/desk.sock"),
    "agent": Flood("unix", lambda _: f"{RUN}/agent.sock"),
    "port": Flood("tcp", port),
}


@dataclass
class Seen:
    """What one flood did."""

    connections: int
    pauses_s: list[float]
    guard_cpu: float
    agent_cpu: float
    guard_mb: tuple[float, float]  # before, and the most meanwhile
    agent_mb: tuple[float, float]
    log_bytes: int
    restarted: bool


def flooder(*arguments: object) -> list[str]:
    """The command line of one process of a flood."""
    return [sys.executable, "-m", "benchmarks._flooder", *map(str, arguments)]


def services(lab: Lab) -> tuple[int, int]:
    """Guard and agent of the node that is flooded."""
    found = processes(lab)
    guard, agent = (next(pid for pid, node in found[what].items() if node == NODE) for what in ("guard", "agent"))
    return guard, agent


def logs(lab: Lab) -> int:
    """Bytes of all logs of the lab's services."""
    found = 0
    for path in lab.directory.glob("**/*.log"):
        with contextlib.suppress(FileNotFoundError):  # it has been taken away for the next one meanwhile
            found += path.stat().st_size if path.name != "user.log" else 0
    return found


def flooded(lab: Lab, flood: Flood, seconds: float) -> Seen:
    """One flood, to its end."""
    guard, agent = services(lab)
    for pid in (guard, agent):
        forget_peak(pid)
    before_mb = memory_mib(guard), memory_mib(agent)
    before_s, log_bytes, began_s = (cpu_s(guard), cpu_s(agent)), logs(lab), time.monotonic()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    address = flood.address(lab)
    words = "sleep 1000" if flood.kind == "none" else " ".join(flooder(flood.kind, 0, address, seconds))
    job = lab.client().submit(
        Submission(
            script=f"#!/bin/sh\nexec {words}\n",
            tasks=1,
            time_limit_s=seconds + 60,
            directory="/",
            environment={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        )
    )
    crowd = [
        lab.popen(NODE, flooder(flood.kind, uid, address, seconds), stdout=subprocess.PIPE, env=environment, cwd="/")
        for uid in UIDS
        if flood.kind != "none"
    ]
    asking = lab.popen(
        NODE, flooder("probe", 0, f"{RUN}/desk.sock", seconds), stdout=subprocess.PIPE, env=environment, cwd="/"
    )
    pauses = json.loads(asking.communicate(timeout=seconds + 120)[0])
    connections = sum(int(each.communicate(timeout=seconds + 120)[0]) for each in crowd)
    took_s = time.monotonic() - began_s
    try:
        same = services(lab) == (guard, agent)
        used = cpu_s(guard) - before_s[0], cpu_s(agent) - before_s[1]
        most = memory_mib(guard), memory_mib(agent)
    except (OSError, StopIteration):
        same, used, most = False, (0.0, 0.0), before_mb
    with contextlib.suppress(Failed):  # it has ended by itself
        lab.client().cancel(job.job_id)
    lab.client().wait(job.job_id, 60)
    cpu = used[0] / took_s, used[1] / took_s
    memory = (before_mb[0], most[0]), (before_mb[1], most[1])
    return Seen(connections, pauses, *cpu, *memory, logs(lab) - log_bytes, not same)


def broken(first: Seen, second: Seen) -> list[str]:
    """Which promises the two floods of a socket broke."""
    found = []
    for seen in (first, second):
        found += ["a process was started anew"] * seen.restarted
        found += ["a pause took more than 1 s"] * (max(seen.pauses_s) > _PAUSE_S)
        found += ["logs"] * (seen.log_bytes > _LOG_BYTES)
        found += ["the guard's CPU"] * (seen.guard_cpu > _SHARE)
    for name in ("guard_mb", "agent_mb"):
        base, most = getattr(first, name)
        found += [f"{name}: more than 64 above its base"] * (most > base + _GROWN_MB)
        found += [f"{name}: the second flood adds 5 %"] * (getattr(second, name)[1] >= most * _AGAIN)
    return found


def main(arguments: list[str]) -> int:
    """See above."""
    parser = argparse.ArgumentParser(prog="./run bench floods")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", default=",".join(FLOODS))
    given = parser.parse_args(arguments)
    if os.geteuid() != 0:
        sys.exit("floods: needs root, for a lab of tier 1 and processes of several users")
    print(f"{machine()}; {given.seconds:g} s each, twice")
    header("socket | connections | pause, median ms | worst | guard CPU | agent CPU | guard MB | agent MB | log bytes")
    wrong = 0
    with Lab.up(1, name=f"floods-{os.getpid()}", tier=1) as lab:
        for name in given.only.split(","):
            both = [flooded(lab, FLOODS[name], given.seconds) for _ in range(2)]
            for seen in both:
                print(
                    f"| {name} | {seen.connections} | {statistics.median(seen.pauses_s) * 1e3:.1f} "
                    f"| {max(seen.pauses_s) * 1e3:.0f} | {seen.guard_cpu:.2%} | {seen.agent_cpu:.2%} "
                    f"| {seen.guard_mb[0]:.0f} → {seen.guard_mb[1]:.0f} "
                    f"| {seen.agent_mb[0]:.0f} → {seen.agent_mb[1]:.0f} "
                    f"| {seen.log_bytes} |",
                    flush=True,
                )
            for words in broken(*both):
                wrong += 1
                print(f"BROKEN at {name}: {words}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
