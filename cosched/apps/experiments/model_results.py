"""What the simulator says to the jobs of ``cosched bench model``, and how far that is from what they took.

Twice. *Rates*: with everybody's place, start and end as they were, how much of its work alone the model says a job has
done by its end; where the rates are right, all of it. *Simulated*: the policy decides in the simulator, from nothing
but the moments of submission.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np

from cosched.apps.experiments.matrix import spread
from cosched.apps.experiments.model import BY_NAME, LEVEL, Ran
from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job
from cosched.model.node import Node
from cosched.model.time import US_PER_S
from cosched.report.palette import COLOURS
from cosched.report.plots import figure
from cosched.report.table import Table
from cosched.workload.rules import Tasks, workload_of
from space_scheduler.plugins import resolve
from space_scheduler.progress import ALONE_PPM, NodeCpu, Occupancy, Rate, Sharing
from space_scheduler.simulator.host import Site, simulate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The goal: half of all jobs are predicted within this part of what they took.
GOAL: Final = 0.15
_MEMORY_BYTES: Final = 1 << 40
#: What the table has medians of.
_SHOWN: Final = ("alone_s", "took_s", "by_rates_s", "error", "simulated_s", "simulated_error", "naive_error")


class Judged(msgspec.Struct, frozen=True):
    """A job: what it took alone and beside others, what it did meanwhile by the rates, and what was simulated.

    All in seconds; ``done_s`` of work alone.
    """

    series: int
    mode: str
    shape: str
    alone_s: float
    took_s: float
    done_s: float
    simulated_s: float

    @property
    def by_rates_s(self) -> float:
        """What it would have taken at the mean of the rates that it is said to have had."""
        return self.took_s * self.alone_s / self.done_s

    @property
    def error(self) -> float:
        """Of the rates, as a part of what it took."""
        return abs(self.by_rates_s - self.took_s) / self.took_s

    @property
    def simulated_error(self) -> float:
        """Of the whole simulation."""
        return abs(self.simulated_s - self.took_s) / self.took_s

    @property
    def naive_error(self) -> float:
        """Of saying that it takes what it takes alone."""
        return abs(self.alone_s - self.took_s) / self.took_s


def judged(runs: Sequence[Ran], sharings: Mapping[str, Sharing], policy: str) -> list[Judged]:
    """The jobs of all series; of one whose shapes did not all run alone, those that did. Disturbed runs don't count."""
    runs = [run for run in runs if not run.disturbed]
    found: list[Judged] = []
    for key in sorted({(run.mode, run.series) for run in runs}):
        found += _of_one(*key, [run for run in runs if (run.mode, run.series) == key], sharings[key[0]], policy)
    return found


def _of_one(mode: str, number: int, runs: Sequence[Ran], sharing: Sharing, policy: str) -> Iterator[Judged]:
    alone = {
        shape: (
            statistics.median(run.run_s for run in runs if run.alone and run.shape == shape),
            statistics.median(run.cpu_ratio for run in runs if run.alone and run.shape == shape),
        )
        for shape in {run.shape for run in runs if run.alone}
    }
    jobs = [run for run in runs if not run.alone and run.shape in alone]
    if not jobs:
        return
    names = sorted({name for run in runs for name in run.nodes})
    site = Site([Node(name, LEVEL, _MEMORY_BYTES, 1) for name in names], (), sharing)
    jobs.sort(key=lambda run: run.submit_s)
    done = _done_s(jobs, alone, sharing)
    for run, done_s, simulated_s in zip(jobs, done, _took_s(jobs, alone, policy, site), strict=True):
        yield Judged(number, mode, run.shape, alone[run.shape][0], run.run_s, done_s, simulated_s)


def _cpu_permille(run: Ran, alone: Mapping[str, tuple[float, float]]) -> int:
    return round(1000 * alone[run.shape][1])


def _done_s(jobs: Sequence[Ran], alone: Mapping[str, tuple[float, float]], sharing: Sharing) -> list[float]:
    """How much of its work alone each has done by its end, at the rates of who was where when."""
    occupancy = Occupancy(sharing)
    occupancy.nodes = {name: NodeCpu(1.0, 1) for run in jobs for name in run.nodes}
    moments = [(run.start_s, 1, at) for at, run in enumerate(jobs)]
    moments += [(run.start_s + run.run_s, 0, at) for at, run in enumerate(jobs)]
    done = [0.0] * len(jobs)
    rates: dict[int, Rate] = {}
    last_s = 0.0
    for now_s, begins, at in sorted(moments):
        for job_id, rate_ppm in rates.items():
            done[job_id] += (now_s - last_s) * float(rate_ppm) / ALONE_PPM
        last_s, run = now_s, jobs[at]
        if begins:
            shares = tuple(Share(*each) for each in run.nodes.items())
            shape, cpu_permille = BY_NAME[run.shape], _cpu_permille(run, alone)
            job = Job(at, shape.tasks, 1, 0, kind=shape.kind, cpu_permille=cpu_permille)
            occupancy.enter(job, Allocation(shape.tasks, shares))
        else:
            occupancy.leave(at)
            rates.pop(at)
        rates |= occupancy.rates_ppm(run.nodes)
    return done


def _took_s(jobs: Sequence[Ran], alone: Mapping[str, tuple[float, float]], policy: str, site: Site) -> list[float]:
    """How long the simulator has these jobs run, in their order, which is that of submission."""
    count = len(jobs)
    run_us = np.array([round(alone[run.shape][0] * US_PER_S) for run in jobs], np.int64)
    shapes = [BY_NAME[run.shape] for run in jobs]
    procs = np.array([shape.tasks for shape in shapes], np.int64)
    tasks = Tasks(
        np.zeros(count, np.int64),
        np.array([_cpu_permille(run, alone) for run in jobs], np.int64),
        tuple(shape.kind for shape in shapes),
    )
    submit_us = np.array([round(run.submit_s * US_PER_S) for run in jobs], np.int64)
    load = workload_of("as it ran", sum(node.procs for node in site.nodes), submit_us, run_us, procs, tasks=tasks)
    found = simulate(load, resolve(policy), site=site)
    return [float(us) / US_PER_S for us in found.end_us - found.start_us]


def table(found: Sequence[Judged]) -> Table:
    """A line for each mode and shape, and one for each mode's whole."""
    shown = Table(
        "Predicted against measured execution times: medians",
        ["mode", "job", "jobs", "alone s", "took s", "by rates s", "error", "simulated s", "error", "as if alone"],
    )
    for mode in sorted({each.mode for each in found}):
        here = [each for each in found if each.mode == mode]
        for shape in [shape for shape in BY_NAME if any(each.shape == shape for each in here)]:
            _line(shown, mode, shape, [each for each in here if each.shape == shape])
        _line(shown, mode, "all", here)
    return shown


def _line(shown: Table, mode: str, name: str, jobs: Sequence[Judged]) -> None:
    shown.add(mode, name, len(jobs), *(statistics.median(getattr(each, what) for each in jobs) for what in _SHOWN))


def verdict(found: Sequence[Judged], mode: str) -> tuple[bool, str]:
    """Whether a mode's jobs are predicted as well as they should be, and that in words."""
    middle = spread([each.simulated_error for each in found if each.mode == mode])
    rates = spread([each.error for each in found if each.mode == mode])
    count = sum(each.mode == mode for each in found)
    met = middle.median <= GOAL and rates.median <= GOAL
    return met, (
        f"{mode}: median error of {count} jobs {rates.worded('.1%')} by the rates, {middle.worded('.1%')} simulated: "
        f"{'within' if met else 'beyond'} the goal of {GOAL:.0%}"
    )


def plot(found: Sequence[Judged], directory: Path) -> list[Path]:
    """Predicted against measured, a point for each job."""
    return figure(lambda axes: _draw(axes, found), directory / "model", (6.0, 5.5))


def _draw(axes: "Axes", found: Sequence[Judged]) -> None:
    most = 1.1 * max(max(each.took_s, each.simulated_s) for each in found)
    axes.plot([0, most], [0, most], color="black", linewidth=0.8)
    axes.fill_between([0, most], [0, most * (1 - GOAL)], [0, most * (1 + GOAL)], color="black", alpha=0.08, linewidth=0)
    for at, mode in enumerate(sorted({each.mode for each in found})):
        here = [each for each in found if each.mode == mode]
        took = [each.took_s for each in here]
        colour = COLOURS[2 * at % len(COLOURS)]
        axes.scatter(took, [each.by_rates_s for each in here], s=14, color=colour, label=f"{mode}: rates alone")
        style = {"s": 22, "facecolors": "none", "edgecolors": COLOURS[(2 * at + 1) % len(COLOURS)]}
        axes.scatter(took, [each.simulated_s for each in here], label=f"{mode}: simulated", **style)  # type: ignore[arg-type]
    axes.set(xlabel="measured execution time (s)", ylabel="predicted (s)", xlim=(0, most), ylim=(0, most))
    axes.set_title(f"Prediction against {len(found)} real jobs (band: {GOAL:.0%})", loc="left")
    axes.legend(frameon=False)
