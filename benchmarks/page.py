"""What an open page costs a scheduling pass: CPU of the core's thread and duration, with pages and without, in turn.

A real scheduler with so many agents (``_agents``) and so many jobs that wait. One job holds all processors but two, and
those that wait need four: each pass looks at the whole queue and starts nobody, so all passes are alike. One of them
is held and released again as fast as that is answered, which makes the passes. Slices of some seconds come in pairs,
one with four tabs of one user open and read, one without, the first of a pair changing from pair to pair. Of each
slice: CPU time of the core's thread for each pass (the kernel's count), and the mean duration of a pass (the service's
own histogram). Told is the median of the pairs' ratios, with the interval that holds the median of all such pairs in 95
of 100 measurements (by ranks).

    ./run bench page [--pairs 40] [--seconds 3] [--queued 10000] [--agents 128]
"""

import argparse
import re
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks._agents import PROCS
from benchmarks.measure import machine, meanwhile
from benchmarks.service import Lab, standing
from cosched.apps.experiments.matrix import spread
from cosched.client.transport import Transport
from cosched.wire.api import Submission

TABS = 4
FREE = 2  # processors, fewer than any job that waits needs


class Slice(NamedTuple):
    """One slice: passes, CPU seconds of the core's thread for each, seconds that each took, bytes that the tabs got."""

    passes: float
    cpu_s: float
    took_s: float
    received: int


class Tabs:
    """Open pages that read what they are sent."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.received = 0
        self._wanted = True

    @contextmanager
    def open(self, visit: str, cookie: str) -> Iterator[None]:
        """So many tabs, for as long as the block lasts."""
        threads = [threading.Thread(target=self._read, args=(visit, cookie)) for _ in range(TABS)]
        self._wanted = True
        for each in threads:
            each.start()
        try:
            yield
        finally:
            self._wanted = False
            for each in threads:
                each.join()

    def _read(self, visit: str, cookie: str) -> None:
        with self._transport.opened(f"{visit}events", {"Cookie": cookie}) as answer:
            if answer.status != 200:
                raise SystemExit(f"a page is refused: {answer.read()!r}")
            while self._wanted and (piece := answer.read1(1 << 16)):
                self.received += len(piece)


def entered(transport: Transport) -> tuple[str, str]:
    """A visit's address and its cookie."""
    link = re.search(rb'"(/page/enter/[^"]+)"', transport.request("POST", "/v1/page", b"").body)
    assert link
    answer = transport.request("GET", link[1].decode())
    visit = re.search(rb'href="\.\./(s/\w+/)"', answer.body)
    assert visit
    return f"/page/{visit[1].decode()}", answer.headers["Set-Cookie"].partition(";")[0]


class Core:
    """The scheduler's thread in which the core runs, seen from outside."""

    def __init__(self, pid: int, transport: Transport) -> None:
        self._tasks = Path(f"/proc/{pid}/task")
        self._transport = transport
        before = {each.name: self._ran_s(each) for each in self._tasks.iterdir() if each.name != str(pid)}
        time.sleep(3.0)
        used = {name: self._ran_s(self._tasks / name) - ran_s for name, ran_s in before.items()}
        self._thread = self._tasks / max(used, key=lambda name: used[name])

    @staticmethod
    def _ran_s(task: Path) -> float:
        return int((task / "schedstat").read_text().split()[0]) / 1e9

    def look(self) -> tuple[float, float, float]:
        """Passes until now, seconds that they took, CPU seconds of the thread."""
        text = self._transport.request("GET", "/metrics").body.decode()
        count, took = (
            float(re.findall(rf"^cosched_pass_duration_seconds_{name} (\S+)", text, re.MULTILINE)[0])
            for name in ("count", "sum")
        )
        return count, took, self._ran_s(self._thread)


def one_slice(core: Core, tabs: Tabs, visit: tuple[str, str] | None, seconds: float) -> Slice:
    """Measure for so many seconds, with pages open where there is a visit."""
    with ExitStack() as stack:
        if visit is not None:
            stack.enter_context(tabs.open(*visit))
            time.sleep(1.0)  # the first frame, which has everything
        received, (passes, took_s, cpu_s) = tabs.received, core.look()
        time.sleep(seconds)
        more, took_more_s, cpu_more_s = core.look()
        ran = more - passes
        if not ran:
            raise SystemExit("no pass in a slice: nothing to measure")
        return Slice(ran, (cpu_more_s - cpu_s) / ran, (took_more_s - took_s) / ran, tabs.received - received)


def submit(lab: Lab, tasks: Sequence[int]) -> None:
    """Submit a job for each of these numbers of tasks."""
    clients = threading.local()

    def one(number: int) -> None:
        if not hasattr(clients, "own"):
            clients.own = lab.client()
        clients.own.submit(Submission(script="#!/bin/sh\n", directory="/tmp", tasks=number, time_limit_s=3600.0))

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(one, tasks))


@contextmanager
def passes(lab: Lab, job_id: int) -> Iterator[None]:
    """Have passes run meanwhile: a job that waits is held and released again and again."""
    with lab.client() as client, meanwhile(lambda: (client.hold(job_id), client.release(job_id))):
        yield


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--pairs", type=int, default=40)
    options.add_argument("--seconds", type=float, default=3.0, help="of a slice (3)")
    options.add_argument("--queued", type=int, default=10_000)
    options.add_argument("--agents", type=int, default=128)
    asked = options.parse_args()
    with standing(asked.agents, runs_s=1e6) as lab:
        measured(lab, asked)


def measured(lab: Lab, asked: argparse.Namespace) -> None:
    """All pairs of one scheduler."""
    transport = Transport(str(lab.socket))
    submit(lab, [PROCS * asked.agents - FREE])
    submit(lab, [FREE + 2] * asked.queued)
    pairs = []
    with passes(lab, min(asked.queued, 1000)):  # among those that the page is sent
        core, tabs = Core(lab.scheduler.pid, transport), Tabs(transport)
        for number in range(asked.pairs):
            visit = entered(transport)
            order = (visit, None) if number % 2 else (None, visit)
            found = {each is not None: one_slice(core, tabs, each, asked.seconds) for each in order}
            pairs.append(found)
            share = found[True].cpu_s / found[False].cpu_s
            print(f"pair {number + 1}: {share:.3f} of the CPU, {found[True].passes:.0f} passes", flush=True)
    print(f"{machine()}; {asked.agents} agents, {asked.queued} jobs wait; {TABS} tabs")
    for name, what in (("cpu_s", "CPU of a pass"), ("took_s", "duration of a pass")):
        without = statistics.median(getattr(each[False], name) for each in pairs)
        ratios = [getattr(each[True], name) / getattr(each[False], name) for each in pairs]
        print(f"{what}: {1000 * without:.2f} ms without, with pages {spread(ratios).worded()} of it")
    rate = statistics.median(each[True].received for each in pairs) / asked.seconds / TABS
    print(f"a tab is sent {rate / 1000:.0f} kB/s")


if __name__ == "__main__":
    main()
