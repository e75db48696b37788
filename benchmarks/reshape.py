"""What it costs to shrink and expand a malleable job: the point at which all rows move, and the CPU of vacated ranks.

For each number of ranks, half of them on each of two nodes (sockets of this machine, with an agent's channel each), the
job goes to its first half and back in turn. *Point* is the leader's time in the point that moves: waking, moving, the
new communicator, and everybody's word that it is done; *told* is from the moment the agents have the map to the moment
they are told that it is adopted. The data are MB for each rank of all, as in Kalé et al. 2002, Tables 1 to 4. Then a
point at which nothing is new, the throughput of the heat program before, while and after half of its ranks sleep
(Fig. 5), and the sleepers' CPU (Fig. 3).

    ./run bench reshape [--rounds N] [--mb MB ...] [--ranks N ...] [--out FILE]

FILE is for ``cosched replicate adaptive --reshaped FILE``.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from benchmarks.measure import header, machine, spread
from cosched import adaptive
from node_agent.service.complaints import Complaints
from node_agent.service.job_channel import JobChannel
from node_agent.service.job_lookup import JobLookup

KEY = (1, 1)
NODES = ("n0", "n1")
ROW_BYTES = 64 << 10
BOUND_S = 60.0
POINTS = 2000
ON_ITS_NODE = 'node=n$((OMPI_COMM_WORLD_RANK / HALF)); COSCHED_JOB_SOCKET=$SOCKETS/$node exec "$@"'
#: As the environment of a job on a cluster would have it: ranks yield while they wait, and talk by TCP.
LAUNCH = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "tcp,self",
    "OPENBLAS_NUM_THREADS": "1",
}
Moves = dict[tuple[bool, str], list[float]]


class OneJob(JobLookup):
    """A lookup to which every process is part of one job."""

    def __init__(self) -> None:
        pass  # it asks nothing

    def by_cgroup(self, pid: int) -> tuple[int, int] | None:
        """The job."""
        return KEY

    async def attempt_of(self, pid: int) -> tuple[int, int] | None:
        """The job."""
        return KEY


class Run:
    """A program under mpirun, whose process is ``pid``, with the channels of its nodes."""

    def __init__(
        self, channels: list[JobChannel], adopted: asyncio.Queue[int], lines: asyncio.StreamReader, pid: int
    ) -> None:
        self._channels, self._adopted, self._lines, self.pid = channels, adopted, lines, pid
        self._number = 0

    async def resize(self, first: int, second: int) -> float:
        """Enable so many ranks on each node; seconds until that was adopted."""
        self._number += 1
        began_s = time.perf_counter()
        for channel in self._channels:
            channel.offer(KEY, self._number, {NODES[0]: first, NODES[1]: second})
        async with asyncio.timeout(BOUND_S):
            while await self._adopted.get() != self._number:
                pass
        return time.perf_counter() - began_s

    async def word(self) -> dict[str, float]:
        """The program's next line."""
        async with asyncio.timeout(BOUND_S):
            word: dict[str, float] = json.loads(await self._lines.readline())
            return word


@asynccontextmanager
async def program(ranks: int, *words: str, module: str = "benchmarks.reshape") -> AsyncIterator[Run]:
    """A file's program (this one's) on so many ranks, half of them on each node; ended with the context."""
    adopted: asyncio.Queue[int] = asyncio.Queue()
    with tempfile.TemporaryDirectory() as directory:
        channels = [
            JobChannel(
                name,
                OneJob(),
                lambda _: os.getuid(),
                Complaints(),
                lambda _, number: adopted.put_nowait(number),
                lambda _, more: None,
            )
            for name in NODES
        ]
        entrances = [channel.listen(f"{directory}/{name}") for channel, name in zip(channels, NODES, strict=True)]
        environment = os.environ | LAUNCH | {"SOCKETS": directory, "HALF": str(-(-ranks // 2))}
        own = [sys.executable, "-m", module, "--as", *words]
        process = await asyncio.create_subprocess_exec(
            Path(sys.executable).with_name("mpirun"), "-n", str(ranks), "sh", "-c", ON_ITS_NODE, "sh", *own,
            env=environment, stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert process.stdout is not None
        try:
            yield Run(channels, adopted, process.stdout, process.pid)
        finally:
            process.terminate()
            await process.wait()
            for channel, entrance in zip(channels, entrances, strict=True):
                channel.forget(KEY)
                entrance.close()


async def moves(ranks: int, megabytes: int, rounds: int) -> Moves:
    """Seconds by whether the job shrinks, and *point* or *told*; the first round warms up and is dropped."""
    found: Moves = {(shrinks, what): [] for shrinks in (True, False) for what in ("point", "told")}
    async with program(ranks, "move", str(megabytes)) as run:
        for round_ in range(rounds + 1):
            for shrinks in (True, False):
                told_s = await run.resize(ranks // 2, 0 if shrinks else ranks // 2)
                point_s = (await run.word())["point_s"]
                if round_:
                    found[shrinks, "told"].append(told_s)
                    found[shrinks, "point"].append(point_s)
    return found


def move(megabytes: int) -> None:
    """On a rank: steps that do nothing but sleep a little, and say how long a point took that changed the map."""
    with adaptive.job(balance=False) as job:
        u = job.array((len(job.ranks) * (megabytes << 20) // ROW_BYTES, ROW_BYTES // 8))
        u.local[:] = job.rank
        step, number = 0, 0
        while True:
            began_s = time.perf_counter()
            step = job.point(u, step=step)
            if job.leads and job.number != number:
                say({"point_s": time.perf_counter() - began_s})
            number = job.number
            time.sleep(0.005)
            step += 1


def still() -> None:
    """On a rank: how long a point takes, on average of many, at which nothing is new."""
    with adaptive.job(balance=False) as job:
        u = job.array(1000)
        step = 0
        while True:
            step = job.point(u, step=step)
            began_s = time.perf_counter()
            for _ in range(POINTS):
                step = job.point(u, step=step)
            if job.leads:
                say({"point_s": (time.perf_counter() - began_s) / POINTS})


def heat() -> None:
    """On a rank: the heat program, whose leader says each half second how fast it goes."""
    from cosched.programs.heat import neighbours, relax  # noqa: PLC0415 (with numpy, in ranks alone)

    with adaptive.job(balance=False) as job:
        u, fresh = job.array((1024, 1024)), job.array((1024, 1024), scratch=True)
        began_s, began = time.monotonic(), 0
        for step in job.range(10**9, u):
            if job.leads and time.monotonic() - began_s >= 0.5:
                say({"steps_per_s": (step - began) / (time.monotonic() - began_s), "number": job.number})
                began_s, began = time.monotonic(), step
            above, below = neighbours(job.comm, u.local)
            relax(u.local, above, below, fresh.local)
            u.swap(fresh)


async def points(ranks: int) -> tuple[list[float], list[float]]:
    """Seconds of a point at which nothing is new: with one rank enabled, and with all."""
    async with program(ranks, "still") as run:
        found = []
        for first, second in ((1, 0), (ranks // 2, ranks // 2)):
            await run.resize(first, second)
            await run.word()  # of before, in part
            found.append([(await run.word())["point_s"] for _ in range(10)])
    return found[0], found[1]


async def throughput(ranks: int) -> tuple[list[list[float]], list[float]]:
    """Steps a second with all, half and all ranks, and the CPU that each sleeper used, as shares of one."""
    found = []
    used: list[float] = []
    async with program(ranks, "heat") as run:
        for number, second in enumerate((ranks // 2, 0, ranks // 2), 1):
            await run.resize(ranks // 2, second)
            while (word := await run.word())["number"] != number:
                pass
            rates = []
            before, began_s = sleepers_cpu_s(ranks), time.monotonic()
            for _ in range(6):
                word = await run.word()
                rates.append(word["steps_per_s"])
            if not second:
                after = sleepers_cpu_s(ranks)
                used = [(now - was) / (time.monotonic() - began_s) for was, now in zip(before, after, strict=True)]
            found.append(rates)
    return found, used


def sleepers_cpu_s(ranks: int) -> list[float]:
    """CPU seconds so far of the ranks of the second node."""
    found = []
    for each in Path("/proc").glob("[0-9]*"):
        try:
            environment = (each / "environ").read_bytes()
            words = (each / "cmdline").read_bytes()
            rank = next(
                int(word.partition(b"=")[2])
                for word in environment.split(b"\0")
                if word.startswith(b"OMPI_COMM_WORLD_RANK=")
            )
            ticks = (each / "stat").read_text().rpartition(")")[2].split()[11:13]
        except (OSError, StopIteration):
            continue
        if b"benchmarks.reshape" in words and rank >= ranks // 2:
            found.append((rank, sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")))
    return [cpu_s for _, cpu_s in sorted(found)]


def say(word: dict[str, float]) -> None:
    """A line for who measures."""
    sys.stdout.write(json.dumps(word) + "\n")
    sys.stdout.flush()


async def measure(options: argparse.Namespace) -> None:
    """Measure everything, and print tables."""
    import msgspec  # noqa: PLC0415 (ranks do without these)

    from cosched.apps.replicate.adaptive.reshaped import Moved, Reshaped, Speed  # noqa: PLC0415

    print(f"{machine()}; ranks talk by TCP over loopback; {options.rounds} rounds each; ms, median [lowest … highest]")
    print(f"{os.cpu_count()} cores: more ranks than that share them\n")
    header("ranks | MB a rank | shrink, point | shrink, told | expand, point | expand, told")
    kept = Reshaped(time.strftime("%Y-%m-%d"), machine(), os.cpu_count() or 1, [], [])
    for megabytes in options.mb:
        for ranks in options.ranks:
            found = await moves(ranks, megabytes, options.rounds)
            shrink_ms, expand_ms = (1000 * statistics.median(found[shrinks, "point"]) for shrinks in (True, False))
            kept.moves.append(Moved(ranks, megabytes, shrink_ms, expand_ms))
            cells = [
                spread([1000 * each for each in found[shrinks, what]])
                for shrinks in (True, False)
                for what in ("point", "told")
            ]
            print(f"| {ranks} to {ranks // 2} | {megabytes} | {' | '.join(cells)} |", flush=True)
    print("\n| ranks | a point without news, one enabled, µs | all enabled, µs |\n|---|---|---|")
    for ranks in options.ranks:
        print(
            f"| {ranks} | {' | '.join(spread([1e6 * s for s in each]) for each in await points(ranks))} |", flush=True
        )
    print("\n| heat, ranks | steps a second, all | half | all again | CPU of a sleeper, % |\n|---|---|---|---|---|")
    for ranks in options.ranks:
        rates, used = await throughput(ranks)
        before, half, after = map(statistics.median, rates)
        kept.speeds.append(Speed(ranks, before, half, after, max(used)))
        cells = [f"{statistics.median(each):.0f}" for each in rates]
        print(f"| {ranks} | {' | '.join(cells)} | {max(100 * each for each in used):.2f} at most |", flush=True)
    if options.out:
        options.out.write_bytes(msgspec.json.format(msgspec.json.encode(kept), indent=2) + b"\n")


def main() -> None:
    """Measure, or be a rank of what is measured."""
    parser = argparse.ArgumentParser(prog="./run bench reshape", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--mb", type=int, nargs="+", default=[1, 10])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4, 8])
    parser.add_argument("--out", type=Path, metavar="FILE")
    parser.add_argument("--as", dest="rank", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.rank is None:
        asyncio.run(measure(options))
        return
    import mpi4py  # noqa: PLC0415 (in ranks alone)

    mpi4py.rc.threads = False
    if options.rank[0] == "move":
        move(int(options.rank[1]))
    elif options.rank[0] == "still":
        still()
    else:
        heat()


if __name__ == "__main__":
    main()
