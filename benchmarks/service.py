"""The service under load: submissions beside a long queue, its recovery, and all agents coming back at once.

A real ``cosched scheduler`` with its journal on disk, agents in one process with real links (``_agents``), users over
the service's socket. Three promises are measured, one after the other:

* **submissions**: with so many jobs queued and all nodes busy, jobs ending and starting all the while, submissions
  arrive at a steady rate whether or not earlier ones are answered; an answer's time counts from the moment at which
  its submission was due. At the same time ``/metrics`` is read ten times a second. Then as many as can be;
* **recovery**: ``kill -9``, the journal has no fresh snapshot; from the start of the new process until it listens;
* **reconnect storm**: of the same restart, until every agent is welcomed again.

    ./run bench service [SECONDS [QUEUED [AGENTS]]]
"""

import json
import queue
import random
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks._agents import PROCS, node_name
from benchmarks.measure import header, machine, meanwhile
from cosched.client.client import Client
from cosched.client.transport import Transport
from cosched.identity.authority import create_authority, issue
from cosched.wire.api import Submission

RATE = 200  # submissions a second
ANSWER_S = 0.050  # of ninety-nine in a hundred
RECOVERY_S = 5.0
STORM_S = 10.0
RUNS_S = 10.0  # how long a job of the benchmark runs, on average
SUBMITTERS = 16
PATIENCE_S = 300.0


class Lab:
    """The files and processes of one measurement."""

    def __init__(self, path: Path, agents: int, runs_s: float = RUNS_S) -> None:
        """``runs_s``: how long jobs run, on average."""
        self.path = path
        self.socket = path / "scheduler.sock"
        self.count = agents
        self._runs_s = runs_s
        self._open = ExitStack()
        identity = path / "identity"
        create_authority(identity, "bench")
        issue(identity, "scheduler", "scheduler", identity)
        for number in range(agents):
            issue(identity, "node", node_name(number), path / node_name(number))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        names = ", ".join(node_name(number) for number in range(agents))
        self.config = path / "cluster.yaml"
        self.config.write_text(
            f"name: bench\nnodes: [{names}]\nidentity: {identity}\nstate: {path}/state\nallow_root: true\n"
            f"contract: {{cpu_ratio: 1, memory_ratio: 1, mpl: 1}}\n"
            f"listen: {{socket: {self.socket}, address: 127.0.0.1, port: {self.port}}}\n"
            "max_queued: 0\nmax_queued_per_user: 0\nmax_submissions_per_minute: 0\n"
        )
        self.welcomed: dict[str, float] = {}
        self.scheduler: subprocess.Popen[str]
        self.agents: subprocess.Popen[str]

    def start(self) -> float:
        """Start the scheduler; the seconds until it listens."""
        began_s = time.monotonic()
        command = [sys.executable, "-m", "cosched.apps.cli.main", "scheduler", "--config", str(self.config)]
        log = self._open.enter_context((self.path / "scheduler.log").open("a"))
        self.scheduler = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.scheduler.stdout is not None
        if self.scheduler.stdout.readline() != "ready\n":
            raise SystemExit(f"the scheduler does not start: {(self.path / 'scheduler.log').read_text()[-2000:]}")
        return time.monotonic() - began_s

    def start_agents(self) -> None:
        """Start all agents, and hear of each welcome from then on."""
        url = f"wss://127.0.0.1:{self.port}/v1/agent"
        command = [sys.executable, "-m", "benchmarks._agents", str(self.path), url, str(self.count), str(self._runs_s)]
        log = self._open.enter_context((self.path / "agents.log").open("a"))
        agents = self.agents = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        self._open.callback(agents.wait)
        self._open.callback(agents.kill)

        def listen() -> None:
            assert agents.stdout is not None
            for line in agents.stdout:
                said = json.loads(line)
                if "welcomed_s" not in said:
                    print(line, file=sys.stderr)
                self.welcomed[said["node"]] = said.get("welcomed_s", 0.0)

        threading.Thread(target=listen, daemon=True).start()

    def all_welcomed(self, since_s: float) -> float:
        """When the last agent was welcomed after a moment; waits for it."""
        until_s = time.monotonic() + PATIENCE_S
        while sum(at_s > since_s for at_s in list(self.welcomed.values())) < self.count:
            if time.monotonic() > until_s or self.agents.poll() is not None:
                raise SystemExit(f"not all agents come: {(self.path / 'agents.log').read_text()[-1000:]}")
            time.sleep(0.01)
        return max(self.welcomed.values())

    def killed(self) -> tuple[float, float]:
        """Kill the scheduler and start it again: seconds until it listens, and from the kill until all are welcomed."""
        killed_s = time.monotonic()
        self.scheduler.kill()
        self.scheduler.wait()
        return self.start(), self.all_welcomed(killed_s) - killed_s

    def client(self) -> Client:
        """A connection of its own."""
        return Client(Transport(str(self.socket)))

    def close(self) -> None:
        """End all processes."""
        if hasattr(self, "scheduler"):
            self.scheduler.kill()
            self.scheduler.wait()
        self._open.close()


@contextmanager
def standing(agents: int, runs_s: float = RUNS_S) -> Iterator[Lab]:
    """A scheduler that has welcomed so many agents, in a directory of its own, until the block is left."""
    with tempfile.TemporaryDirectory(prefix="cosched-bench-") as name:
        lab = Lab(Path(name), agents, runs_s)
        try:
            lab.start()
            lab.start_agents()
            lab.all_welcomed(0.0)
            yield lab
        finally:
            lab.close()


def wish(procs: int) -> Submission:
    """A job as users have them, for a machine of so many processors: of one of some dozens of shapes."""
    return Submission(
        script="#!/bin/sh\nexec mpirun ./solver input.dat\n" + "# what it does, and why\n" * 20,
        name="solver",
        tasks=min(procs, random.choice((1, 1, 2, 2, 4, 8, 16))),
        time_limit_s=random.choice((60, 300, 600, 900, 1800, 3600, 7200)),
        directory="/srv/solver",
        environment={"OMP_NUM_THREADS": "1", "DATA": "/srv/data"},
    )


def submitted(lab: Lab, seconds: float, rate: float | None) -> tuple[list[float], float]:
    """Each answer's seconds, and how many were answered a second: at a steady rate, or as fast as they are answered."""
    due: queue.Queue[float | None] = queue.Queue(0 if rate else SUBMITTERS)
    took: list[float] = []
    wrong: list[Exception] = []

    def one_after_the_other() -> None:
        with lab.client() as client:
            while (at_s := due.get()) is not None:
                try:
                    client.submit(wish(PROCS * lab.count))
                    took.append(time.monotonic() - at_s)
                except Exception as error:
                    wrong.append(error)

    threads = [threading.Thread(target=one_after_the_other) for _ in range(SUBMITTERS)]
    for thread in threads:
        thread.start()
    began_s = time.monotonic()
    number = 0
    while (now_s := time.monotonic()) < began_s + seconds:
        if rate is None:
            due.put(now_s)
            continue
        at_s = began_s + number / rate
        if at_s > now_s:
            time.sleep(at_s - now_s)
        due.put(at_s)
        number += 1
    for _ in threads:
        due.put(None)
    for thread in threads:
        thread.join()
    if wrong:
        raise SystemExit(f"{len(wrong)} submissions went wrong; the first: {wrong[0]}")
    return took, len(took) / (time.monotonic() - began_s)


@contextmanager
def asked(lab: Lab, path: str) -> Iterator[list[tuple[float, int]]]:
    """Ask for a page of the service ten times a second meanwhile: how many seconds each took, and its status."""
    answers: list[tuple[float, int]] = []
    transport = Transport(str(lab.socket))

    def ask() -> None:
        began_s = time.monotonic()
        status = transport.request("GET", path).status
        answers.append((time.monotonic() - began_s, status))

    with meanwhile(ask, 0.1):
        yield answers


def percentile(values: list[float], share: float) -> float:
    """The value below which that share of them lies."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def fill(lab: Lab, queued: int) -> None:
    """As many jobs as are to wait, beside those that run."""
    while (there := _queued(lab)) < queued:
        submitted(lab, min(5.0, (queued - there) / 1000), None)
    print(f"{_queued(lab)} jobs queued")


def _queued(lab: Lab) -> int:
    with lab.client() as client:
        return client.cluster().queued


def measure(lab: Lab, seconds: float, queued: int) -> bool:
    """All of it; whether every promise was kept."""
    print(f"{machine()}; {lab.count} agents of {PROCS} processors")
    fill(lab, queued)
    rows: list[tuple[str, str, bool | None]] = []
    with asked(lab, "/metrics") as scrapes:
        took, rate = submitted(lab, seconds, RATE)
    scraped_s = percentile([took_s for took_s, _ in scrapes], 0.99)
    p99_s = percentile(took, 0.99)
    rows.append(("submissions a second, asked for " + str(RATE), f"{rate:.1f}", rate >= 0.99 * RATE))
    rows.append(("  answered in ms: median", f"{1000 * percentile(took, 0.5):.1f}", None))
    rows.append((f"  99 % (promised {1000 * ANSWER_S:g})", f"{1000 * p99_s:.1f}", p99_s <= ANSWER_S))
    rows.append(("  slowest", f"{1000 * max(took):.1f}", None))
    rows.append(("scrapes of /metrics meanwhile, in ms: 99 %", f"{1000 * scraped_s:.1f}", None))
    _, most = submitted(lab, min(seconds, 10.0), None)
    rows.append(("submissions a second, as many as can be", f"{most:.0f}", None))
    waiting = _queued(lab)
    recovery_s, back_s = lab.killed()
    rows.append((f"recovery with {waiting} jobs queued, s (promised {RECOVERY_S:g})", f"{recovery_s:.2f}",
                 recovery_s <= RECOVERY_S))  # fmt: skip
    rows.append((f"all {lab.count} agents back after the kill, s (promised {STORM_S:g})", f"{back_s:.2f}",
                 back_s <= STORM_S))  # fmt: skip
    header("measured | | promise")
    for what, figure, kept in rows:
        print(f"| {what} | {figure} | {'' if kept is None else 'kept' if kept else 'BROKEN'} |")
    return all(kept is not False for *_, kept in rows)


def main(arguments: list[str]) -> int:
    """See above; 1 where a promise was broken."""
    seconds, queued, agents = [int(given) for given in arguments] + [30, 10_000, 100][len(arguments) :]
    with standing(agents) as lab:
        return 0 if measure(lab, seconds, queued) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
