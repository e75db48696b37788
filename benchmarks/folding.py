"""What a fold costs: ranks of fixed grains of work on fewer CPUs than ranks, by affinity, with no quota.

Utrera et al. 2005 let n processes on c CPUs go at 1 / ⌈n/c⌉ of their speed. Here 2 ranks on 2 CPUs are the measure (1);
2 on 1 and 4 on 2 are expected to take twice as long, 4 on 1 and 8 on 2 four times, for each way to wait for messages:
``block`` (a TCP socket in which the kernel lets a rank sleep, as PVM's receivers do), ``yield`` (Open MPI that yields
while it waits), and ``poll`` (Open MPI that does not). The lever is a guard's without a controller cpuset, the affinity
of every thread; with ``cpuset`` it is a guard's on control groups of version 2, the CPUs of the job's group (needs
root). After each fold the ranks get their CPUs back, and their rate against that before is given (*recovery*).

One round has every case once, in turn, and the first round warms up. Needs two CPUs to itself and Open MPI.

    ./run bench folding [ROUNDS [SECONDS [cpuset]]]
"""

import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from benchmarks.measure import machine, spread
from cosched.apps.experiments.run_log import MACHINE, provenance, worded
from cosched.linux.cgroup_v2 import CgroupsV2
from cosched.linux.cgroups import group_name
from cosched.linux.cpusets import keep_to

#: (ranks, CPUs) -> how many times longer than with a CPU each.
CASES = {(2, 2): 1, (2, 1): 2, (4, 2): 2, (4, 1): 4, (8, 2): 4}
GRAIN_MS = 5
_SETTLE_S = 0.5
_START_S = 600.0
_MOUNT = "/sys/fs/cgroup"
_SIDE = f"cosched-folding-{os.getpid()}"
_JOB = group_name(1, 1)
_PROCS = f"{_MOUNT}/{_SIDE}/{_JOB}/cgroup.procs"
_PULSE = [sys.executable, "-P", "-m", "cosched.programs.pulse", "--grain-ms", str(GRAIN_MS)]
_MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none"]
#: How ranks wait -> their command, and what its environment has besides.
RECEIVERS: Mapping[str, tuple[list[str], dict[str, str]]] = {
    "block": ([*_PULSE, "--receive", "block"], {"OMPI_MCA_mpi_yield_when_idle": "1"}),
    "yield": (_PULSE, {"OMPI_MCA_mpi_yield_when_idle": "1"}),
    "poll": (_PULSE, {"OMPI_MCA_mpi_yield_when_idle": "0"}),
}


class Ranks:
    """Ranks that run until they are ended, and how far they are by their own count.

    With ``groups`` they are the job :data:`_JOB` there.
    """

    def __init__(
        self, ranks: int, command: list[str], environment: Mapping[str, str], output: Path, groups: CgroupsV2 | None
    ) -> None:
        self._output = output
        self._groups = groups
        root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
        entered = [] if groups is None else ["sh", "-c", 'echo 0 >"$0"; exec "$@"', _PROCS]
        with output.open("w") as stream:
            self._process = subprocess.Popen(
                [*entered, *_MPIRUN, *root, "-n", str(ranks), *command],
                stdout=stream,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        self._ranks = ranks

    def on(self, cpus: set[int]) -> None:
        """Have all of their threads, those to come too, run there alone."""
        if self._groups is None:
            keep_to(below(self._process.pid), cpus, strays_only=False)
        elif not self._groups.confine(_JOB, cpus):
            raise SystemExit("no controller cpuset here")

    def rate(self, seconds: float) -> float:
        """Seconds of computing that each rank does in a second, seen for so long."""
        first = self._told()
        time.sleep(seconds)
        last = self._told()
        if last["done"] < first["done"]:
            raise SystemExit("work was lost: ranks are less far than they were")
        return (last["done"] - first["done"]) / max(1e-9, last["time_s"] - first["time_s"])

    def begun(self) -> None:
        """Wait until they compute."""
        give_up_s = time.monotonic() + _START_S
        while not self._lines():
            if self._process.poll() is not None or time.monotonic() > give_up_s:
                raise SystemExit(f"{self._ranks} ranks have not begun")
            time.sleep(0.05)

    def end(self) -> None:
        """End them."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(30)

    def _told(self) -> dict[str, float]:
        found: dict[str, float] = json.loads(self._lines()[-1])
        return found

    def _lines(self) -> list[str]:
        whole, _, _ = self._output.read_text().rpartition("\n")
        return [line for line in whole.splitlines() if line.startswith("{")]


def below(pid: int) -> list[int]:
    """A process and all its descendants."""
    found = [pid]
    with contextlib.suppress(FileNotFoundError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += below(int(child))
    return found


@contextlib.contextmanager
def job_group(*, cpuset: bool) -> Iterator[CgroupsV2 | None]:
    """The parallel side of a guard's, with a group for :data:`_JOB`; None without ``cpuset``. Raises NoCgroups."""
    if not cpuset:
        yield None
        return
    groups = CgroupsV2(_MOUNT, _SIDE)
    try:
        groups.create(_JOB, None, 1000)
        yield groups
    finally:
        groups.kill(_JOB)
        while not groups.empty(_JOB):
            time.sleep(0.05)
        groups.remove(_JOB)
        groups.close()


def rates(
    receiver: str, seconds: float, directory: Path, groups: CgroupsV2 | None
) -> Iterator[tuple[tuple[int, int], float, float]]:
    """Each case: its rate, and the rate after the fold against that before (1 where there was none)."""
    command, environment = RECEIVERS[receiver]
    both = set(sorted(os.sched_getaffinity(0))[:2])
    for ranks in sorted({ranks for ranks, _ in CASES}):
        running = Ranks(ranks, command, environment, directory / f"{receiver}-{ranks}", groups)
        try:
            running.begun()
            before = 0.0
            for cpus in (2, 1):
                if (ranks, cpus) not in CASES:
                    continue
                running.on(set(sorted(both)[:cpus]))
                time.sleep(_SETTLE_S)
                rate = running.rate(seconds)
                recovery = 1.0
                if cpus == 2:
                    before = rate
                else:
                    running.on(both)
                    time.sleep(_SETTLE_S)
                    recovery = running.rate(seconds) / before
                yield (ranks, cpus), rate, recovery
        finally:
            running.end()


def main() -> None:
    """Measure, and print a table of medians with the lowest and highest."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 3.0
    cpuset = sys.argv[3:] == ["cpuset"]
    if shutil.which("mpirun") is None or len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("needs mpirun and two CPUs")
    slower: dict[tuple[str, tuple[int, int]], list[float]] = {}
    recovered: dict[tuple[str, tuple[int, int]], list[float]] = {}
    with tempfile.TemporaryDirectory() as name, job_group(cpuset=cpuset) as groups:
        for round_ in range(rounds + 1):
            for receiver in RECEIVERS:
                made = rates(receiver, seconds, Path(name), groups)
                found = {case: (rate, recovery) for case, rate, recovery in made}
                for case, (rate, recovery) in found.items():
                    if round_:
                        slower.setdefault((receiver, case), []).append(found[2, 2][0] / rate)
                        recovered.setdefault((receiver, case), []).append(recovery)
            print(f"round {round_} of {rounds}" + ("" if round_ else " (warms up)"), file=sys.stderr)
    print(worded({MACHINE: machine(), **provenance()}))
    lever = "cpuset" if groups else "affinity"
    print(f"{rounds} rounds, {seconds:g} s for each case, grains of {GRAIN_MS} ms, by {lever}\n")
    print("| ranks | CPUs | receive | times slower | ⌈n/c⌉ | beyond | recovery |\n|---|---|---|---|---|---|---|")
    for (receiver, (ranks, cpus)), values in sorted(slower.items(), key=lambda each: (each[0][1], each[0][0])):
        fold = CASES[ranks, cpus]
        beyond = 1 - fold / statistics.median(values)
        back = spread(recovered[receiver, (ranks, cpus)]) if cpus == 1 else ""
        print(f"| {ranks} | {cpus} | {receiver} | {spread(values)} | {fold} | {beyond:+.1%} | {back} |")


if __name__ == "__main__":
    main()
