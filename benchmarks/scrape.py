"""What scraping costs the scheduling: CPU of the passes with ``/metrics`` read ten times a second, and without.

The scheduler's service runs in this process, with its journal on disk, real links to agents (``_agents``), all nodes
busy with jobs that do not end, and so many more queued; another process submits a job and cancels it, ten times a
second, so that there are passes and they are alike. A third reads the metrics over the service's socket. Windows with
it and without alternate, in an order drawn for each pair; told is the mean CPU of a pass (of the core's thread) in
each, and how it differs within pairs, with a 95 % interval by Student's t.

    ./run bench scrape [--queued 10000] [--agents 64] [--pairs 100] [--window 1.5]
"""

import argparse
import asyncio
import math
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

from benchmarks.measure import machine, spread
from benchmarks.service import Lab, fill
from cosched.config.cluster import load_cluster
from cosched.metrics.intervals import Interval, of_replications
from space_scheduler.service.app import serve
from space_scheduler.service.core import worker as fx
from space_scheduler.service.core.journalled import JournalledCore

PROMISED: Final = 0.05
_RUNS_S: Final = 100_000.0
_READS: Final = """
import http.client, socket, sys, time
class Local(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(sys.argv[1])
connection = Local("scheduler")
while True:
    began_s = time.monotonic()
    connection.request("GET", "/metrics")
    answer = connection.getresponse()
    assert answer.status == 200 and answer.read().endswith(b"\\n")
    time.sleep(max(0.0, 0.1 - (time.monotonic() - began_s)))
"""
_WORKS: Final = """
import sys, time
from benchmarks.service import wish
from cosched.client.client import Client
from cosched.client.transport import Transport
with Client(Transport(sys.argv[1])) as client:
    while True:
        began_s = time.monotonic()
        client.cancel(client.submit(wish(2)).job_id)
        time.sleep(max(0.0, 0.1 - (time.monotonic() - began_s)))
"""


class Passes:
    """The CPU of each pass since the last look, in seconds."""

    def __init__(self) -> None:
        self._cpu_s: list[float] = []
        self._carry_out = JournalledCore.carry_out

    def carry_out(self, core: JournalledCore, effect: Any, *how: Any) -> Any:
        """Stands for ``JournalledCore.carry_out`` in the core's thread."""
        began_s = time.thread_time()
        outcome = self._carry_out(core, effect, *how)
        if isinstance(effect, fx.Decide) and outcome is True:
            self._cpu_s.append(time.thread_time() - began_s)
        return outcome

    def within(self, seconds: float) -> list[float]:
        """Those of the next seconds."""
        self._cpu_s = []
        time.sleep(seconds)
        return self._cpu_s


@contextmanager
def served(lab: Lab) -> Iterator[None]:
    """The service in a thread of this process, while the block lasts."""
    loop, stop, up = asyncio.new_event_loop(), asyncio.Event(), threading.Event()
    config = load_cluster(lab.config)
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve(config, stop, up.set)), daemon=True)
    thread.start()
    if not up.wait(60):
        raise SystemExit("the service does not start")
    try:
        yield
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)


@contextmanager
def beside(program: str, lab: Lab) -> Iterator[subprocess.Popen[bytes]]:
    """A process beside the service, which is told its socket."""
    process = subprocess.Popen([sys.executable, "-c", program, str(lab.socket)])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def measured(lab: Lab, passes: Passes, pairs: int, window_s: float) -> tuple[list[float], list[float], Interval]:
    """Mean CPU of a pass in milliseconds without scrapes and with them, of each pair; how it differs (0.01 is 1 %)."""
    rng, found = random.Random(1), {False: list[float](), True: list[float]()}
    with beside(_WORKS, lab) as works, beside(_READS, lab) as reader:
        for pair in range(pairs + 1):
            for scraped in rng.sample((False, True), 2):
                reader.send_signal(signal.SIGCONT if scraped else signal.SIGSTOP)
                if works.poll() is not None or reader.poll() is not None:
                    raise SystemExit("what submits, or what reads the metrics, has failed")
                cpu_s = passes.within(window_s)
                if len(cpu_s) < 5:
                    raise SystemExit(f"{len(cpu_s)} passes in {window_s:g} s: too few to compare")
                if pair:  # the first warms up
                    found[scraped].append(1000 * sum(cpu_s) / len(cpu_s))
    differ = [math.log(b / a) for a, b in zip(found[False], found[True], strict=True)]
    each = of_replications(differ)
    return found[False], found[True], Interval(math.expm1(each.mean), math.expm1(each.low), math.expm1(each.high))


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="./run bench scrape", description=__doc__.split("\n\n")[0])
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--pairs", type=int, default=100)
    parser.add_argument("--window", type=float, default=1.5, help="seconds of each window")
    options = parser.parse_args()
    passes = Passes()
    with (
        tempfile.TemporaryDirectory() as name,
        patch.object(JournalledCore, "carry_out", lambda core, *how: passes.carry_out(core, *how)),  # noqa: PLW0108
        (Path(name) / "log").open("w") as log,
        redirect_stderr(log),
    ):
        lab = Lab(Path(name), options.agents, _RUNS_S)
        try:
            with served(lab):
                lab.start_agents()
                lab.all_welcomed(0.0)
                fill(lab, options.queued)
                without, scraped, differs = measured(lab, passes, options.pairs, options.window)
        finally:
            lab.close()
    print(f"{machine()}; {options.agents} agents, {options.queued} jobs queued")
    print("| /metrics | CPU of a pass, ms: median of windows [lowest … highest] |\n|---|---|")
    print(f"| not read | {spread(without)} |\n| read 10 times a second | {spread(scraped)} |")
    told = f"{differs.mean:+.1%} [{differs.low:+.1%} … {differs.high:+.1%}]"
    print(f"difference within {len(without)} pairs: {told}, promised: less than {PROMISED:.0%}")
    if differs.low > PROMISED:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
