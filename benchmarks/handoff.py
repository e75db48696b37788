"""What an owner whose processes wake each other waits for beside parallel work: with and without decoys.

On one processor, in groups as an installation has them: the owner's process wakes at a moment that was drawn, computes
for 50 µs and wakes a second one, which computes for 100 µs and answers (a *trip*, as from a key through a shell to its
echo). Beside them two computing processes of a job in the idle class, with a ceiling of half the processor. In turn:
nothing beside the owner, the contract alone, and with the guard's decoys. Late is what a trip took beyond its 150 µs,
from the moment that was drawn. Needs root and control groups.

    ./run bench handoff [TRIPS [ROUNDS]]
"""

import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.measure import machine, spread
from cosched.linux.cgroup_find import find
from cosched.linux.cgroups import Cgroups
from node_agent.guard.desk.decoys import Decoys

MOUNT = "/sys/fs/cgroup"
JOB = "job-1.1"
HOGS = 2
CEILING_CPUS = 0.5
FIRST_NS, SECOND_NS = 50_000, 100_000


@contextmanager
def groups() -> Iterator[tuple[Cgroups, str, list[Path]]]:
    """The parallel side under its contract with a job in it, the owner's group by its path, and where that is."""
    name = f"cosched-bench-{os.getpid()}"
    trees = [tree for tree in (Path(MOUNT, "cpu"), Path(MOUNT)) if (tree / "cgroup.procs").exists()][:1]
    desks = [tree / name / "desk" for tree in trees]
    cgroups = find("auto", MOUNT, f"{name}/cosched")
    try:
        for desk in desks:
            desk.mkdir(parents=True)
        if problems := cgroups.set_limits(CEILING_CPUS, True, 1 << 30):
            raise SystemExit("; ".join(problems))
        cgroups.create(JOB, None, 64)
        yield cgroups, f"{name}/desk", desks
    finally:
        cgroups.kill(JOB)
        while not cgroups.empty(JOB):
            time.sleep(0.01)
        cgroups.remove(JOB)
        for desk in desks:
            desk.rmdir()
        cgroups.close()


def forked(work: Callable[[], None]) -> int:
    """A child that does this and ends."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        finally:
            os._exit(0)
    return pid


def compute(for_ns: int) -> None:
    """Use the processor for so long by the clock."""
    until_ns = time.monotonic_ns() + for_ns
    while time.monotonic_ns() < until_ns:
        pass


def trips(desks: list[Path], cpu: int, count: int) -> list[float]:
    """How late each trip's answer was, in seconds."""
    told, tell = os.pipe()

    def owner() -> None:
        os.close(told)
        for desk in desks:
            (desk / "cgroup.procs").write_text("0")
        os.sched_setaffinity(0, {cpu})
        asked, ask = os.pipe()
        answered, answer = os.pipe()

        def second() -> None:
            os.close(ask)
            while os.read(asked, 1):
                compute(SECOND_NS)
                os.write(answer, b"x")

        forked(second)
        draw = random.Random(1)
        late = []
        due_ns = time.monotonic_ns() + 10_000_000
        for _ in range(count):
            due_ns = max(due_ns, time.monotonic_ns()) + draw.randrange(5_000_000, 15_000_000)
            time.sleep(max(0, due_ns - time.monotonic_ns()) / 1e9)
            compute(FIRST_NS)
            os.write(ask, b"x")
            os.read(answered, 1)
            late.append(time.monotonic_ns() - due_ns - FIRST_NS - SECOND_NS)
        os.close(ask)
        os.wait()
        os.write(tell, " ".join(map(str, late)).encode())

    pid = forked(owner)
    os.close(tell)
    with os.fdopen(told) as answers:
        found = [int(each) / 1e9 for each in answers.read().split()]
    os.waitpid(pid, 0)
    return found


def main() -> None:
    """Measure, and print a table."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 5
    if os.geteuid():
        raise SystemExit("needs root")
    cpu = max(os.sched_getaffinity(0))
    found: dict[str, list[list[float]]] = {"alone": [], "contract": [], "with decoys": []}
    with groups() as (cgroups, desk, desks):
        decoys = Decoys(cgroups, desk, allowed=True)
        for _ in range(rounds):
            found["alone"].append(trips(desks, cpu, count))
            hogs = [forked(lambda: _hog(cgroups, cpu)) for _ in range(HOGS)]
            found["contract"].append(trips(desks, cpu, count))
            everywhere = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {cpu})  # decoys for the processor that is measured
            decoys.keep(CEILING_CPUS)
            os.sched_setaffinity(0, everywhere)
            if decoys.problem:
                raise SystemExit(decoys.problem)
            try:
                found["with decoys"].append(trips(desks, cpu, count))
            finally:
                decoys.keep(None)
                cgroups.kill(JOB)
                for hog in hogs:
                    os.waitpid(hog, 0)
    print(f"{machine()}; {rounds} rounds of {count} trips, one of each in turn; ms late, medians of rounds\n")
    print("| beside the owner | half | 90 % | 99 % |\n|---|---|---|---|")
    for what, runs in found.items():
        cells = [spread([1000 * quantile(run, share) for run in runs]) for share in (0.5, 0.9, 0.99)]
        print(f"| {what} | {' | '.join(cells)} |")


def _hog(cgroups: Cgroups, cpu: int) -> None:
    cgroups.enter(JOB)
    os.sched_setaffinity(0, {cpu})
    while True:
        pass


def quantile(values: list[float], share: float) -> float:
    """The value below which that share of them lies."""
    return statistics.quantiles(values, n=1000, method="inclusive")[round(share * 1000) - 1]


if __name__ == "__main__":
    main()
