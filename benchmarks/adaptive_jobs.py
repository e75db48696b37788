"""What 2, 4 and 8 adaptive jobs cost beside each other, against rigid ones (Kalé et al. 2002, Table 5 and Fig. 4).

The paper's n adaptive jobs have all processors of their cluster together, an equal part enabled each, and a process on
every processor: on each of them the other jobs' vacated processes sleep. They are compared with n rigid jobs of such a
part by the time that all of them take. So here: p *processors*, half of them on each of two cores; n heat programs of p
ranks each, of which p/n are enabled, on one of the cores, and the others sleep; or n plain MPI programs of p/n ranks at
the same places. Ranks are kept to their core.

All jobs of both kinds are there all the time, and stopped (SIGSTOP) but for one kind's *turn*. When it has gone on for
a moment, each job has so many steps to do, and is stopped again when it has done them; a turn takes until the last has.
Turns of both kinds are a pair; who is first changes from pair to pair. The first pair warms up. Processes may be some
per cent faster or slower for as long as they live, so all jobs are started anew several times.

Adaptive jobs are so in one of three ways: *asleep* is the paper's; *enabled* ones have no other ranks than those that
compute, so what they cost is their points; *resized* ones are moved to the other core and back in each turn, at a third
and at two thirds of their steps.

*Longer* is the adaptive turn's time against the rigid one's of the same pair, less one (the paper's cost). Others' work
on the machine makes that uncertain, and changes two parts of it less: *more CPU* is the same of the CPU time of all
ranks but the sleepers; *sleepers* is what all sleeping ranks use of the two cores. Medians have the interval that holds
them with 95 % (order statistics).

Then Fig. 4: a job has both cores, gives one to a newcomer, and gets it back.

    ./run bench adaptive_jobs [--pairs N] [--starts N] [--steps N] [--jobs N ...] [--ways WAY ...]
"""

import argparse
import asyncio
import contextlib
import os
import signal
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

from benchmarks._heat_ranks import RANKS, SIZE, cores, cpu_s, is_kept_to, rank_of
from benchmarks.folding import below
from benchmarks.measure import machine
from benchmarks.reshape import Run, program
from cosched.apps.experiments.matrix import spread

#: (jobs, processors): two jobs also with a core for each processor.
CASES: Final = ((2, 2), (2, 8), (4, 8), (8, 8))
WAYS: Final = ("enabled", "asleep", "resized")
#: Jobs -> what the paper has lost, per cent (Table 5).
PAPER: Final = {2: 1.98, 4: 1.43, 8: 3.24}
#: Until sleepers look for messages as seldom as they ever do (docs/design/adaptive.md).
_ASLEEP_S: Final = 13.0
_FOR_EVER: Final = 10**9
#: At the beginning of a turn: ranks that were stopped all wake up.
_SETTLE_S: Final = 0.5
_LOOK_S: Final = 0.1
_PHASE_S: Final = 4.0
_RANKS: Final = 4
#: Less of a core is not using it.
_SOME: Final = 0.05


class Member:
    """A job that runs in turns, with ``width`` ranks enabled, on a core; an adaptive one has all ``processors``."""

    def __init__(self, run: Run, core: int, width: int, processors: int) -> None:
        self._run, self._core, self._width = run, core, width
        first = core * processors // 2
        self._enabled = range(first, first + width)
        self._ranks: list[int] = []
        self._sleepers: list[int] = []
        self._step = 0

    async def begin(self, way: str) -> None:
        """Wait until it computes, with the ranks enabled that are to be."""
        await self._until(1)
        self._ranks = below(self._run.pid)[1:]
        if way in ("asleep", "resized"):
            await self._run.resize(*self._shares(self._core))
        if way == "asleep":
            self._sleepers = [pid for pid in self._ranks if rank_of(pid) not in self._enabled]

    async def goes_on(self, seconds: float) -> None:
        """It may run, and has done so for a while."""
        self.signal(signal.SIGCONT)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._until(_FOR_EVER)

    async def does(self, steps: int, *, moves: bool) -> None:
        """So many steps, if it ``moves`` to the other core and back in between; then it is stopped."""
        began = self._step
        for part, core in enumerate([1 - self._core, self._core] if moves else [], 1):
            await self._until(began + part * steps // 3)
            await self._run.resize(*self._shares(core))
        await self._until(began + steps)
        self.signal(signal.SIGSTOP)

    def signal(self, number: signal.Signals) -> None:
        """To each of its ranks."""
        for pid in self._ranks:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def used_s(self) -> tuple[float, float]:
        """CPU seconds so far: of all ranks, and of those that sleep for good."""
        return sum(map(cpu_s, self._ranks)), sum(map(cpu_s, self._sleepers))

    async def _until(self, step: int) -> None:
        while self._step < step:
            self._step = max(self._step, int((await self._run.word())["step"]))

    def _shares(self, core: int) -> tuple[int, int]:
        return (0, self._width) if core else (self._width, 0)


def signal_all(jobs: Sequence[Member], number: signal.Signals) -> None:
    """To each rank of all of them."""
    for each in jobs:
        each.signal(number)


class Turn(NamedTuple):
    """Seconds until the last job had done its steps; CPU seconds of all ranks, and of those that slept."""

    took_s: float
    cpu_s: float
    slept_s: float


class Pair(NamedTuple):
    """A turn of each kind."""

    rigid: Turn
    adaptive: Turn

    @property
    def longer(self) -> float:
        """By which part the adaptive jobs took longer."""
        return self.adaptive.took_s / self.rigid.took_s - 1

    @property
    def more_cpu(self) -> float:
        """By which part they used more CPU time, but for the sleepers."""
        return (self.adaptive.cpu_s - self.adaptive.slept_s) / self.rigid.cpu_s - 1

    @property
    def slept(self) -> float:
        """Which part of the cores all sleepers together used."""
        return self.adaptive.slept_s / self.adaptive.took_s / len(cores())


@asynccontextmanager
async def members(count: int, processors: int, way: str) -> AsyncIterator[list[Member]]:
    """So many jobs, all of which have computed and are stopped; ``way``: rigid, or one of :data:`WAYS`."""
    width = processors // count
    async with AsyncExitStack() as stack:
        found: list[Member] = []
        stack.callback(signal_all, found, signal.SIGCONT)  # who is stopped cannot end
        for number in range(count):
            core = number % 2
            words, ranks = (["rigid" if way == "rigid" else "adaptive", str(core)], width)
            if way in ("asleep", "resized"):
                words, ranks = ["adaptive", "both"], processors
            run = await stack.enter_async_context(program(ranks, *words, module=RANKS))
            found.append(Member(run, core, width, processors))
            await found[-1].begin(way)
            found[-1].signal(signal.SIGSTOP)
        await asyncio.gather(*(each.goes_on(_ASLEEP_S if way == "asleep" else _SETTLE_S) for each in found))
        signal_all(found, signal.SIGSTOP)
        yield found


async def turn(jobs: Sequence[Member], steps: int, *, moves: bool = False) -> Turn:
    """The jobs go on until each has done so many steps."""
    await asyncio.gather(*(each.goes_on(_SETTLE_S) for each in jobs))
    before, began_s = [each.used_s() for each in jobs], time.perf_counter()
    await asyncio.gather(*(each.does(steps, moves=moves) for each in jobs))
    took_s, after = time.perf_counter() - began_s, [each.used_s() for each in jobs]
    used_s, slept_s = (sum(now[of] - was[of] for was, now in zip(before, after, strict=True)) for of in (0, 1))
    return Turn(took_s, used_s, slept_s)


async def pairs(count: int, processors: int, way: str, rounds: int, steps: int) -> list[Pair]:
    """So many pairs."""
    async with members(count, processors, "rigid") as rigid, members(count, processors, way) as adaptive:
        found = []
        for number in range(rounds + 1):
            took = {}
            for is_rigid in (True, False) if number % 2 else (False, True):
                jobs, moves = (rigid, False) if is_rigid else (adaptive, way == "resized")
                took[is_rigid] = await turn(jobs, steps, moves=moves)
            if number:
                found.append(Pair(took[True], took[False]))
        return found


# --- Fig. 4 -----------------------------------------------------------------------------------------------------------


class Sample(NamedTuple):
    """Which parts of the second core two jobs used in the moments before ``at_s``."""

    at_s: float
    first: float
    second: float


class Shares:
    """Looks at the second core until it is cancelled."""

    def __init__(self) -> None:
        self.jobs: list[Run] = []
        self.samples: list[Sample] = []

    async def look(self) -> None:
        """Take samples."""
        before, was_s = self._used(), time.perf_counter()
        while True:
            await asyncio.sleep(_LOOK_S)
            after, now_s = self._used(), time.perf_counter()
            parts = [max(0.0, after[job] - before[job]) / (now_s - was_s) for job in (0, 1)]  # one may have gone
            self.samples.append(Sample(now_s, *parts))
            before, was_s = after, now_s

    def _used(self) -> dict[int, float]:
        used = {0: 0.0, 1: 0.0}
        for job, run in enumerate(self.jobs):
            used[job] = sum(cpu_s(pid) for pid in below(run.pid)[1:] if is_kept_to(pid, cores()[1]))
        return used


async def overlap() -> list[str]:
    """Lines of a table: a job has both cores, gives the second to a newcomer, and gets it back."""
    shares, half = Shares(), _RANKS // 2
    words = ("adaptive", "both")
    async with program(_RANKS, *words, module=RANKS) as first:
        await first.word()
        await first.resize(half, half)
        shares.jobs.append(first)
        looking = asyncio.create_task(shares.look())
        await asyncio.sleep(_PHASE_S)
        told_s = time.perf_counter()
        shrinks = asyncio.create_task(first.resize(half, 0))
        async with program(_RANKS, *words, module=RANKS) as second:
            shares.jobs.append(second)
            await shrinks
            shrunk_s = time.perf_counter()
            await second.word()
            await second.resize(0, half)
            begun_s = time.perf_counter()
            await asyncio.sleep(2 * _PHASE_S)
            ended_s = time.perf_counter()
        del shares.jobs[1]
        await first.resize(half, half)
        grown_s = time.perf_counter()
        await asyncio.sleep(_PHASE_S)
        looking.cancel()
    spans = {
        "the first job has both": (0.0, told_s),
        "it is told to shrink, and the second is started": (told_s, begun_s),
        "both are there": (begun_s, ended_s),
        "the first has it back": (grown_s, grown_s + 2 * _PHASE_S),
    }
    both = sum(_LOOK_S for each in shares.samples if min(each.first, each.second) > _SOME)
    return [
        *(f"| {what} | {used(shares.samples, *span)} |" for what, span in spans.items()),
        f"\nshrunk after {shrunk_s - told_s:.2f} s, the second computes after {begun_s - told_s:.2f} s; "
        f"both used more than {_SOME:.0%} of the core for {both:.1f} s together",
    ]


def used(samples: Sequence[Sample], since_s: float, until_s: float) -> str:
    """Seconds, and means of what both used, per cent of the core."""
    found = [each for each in samples if since_s + _LOOK_S <= each.at_s <= until_s]
    means = [statistics.fmean(getattr(each, job) for each in found) for job in ("first", "second")]
    return f"{len(found) * _LOOK_S:.1f} | {' | '.join(f'{100 * mean:.1f}' for mean in means)}"


async def measure(options: argparse.Namespace) -> None:
    """Measure everything, and print tables."""
    print(
        f"{machine()}; {options.pairs} pairs each; {options.steps} steps of {SIZE}² points a turn, by all jobs together"
    )
    print(
        "\n| jobs | processors | way | ranks, of which asleep | rigid, s | longer, % | the paper's, % | more CPU, % | "
        "sleepers, % | load average |\n|---|---|---|---|---|---|---|---|---|---|"
    )
    for count, processors in CASES:
        for way in options.ways if count in options.jobs else ():
            load = os.getloadavg()[0]
            found = []
            for _ in range(options.starts):
                found += await pairs(count, processors, way, options.pairs // options.starts, options.steps // count)
            asleep = 0 if way == "enabled" else (count - 1) * processors
            cells = [
                count, processors, way, f"{processors + asleep}, {asleep}",
                f"{statistics.median(each.rigid.took_s for each in found):.2f}",
                per_cent([each.longer for each in found]),
                f"{PAPER[count]:.2f}" if way == "asleep" else "",
                per_cent([each.more_cpu for each in found]),
                f"{100 * statistics.median(each.slept for each in found):.2f}" if way == "asleep" else "",
                f"{load:.1f} to {os.getloadavg()[0]:.1f}",
            ]  # fmt: skip
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    print("\n| the second core | seconds | first job, % of it | second job, % of it |\n|---|---|---|---|")
    for line in await overlap():
        print(line, flush=True)


def per_cent(parts: Sequence[float]) -> str:
    """The median of some parts, and its interval."""
    found = spread([100 * each for each in parts])
    return f"{found.median:+.2f} [{found.low:+.2f} … {found.high:+.2f}]"


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="./run bench adaptive_jobs", description=__doc__.partition("\n")[0])
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--starts", type=int, default=5, metavar="N", help="so often all jobs are started anew (5)")
    parser.add_argument("--steps", type=int, default=320, metavar="N", help="of a turn, by all jobs together (320)")
    parser.add_argument("--jobs", type=int, nargs="+", default=list(PAPER), choices=list(PAPER))
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    options = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        raise SystemExit("needs two CPUs")
    asyncio.run(measure(options))


if __name__ == "__main__":
    main()
