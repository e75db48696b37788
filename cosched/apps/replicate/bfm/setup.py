"""The paper's machine, workloads and policies, the readings of what it leaves open, and one simulated run of them.

Utrera et al. 2005, section 6: 60 processors, five policies, workloads of about 120 jobs at four loads (section 6.3; how
their mix is read stands in ``cosched.workload.generators.utrera05``).

A *reading* fixes everything that the text leaves open. The paper's own, as it is read here, was chosen before any run:

- FJT gives a Long job no fewer than a quarter of its largest size, as section 3 has it that small partitions would
  degrade its "execution time so much". It is not ``largest`` (any size that is free), since then no window ever
  expires: each of the paper's programs can run on one processor, so the head waits only while nothing at all is free,
  nobody is ever backfilled, and BFA, BFM and no backfilling are one and the same policy.
- Anybody who fits may be backfilled ("any suitable job"); BFA aborts (section 6.1), BFM folds; folding costs nothing
  beyond the share of the processors.

The others differ from it in one respect each. When a quick run had shown that under the paper's rule for the end of a
window hardly any window ends, two were added, with estimates that are wrong: what the paper's introduction has in mind.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from cosched.workload import shapes
from cosched.workload.generators.registry import generate_shaped
from cosched.workload.rules import AtLimit, Workload, prepare
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import Outcome, simulate

PROCS: Final = 60
#: The paper's.
JOBS: Final = 120
LOADS: Final = (1.0, 0.8, 0.6, 0.4)

FIFO: Final = "fifo"
FJT4: Final = "fjt4"
FJT4_BFA: Final = "fjt4+bfa"
BFA: Final = "fjt1+bfa"
BFM: Final = "fjt1+bfm"
#: Section 6.1, in its order.
POLICIES: Final = (FIFO, FJT4, FJT4_BFA, BFA, BFM)
_BACKFILLING: Final = (FJT4_BFA, BFA, BFM)
_ABORTING: Final = (FJT4_BFA, BFA)


#: Estimates that are the run time.
EXACT: Final = (1.0, 1.0)
#: As often too short as too long.
OFF_BY_HALF: Final = (0.5, 1.5)


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What is run under a name. ``options``: those of each preset; ``mix``: parameters of the workload's model.

    ``high`` is the load that counts as high; ``steady``: long enough to ask for a steady state, with a warm-up.
    ``estimates``: the least and the most of the run time that a job's estimate is, uniformly; jobs run on beyond it.
    ``class_means``: instead, of a job its class alone is known, Long or Short: its estimate is the class's mean work.
    """

    name: str
    about: str
    jobs: int = JOBS
    loads: tuple[float, ...] = LOADS
    high: float = LOADS[0]
    fjt: str = "largest/4"
    options: Mapping[str, str] = {}
    fold_cost_ppm: int = 0
    mix: Mapping[str, float] = {}
    estimates: tuple[float, float] = EXACT
    class_means: bool = False
    steady: bool = False

    def policy(self, preset: str) -> str:
        """The full name of a preset under this reading."""
        option = self.options.get(preset)
        return f"{preset}({option})" if option else preset

    def also(self, name: str, preset: str, option: str) -> "Reading":
        """This reading with one option more for a preset."""
        joined = ",".join(filter(None, (self.options.get(preset), option)))
        return msgspec.structs.replace(self, name=name, options={**self.options, preset: joined})


def _all(presets: tuple[str, ...], option: str) -> dict[str, str]:
    return dict.fromkeys(presets, option)


#: The paper's own, as it is read here.
MAIN: Final = Reading(
    name="main", about="120 jobs, a quarter of the largest size at least for Long, anybody backfilled"
)
LARGEST_OR_NONE: Final = Reading(name="fjt=largest/1", about="the largest size or none for Long", fjt="largest/1")
WRONG_ESTIMATES: Final = Reading(
    name="wrong estimates",
    about="EASY's shadow time, estimates of half to one and a half of the run time, which end no job",
    options=_all(_BACKFILLING, "window=estimates"),
    estimates=OFF_BY_HALF,
)
FOLD_COST_PPM: Final = 100_000
READINGS: Final = (
    MAIN,
    Reading(name="fjt=largest", about="Long may get any size that is free: nobody is ever backfilled", fjt="largest"),
    Reading(name="fjt=largest/2", about="half of the largest size at least for Long", fjt="largest/2"),
    LARGEST_OR_NONE,
    Reading(name="fjt=shared", about="Long jobs that wait share what is free", fjt="shared"),
    Reading(name="candidates=short", about="only Short jobs are backfilled", options=_all(_BACKFILLING, "short")),
    Reading(name="bfa=remain", about="BFA's expired jobs remain", options=_all(_ABORTING, "expired=remain")),
    Reading(name="bfa=suspend", about="BFA's expired jobs are suspended", options=_all(_ABORTING, "expired=suspend")),
    Reading(
        name="window=estimates",
        about="EASY's shadow time, exact estimates",
        options=_all(_BACKFILLING, "window=estimates"),
    ),
    WRONG_ESTIMATES,
    Reading(
        name="wrong estimates, fjt=largest/1",
        about="both: EASY's shadow time with wrong estimates, the largest size or none for Long",
        fjt="largest/1",
        options=_all(_BACKFILLING, "window=estimates"),
        estimates=OFF_BY_HALF,
    ),
    Reading(
        name="class means",
        about="EASY's shadow time, estimates that are the mean of a job's class, which end no job",
        options=_all(_BACKFILLING, "window=estimates"),
        class_means=True,
    ),
    Reading(name="partial folds", about="BFM folds no further than the head needs", options={BFM: "partial"}),
    Reading(name="fold cost 10 %", about="a folded job is slower by a tenth more", fold_cost_ppm=FOLD_COST_PPM),
    Reading(name="30 % Long", about="30 % of the jobs are Long by number, not Table 2's work", mix={"long_jobs": 0.3}),
    Reading(
        name="10 000 jobs",
        about="10 000 jobs, the first tenth left out; 90 % in place of 100 %, at which nothing is steady",
        jobs=10_000,
        loads=(0.9, *LOADS[1:]),
        high=0.9,
        steady=True,
    ),
)  # fmt: skip
WARM_UP_RATIO: Final = 0.1


class Scale(msgspec.Struct, frozen=True, kw_only=True):
    """How much is run: seeds of the main reading, of each other one, of the long one (0: not run); lengths in jobs.

    ``rigid``: the shares of rigid jobs of the sweep, with as many seeds as a reading.
    """

    seeds: int
    reading_seeds: int
    long_seeds: int
    jobs: int = JOBS
    long_jobs: int = 10_000
    rigid: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0)

    def readings(self) -> list[Reading]:
        """The readings that are run, at their length."""
        kept = [each for each in READINGS if self.seeds_of(each)]
        return [msgspec.structs.replace(each, jobs=self.long_jobs if each.steady else self.jobs) for each in kept]

    def seeds_of(self, reading: Reading) -> int:
        """How many seeds a reading is run with."""
        if reading.steady:
            return self.long_seeds
        return self.seeds if reading.name == MAIN.name else min(self.seeds, self.reading_seeds)


FULL: Final = Scale(seeds=60, reading_seeds=20, long_seeds=4)
QUICK: Final = Scale(seeds=10, reading_seeds=4, long_seeds=0, rigid=(0.0, 0.5, 1.0))


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation: a workload of a load and a seed under a policy. Readings that have it in common share it."""

    policy: str
    fjt: str
    jobs: int
    load: float
    seed: int
    fold_cost_ppm: int = 0
    mix: tuple[tuple[str, float], ...] = ()
    estimates: tuple[float, float] = EXACT
    class_means: bool = False


def run_of(reading: Reading, preset: str, load: float, seed: int) -> Run:
    """The simulation that a reading asks for. FIFO knows neither FJT nor folding."""
    fifo = preset == FIFO
    return Run(
        policy=reading.policy(preset),
        fjt="largest" if fifo else reading.fjt,
        jobs=reading.jobs,
        load=load,
        seed=seed,
        fold_cost_ppm=0 if fifo else reading.fold_cost_ppm,
        mix=tuple(sorted(reading.mix.items())),
        estimates=EXACT if preset in (FIFO, FJT4) else reading.estimates,
        class_means=reading.class_means and preset not in (FIFO, FJT4),
    )


def workload(
    load: float,
    seed: int,
    *,
    jobs: int = JOBS,
    mix: Mapping[str, Any] | None = None,
    estimates: tuple[float, float] = EXACT,
    class_means: bool = False,
) -> Workload:
    """The jobs of a seed at a load. The same random numbers at every load."""
    params = {"utilisation": load, **(mix or {})}
    log, lines = generate_shaped("utrera05", jobs, PROCS, np.random.default_rng(seed), params)
    made = prepare(log, procs_total=PROCS)
    if estimates != EXACT:
        parts = np.random.default_rng((seed, 1)).uniform(*estimates, jobs)
        made = replace(made, estimate_us=np.maximum(1, np.rint(made.run_us * parts)).astype(np.int64))
    if class_means:  # "jobs are classified in long and short ones" (section 3)
        long, work_us = np.array([lines[at].long for at in range(1, jobs + 1)]), made.run_us * made.procs
        mean_us = np.where(long, work_us[long].mean(), work_us[~long].mean())
        made = replace(made, estimate_us=np.maximum(1, np.rint(mean_us / made.procs)).astype(np.int64))
    return shapes.apply(made, lines)


def simulated(run: Run) -> Outcome:
    """What becomes of a workload."""
    mix, known = dict(run.mix), run.class_means
    load = workload(run.load, run.seed, jobs=run.jobs, mix=mix, estimates=run.estimates, class_means=known)
    policy = resolve(run.policy, fjt=run.fjt)
    return simulate(load, policy, at_limit=AtLimit.RUN, fold_cost_ppm=run.fold_cost_ppm)
