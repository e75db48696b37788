"""Jobs that change shape: the core gives what plain simulators of both papers give, every change to the microsecond.

What the workloads brought about is printed (``-s``), and has to have happened.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from reference import equipartition, folding, shapes
from reference.shaped import Change, Job, Outcome

from cosched.model.width import Range
from cosched.workload.rules import Ask, AtLimit, Shaped, Workload, workload_of
from space_scheduler.plugins import resolve
from space_scheduler.simulator.host import Outcome as Simulated
from space_scheduler.simulator.host import simulate

#: Workloads for each policy: with HYPOTHESIS_PROFILE=campaign thousands.
SEEDS = max(40, 2 * settings().max_examples // 5)
#: Those that once found a difference beyond these.
FOUND = (275, 623)

#: Of each policy of the reference its name here.
FOLDING = {
    "fifo": "fifo",
    "fjt4": "fjt4(unfold=idle)",
    "fjt4+bfa": "fjt4+bfa(unfold=idle)",
    "fjt1+bfa": "fjt1+bfa",
    "fjt1+bfm": "fjt1+bfm",
    "bfm, short": "fjt1+bfm(candidates=short)",
    "bfm, partial": "fjt1+bfm(partial)",
    "bfm, at a cost": "fjt1+bfm",
    "bfm, estimates": "fjt1+bfm(window=estimates)",
    "bfm, remain": "fjt1+bfm(expired=remain)",
    "bfm, suspend": "fjt1+bfm(expired=suspend)",
    "bfa, estimates": "fjt1+bfa(window=estimates)",
    "fjt4+bfm": "fjt4+bfa(unfold=idle,expired=fold)",
}
EQUIPARTITION = {
    "equal": "equipartition",
    "waterfill": "equipartition(waterfill)",
    "at a cost": "equipartition",
    "threshold": "equipartition(threshold=3)",
    "waterfill, threshold, at a cost": "equipartition(waterfill,threshold=2)",
    "part": "equipartition(part)",
    "wait": "equipartition(wait)",
    "easy": "equipartition(easy)",
}
#: What has to have happened.
MUST = {
    "fjt1+bfm": ("narrower", "wider"),
    "fjt1+bfa": ("aborted",),
    "fjt4": ("wider",),
    "bfm, suspend": ("suspended",),
    "equal": ("narrower", "wider"),
    "wait": ("wider",),
}


def workload(load: shapes.Load) -> tuple[Workload, list[int]]:
    """The jobs that the machine has a size for, and their numbers."""
    rows = [job for job in load.jobs if any(size <= load.cpus for size in job.sizes)]
    shaped, columns = [], []
    for job in rows:
        contiguous = job.sizes == tuple(range(job.sizes[0], job.sizes[-1] + 1)) and not job.speeds
        steps = [more for _, more in job.evolve]
        shape = Range(
            job.sizes[0],
            job.sizes[-1]
            if contiguous and (job.malleable or job.evolve)
            else max(n for n in job.sizes if n <= load.cpus),
            () if contiguous else tuple(n for n in job.sizes if n <= load.cpus),
            tuple(speed for n, speed in zip(job.sizes, job.speeds, strict=False) if n <= load.cpus),
            job.malleable or bool(job.evolve),
            sum(each for each in steps if each > 0),
            -sum(each for each in steps if each < 0),
        )
        procs = shape.largest(load.cpus)
        assert procs is not None
        estimate = job.work if job.estimate is None else job.estimate
        asks = tuple(Ask(part, more) for part, more in job.evolve)
        shaped.append(Shaped(shape, job.work, estimate, job.long, job.foldable, asks))
        speed = shape.speed(procs)
        columns.append((job.number, job.submit, -(-job.work // speed), procs, -(-estimate // speed)))
    number, submit, run, procs_of, estimates = (np.array(column, np.int64) for column in zip(*columns, strict=True))
    made = workload_of("made", load.cpus, submit, run, procs_of, estimates, job_id=number, shapes=shaped)
    return made, number.tolist()


def outcomes(simulated: Simulated, numbers: list[int]) -> dict[int, Outcome]:
    changes: dict[int, list[Change]] = {number: [] for number in numbers}
    for each in simulated.holdings or ():
        changes[numbers[each.row]].append(Change(each.at_us, each.processes, each.procs))
    ends = simulated.end_us.tolist()
    starts = simulated.start_us.tolist()
    return {number: Outcome(starts[row], ends[row], changes[number]) for row, number in enumerate(numbers)}


def agree(load: shapes.Load, name: str, expected: dict[int, Outcome], **costs: Any) -> Counter[str]:
    made, numbers = workload(load)
    at_limit = AtLimit.KILL if load.kill else AtLimit.RUN
    ours = outcomes(simulate(made, resolve(name), at_limit=at_limit, validate=True, **costs), numbers)
    theirs = {number: outcome for number, outcome in expected.items() if number in ours}
    if "suspend" in name:  # for the core it is no start when a suspended job goes on
        for those in (ours, theirs):
            for each in those.values():
                each.start = None
                last = each.changes[-1:]
                each.changes = [at for at, then in pairwise(each.changes) if then.at > at.at] + last
                held = [None, *((change.processes, change.cpus) for change in each.changes)]
                each.changes = [
                    change for change, before in zip(each.changes, held, strict=False) if before != change[1:]
                ]
    assert ours == theirs, "\n".join(
        f"{number}: {ours[number]}\n   not {theirs[number]}" for number in ours if ours[number] != theirs[number]
    )
    return shapes.happened(ours)


def never_without_processes(job: Job) -> Job:
    """The job without requests that would leave it less than a process: the core does not take those."""
    left, kept = job.sizes[0] - 1, []
    for part, more in job.evolve:
        if more > 0 or left + more >= 0:
            kept.append((part, more))
            left += min(0, more)
    return replace(job, evolve=tuple(kept))


def compare(seeds: Sequence[int], one: Callable[[int], Counter[str]], name: str) -> None:
    """Each seed; what happened in all of them is printed, and has to have happened."""
    counts: Counter[str] = Counter()
    for seed in seeds:
        try:
            counts += one(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    print(f"{name}: {len(seeds)} workloads, {dict(counts)}")  # noqa: T201 (seen with -s)
    for each in MUST.get(name, ()):
        assert counts[each] > len(seeds) // 20, counts


@pytest.mark.parametrize("name", FOLDING)
def test_folding(name: str) -> None:
    policy = shapes.FOLDING[name]
    cost_ppm = Fraction(policy.fold_cost * 1_000_000)

    def one(seed: int) -> Counter[str]:
        load = shapes.folding_load(seed, overruns=policy.window == "estimates")
        costed = replace(policy, fold_cost=Fraction(round(cost_ppm), 1_000_000))
        expected = folding.simulate(load.cpus, load.jobs, costed, kill=load.kill)
        return agree(load, FOLDING[name], expected, fold_cost_ppm=round(cost_ppm))

    compare([*range(SEEDS), *FOUND], one, name)


@pytest.mark.parametrize("name", EQUIPARTITION)
def test_equipartition(name: str) -> None:
    policy = shapes.EQUIPARTITION[name]

    def one(seed: int) -> Counter[str]:
        growing = 1 if policy.refused == "wait" else 99
        load = shapes.equipartition_load(seed, growing=growing, estimates=policy.admits == "easy")
        load = load._replace(jobs=[never_without_processes(job) for job in load.jobs])
        expected = equipartition.simulate(load.cpus, load.jobs, policy, kill=load.kill)
        return agree(load, EQUIPARTITION[name], expected, resize_cost_us=policy.resize_cost)

    compare([*range(SEEDS), *FOUND], one, name)
