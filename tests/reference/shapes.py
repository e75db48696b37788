"""Small random workloads for the comparison of policies with their plain simulators, and what happened in a run.

A seed says everything. Machines are small and jobs come in bursts, so that ties, full machines and queues are common.
For folding about a third of the jobs are rigid and wider than half of the machine, and in every second load each of
those comes after a short job and before moldable ones of many times its length: windows expire behind it. A job's work
is a whole number of microseconds times its speed in its largest size, and so is its estimate: a host that counts both
as time in that width has whole numbers.
"""

from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import NamedTuple

from reference import equipartition, folding
from reference.shaped import SECOND, Job, Outcome

#: By name, what each simulator is compared with the core under.
FOLDING = {
    **folding.PRESETS,
    "bfm, short": folding.Policy(candidates="short"),
    "bfm, partial": folding.Policy(partial=True),
    "bfm, at a cost": folding.Policy(fold_cost=Fraction(1, 7)),
    "bfm, estimates": folding.Policy(window="estimates"),
    "bfm, remain": folding.Policy(expired="remain"),
    "bfm, suspend": folding.Policy(expired="suspend"),
    "bfm, least for Long": folding.Policy(long_minimum=4),
    "bfa, estimates": folding.Policy(window="estimates", expired="abort"),
    "fjt4+bfm": folding.Policy(long_folds=4),
}
EQUIPARTITION = {
    "equal": equipartition.Policy(),
    "waterfill": equipartition.Policy(strategy="waterfill"),
    "at a cost": equipartition.Policy(resize_cost=5 * SECOND),
    "threshold": equipartition.Policy(threshold=3),
    "waterfill, threshold, at a cost": equipartition.Policy("waterfill", resize_cost=SECOND, threshold=2),
    "part": equipartition.Policy(refused="part"),
    "wait": equipartition.Policy(refused="wait"),
    "easy": equipartition.Policy(admits="easy"),
}


class Load(NamedTuple):
    cpus: int
    jobs: list[Job]
    kill: bool  # whether estimates are limits


def folding_load(seed: int, *, overruns: bool = False) -> Load:
    """Rigid and moldable jobs; with ``overruns`` everybody has an estimate, which is no limit."""
    chance = Random(f"folding {seed}")
    cpus = chance.choice([4, 8, 10, 16, 16, 24, 60])
    jobs, now, staged = [], 0, chance.random() < 0.5
    for number in range(1, chance.randint(3, 20) + 1):
        now += gap(chance)
        is_wide = number % 4 == 2 if staged else chance.random() < 0.3
        sizes = wide(chance, cpus) if is_wide else moldable(chance, cpus)
        speeds = sublinear(sizes) if chance.random() < 0.15 else ()
        times = chance.randint(1, 10) if staged and number % 4 in (3, 0) else 1
        work, estimate = lengths(chance, times * (speeds or sizes)[-1], known=overruns)
        long, foldable = chance.random() < 0.35, chance.random() < 0.85
        jobs.append(Job(number, now, sizes, work, estimate, long=long, foldable=foldable, speeds=speeds))
    return Load(cpus, jobs, not overruns)


def equipartition_load(seed: int, *, evolving: str = "any", growing: int = 99, estimates: bool = False) -> Load:
    """Rigid, moldable and malleable jobs; ``evolving`` are those that are ``rigid``, or ``any``, or ``none``.

    At most ``growing`` of them ask for more: two that wait could wait for each other. With ``estimates`` everybody has
    one, which is no limit for one load in two.
    """
    chance = Random(f"equipartition {seed}")
    cpus = chance.choice([4, 8, 10, 16, 16, 64])
    jobs, now = [], 0
    for number in range(1, chance.randint(3, 14) + 1):
        now += gap(chance)
        kind = chance.choices(["rigid", "moldable", "malleable"], [4, 3, 8])[0]
        sizes = {"rigid": rigid, "moldable": moldable, "malleable": between}[kind](chance, cpus)
        speeds = sublinear(sizes) if chance.random() < 0.15 else ()
        work, estimate = lengths(chance, (speeds or sizes)[-1], known=estimates)
        evolve: tuple[tuple[Fraction, int], ...] = ()
        if evolving in ("any", kind) and kind != "moldable" and not speeds and chance.random() < 0.3:
            evolve = steps(chance, cpus, grows=growing > 0)
            growing -= any(more > 0 for _, more in evolve)
        jobs.append(
            Job(number, now, sizes, work, estimate, malleable=kind == "malleable", speeds=speeds, evolve=evolve)
        )
    return Load(cpus, jobs, not estimates or chance.random() < 0.5)


# what a job is made of


def gap(chance: Random) -> int:
    """Until the next submission."""
    return chance.choice([0, 0, 0, 1, 2, 5, 10, 30]) * SECOND + chance.choice([0, 0, 0, chance.randrange(SECOND)])


def lengths(chance: Random, speed: int, *, known: bool) -> tuple[int, int | None]:
    """Work and estimate, by the speed in the largest size; an estimate may be exact, too long, too short, or none."""
    run = chance.choice([chance.randint(1, 12), chance.randint(10, 100)]) * SECOND
    if chance.random() < 0.3:
        run += chance.randrange(SECOND)
    estimate = chance.choice([run, run, 2 * run, run + SECOND, max(1, run // 2), max(1, run // 3), None])
    if estimate is None and known:
        estimate = max(1, run // 5)
    return run * speed, None if estimate is None else estimate * speed


def wide(chance: Random, cpus: int) -> tuple[int, ...]:
    return (chance.randint(cpus // 2 + 1, chance.choice([cpus, 7 * cpus // 8])),)


def rigid(chance: Random, cpus: int) -> tuple[int, ...]:
    return (chance.choice([chance.randint(1, max(1, cpus // 3)), chance.randint(1, cpus)]),)


def between(chance: Random, cpus: int) -> tuple[int, ...]:
    """Any from a minimum to a maximum, which may be above what the machine has."""
    least = chance.choice([1, 1, chance.randint(1, max(1, cpus // 2)), chance.randint(1, cpus)])
    return tuple(range(least, chance.choice([cpus, chance.randint(least, cpus), max(least, 2 * cpus)]) + 1))


def moldable(chance: Random, cpus: int) -> tuple[int, ...]:
    """A single size, powers of two, squares, a range, some sizes."""
    most = chance.choice([cpus, chance.randint(1, cpus), max(1, cpus // 2)])
    everything = range(1, most + 1)
    kinds: list[Callable[[], tuple[int, ...]]] = [
        lambda: rigid(chance, cpus),
        lambda: tuple(1 << k for k in range(most.bit_length())),
        lambda: tuple(k * k for k in everything if k * k <= most),
        lambda: tuple(range(chance.randint(1, most), most + 1)),
        lambda: tuple(sorted(chance.sample(everything, chance.randint(1, min(3, most))))),
    ]
    return chance.choice(kinds)()


def sublinear(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Speeds by Amdahl's law, a tenth of the work serial, in thousandths of that of one process."""
    return tuple(10_000 * size // (size + 9) for size in sizes)


def steps(chance: Random, cpus: int, *, grows: bool) -> tuple[tuple[Fraction, int], ...]:
    """What an evolving job asks for, and when."""
    parts = sorted(
        chance.sample([Fraction(1, 4), Fraction(1, 3), Fraction(1, 2), Fraction(3, 4)], chance.randint(1, 2))
    )
    return tuple((part, chance.choice([1, 1, -1] if grows else [-1]) * chance.randint(1, cpus // 2)) for part in parts)


# what happened


def happened(outcomes: dict[int, Outcome]) -> Counter[str]:
    """How often jobs were folded or shrunk, widened, and lost their CPUs."""
    counts: Counter[str] = Counter()
    for outcome in outcomes.values():
        for before, after in pairwise(outcome.changes):
            if not after.cpus:
                counts["suspended" if after.processes else "aborted"] += 1
            elif before.cpus:
                counts["narrower" if after.cpus < before.cpus else "wider"] += 1
    return counts
