"""What real runs of jobs that change shape say: tables, the simulator's prediction beside them, and verdicts."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import numpy as np
from msgspec.structs import astuple

from cosched.apps.experiments.reshaped_trial import Trial
from cosched.apps.experiments.run_log import MACHINE
from cosched.apps.experiments.trials import Hows
from cosched.apps.play.results import PlayedJob
from cosched.apps.replicate import claims as judging
from cosched.apps.replicate.adaptive import claims as adaptive
from cosched.apps.replicate.adaptive.setup import EQUIPARTITION
from cosched.apps.replicate.bfm import claims as bfm
from cosched.apps.replicate.bfm.setup import BFA, BFM, FIFO
from cosched.apps.replicate.claims import Claim, Predicate, Premise, Region
from cosched.apps.replicate.paired import Values, difference, over_common_seeds, relative_difference
from cosched.apps.replicate.result import Result
from cosched.errors import Failed
from cosched.metrics.intervals import Interval
from cosched.report.table import Table

TRADITIONAL: Final = "traditional"
ALL: Final = "all"
_FOLDED: Final = "folded"
#: Planned run times above so many starts.
_MOSTLY_WORK: Final = 2.0
#: A machine's cores, as ``run_log.machine`` has them.
_CORES: Final = re.compile(r", (\d+) x ")
#: What a trial is measured by, of the jobs of a class.
Measure = Callable[[Trial, str], float]


def report(trials: Sequence[Trial], hows: Hows, result: Result) -> None:
    """Add tables and verdicts."""
    result.tables |= {"runs": _runs(trials), "means": _means(trials), "predictions": _predictions(trials)}
    there = _processors(trials, hows)
    result.claims += _adaptive(trials, there) if result.paper == "adaptive" else _bfm(trials, there)
    result.notes += _notes(trials)


def mean_s(what: str, trial: Trial, kind: str = ALL) -> float:
    """Mean of a time of the jobs of a class that ran, in seconds."""
    return float(np.mean([getattr(job, what) for job in _of(trial, kind)]))


wait_s, run_s, response_s = (partial(mean_s, what) for what in ("wait_s", "run_s", "response_s"))


def makespan_s(trial: Trial) -> float:
    """From the first submission to the last end, in seconds."""
    jobs = _of(trial, ALL)
    return max(job.end_s or 0.0 for job in jobs) - min(job.submit_s or 0.0 for job in jobs)


def allocated(trial: Trial, _: str = ALL) -> float:
    """Which part of all processors jobs held, from the first submission to the last end, in their last starts."""
    held = 0.0
    for job in _of(trial, ALL):
        moments = [*job.held_s, job.end_s or 0.0]
        held += sum(cpus * (b - a) for cpus, a, b in zip(job.held_cpus, moments, moments[1:], strict=False))
    return held / (trial.procs * makespan_s(trial))


def asked(trial: Trial) -> float:
    """The load that was asked for: processor-seconds that jobs should take alone, starts and all, of what there was."""
    span_s = max(job.due_s for job in trial.jobs) * len(trial.jobs) / max(1, len(trial.jobs) - 1)
    return sum(job.planned_run_s * job.tasks for job in trial.jobs) / (trial.procs * span_s) if span_s else np.inf


def changes(trial: Trial, why: str | None = None) -> int:
    """How often what a running job holds was changed, for this reason or any."""
    reasons = [each for job in trial.jobs for each in job.held_why[1:]]
    return len(reasons) if why is None else sum(each == why for each in reasons)


def restarts(trial: Trial) -> int:
    """How often a job was started again: it was ended to wait again, or its start was undone."""
    return sum(max(0, job.starts - 1) for job in trial.jobs)


def sentence(trial: Trial) -> str:
    """A trial for whoever watches."""
    return (
        f"{len(_of(trial, ALL))} of {len(trial.jobs)} jobs ran, {trial.verified} verified; response "
        f"{response_s(trial):.1f} s, makespan {makespan_s(trial):.0f} s, {changes(trial)} changes, "
        f"{restarts(trial)} starts again, {trial.aborts} aborts"
    )


def _of(trial: Trial, kind: str) -> list[PlayedJob]:
    jobs = [job for job in trial.jobs if job.ran and kind in (ALL, job.job_class)]
    if not jobs:
        raise Failed(f"no job {'' if kind == ALL else f'of class {kind} '}ran in the trial of {trial.arm}")
    return jobs


def _classes(trials: Sequence[Trial]) -> list[str]:
    there = {job.job_class for each in trials if each.paper == "bfm" for job in each.jobs if job.ran}
    return [ALL, *sorted(there)]


def _runs(trials: Sequence[Trial]) -> Table:
    table = Table(
        "Each run: means over its jobs, s",
        ["seed", "arm", "jobs", "ran", "verified", "load asked", "wait", "run", "response", "makespan", "allocated",
         "changes", "folded", "starts again", "aborts", "others", "took, s"],
    )  # fmt: skip
    for each in sorted(trials, key=lambda one: one.seed):
        table.add(
            each.seed, each.arm, len(each.jobs), len(_of(each, ALL)), each.verified, asked(each), wait_s(each),
            run_s(each), response_s(each), makespan_s(each), allocated(each), changes(each), changes(each, _FOLDED),
            restarts(each), each.aborts, each.others, each.took_s,
        )  # fmt: skip
    table.notes.append("load asked: what jobs should take alone, starts included, of all processors while jobs came")
    table.notes.append("others: the part of this machine's CPU that processes of others took")
    return table


def _means(trials: Sequence[Trial]) -> Table:
    table = Table(
        "By class of jobs, s, means over seeds; response against the first arm, paired by seed, with 95 % intervals",
        ["jobs", "arm", "seeds", "wait", "run", "response", "against", "difference", "low", "high"],
    )
    arms = list(dict.fromkeys(each.arm for each in sorted(trials, key=lambda one: _ORDER.index(one.arm))))
    for kind in _classes(trials):
        for arm in arms:
            mine = [each for each in trials if each.arm == arm]
            means = (float(np.mean([what(each, kind) for each in mine])) for what in (wait_s, run_s, response_s))
            found = None if arm == arms[0] else _against(trials, response_s, arm, arms[0], kind)
            against = (None,) * 4 if found is None else (arms[0], found.mean, found.low, found.high)
            table.add(kind, arm, len(mine), *means, *against)
    return table


_ORDER: Final = (TRADITIONAL, EQUIPARTITION, FIFO, BFA, BFM)


def _predictions(trials: Sequence[Trial]) -> Table:
    table = Table(
        "The simulator beside each run: from planned run times, and from real ones",
        ["seed", "arm", "measure", "seen", "predicted", "ratio", "with real run times", "ratio "],
    )
    for each in sorted(trials, key=lambda one: one.seed):
        for one in each.measures:
            table.add(each.seed, each.arm, *astuple(one))
    return table


def _against(
    trials: Sequence[Trial],
    what: Measure,
    ours: str,
    base: str,
    kind: str = ALL,
    compare: Callable[[Values, Values], Interval] = relative_difference,
) -> Interval | None:
    """A measure of one arm against another's."""
    mine, others = ({each.seed: what(each, kind) for each in trials if each.arm == arm} for arm in (ours, base))
    return over_common_seeds(mine, others, compare)


def _claim(predicate: Predicate, found: Interval | None) -> Claim:
    if found is None:
        return judging.cannot_judge(predicate, "no seed has both")
    return judging.judge(predicate, found)


def _processors(trials: Sequence[Trial], hows: Hows) -> list[Premise]:
    """That the processors are there: each has a core of the machine. Nothing where no machine is told."""
    cores = [int(found[1]) for how in hows if (found := _CORES.search(how.get(MACHINE, "")))]
    share = max(each.procs for each in trials) / min(cores) if cores else 1.0
    return [Premise("processors for each core", share, Region(high=1.0))]


def _sized(trials: Sequence[Trial], predicate: Predicate, found: Interval | None, there: Sequence[Premise]) -> Claim:
    """A size rests on the processors, and on the paper's high load, as it was asked for."""
    load = Premise("load asked", float(np.mean([asked(each) for each in trials])), Region(0.9, 1.1))
    return judging.under([*there, load], _claim(predicate, found))


def _adaptive(trials: Sequence[Trial], there: Sequence[Premise]) -> list[Claim]:
    return [
        judging.under(there, _claim(adaptive.REAL_RESPONSE, _against(trials, response_s, EQUIPARTITION, TRADITIONAL))),
        _claim(adaptive.REAL_UTILISATION, _against(trials, allocated, EQUIPARTITION, TRADITIONAL, compare=difference)),
    ]


def _bfm(trials: Sequence[Trial], there: Sequence[Premise]) -> list[Claim]:
    by_class = {kind: _against(trials, response_s, BFM, BFA, kind) for kind in _classes(trials)[1:]}
    cases: dict[str, judging.Measured] = {kind: found for kind, found in by_class.items() if found is not None}
    beaten: dict[str, judging.Measured] = {
        arm: found for arm in (BFA, BFM) if (found := _against(trials, response_s, arm, FIFO)) is not None
    }
    mine = [each for each in trials if each.arm == BFM]
    folded = sum(changes(each, _FOLDED) for each in mine)
    ended = sum(each.aborts for each in trials if each.arm == BFA)
    folds = f"{folded} folds in {len(mine)} runs of BFM, {ended} aborts under BFA"
    return [
        judging.judge_every(bfm.REAL_BFM, cases, folds),
        _sized(trials, bfm.REAL_BFM_LONG, by_class.get(bfm.LONG), there),
        _sized(trials, bfm.REAL_BFM_SHORT, by_class.get(bfm.SHORT), there),
        judging.judge_every(bfm.REAL_FIFO, beaten),
        judging.judge(bfm.REAL_NO_JOB_ABORTED, float(sum(each.aborts for each in mine)), folds)
        if folded
        else judging.cannot_judge(bfm.REAL_NO_JOB_ABORTED, f"nobody was folded: {folds}"),
    ]


def faster(trials: Sequence[Trial]) -> float | None:
    """How much faster jobs ran on one processor each than a processor's part of the machine is, at least: the median.

    Of jobs that were mostly work by their plan. None where there is none. A machine of as many CPUs has 1.
    """
    found = [
        job.work / job.run_s / (each.alone.rate / each.procs)
        for each in trials
        for job in each.jobs
        if job.run_s and set(job.held_cpus) == {1} and job.planned_run_s > _MOSTLY_WORK * each.alone.start_s
    ]
    return float(np.median(found)) if found else None


def _notes(trials: Sequence[Trial]) -> list[str]:
    notes = []
    digests: dict[tuple[int, str], set[str]] = {}
    for each in trials:
        for number, digest in each.digests.items():
            digests.setdefault((each.seed, number), set()).add(digest)
    if digests:
        same = sum(len(each) == 1 for each in digests.values())
        notes.append(f"answers: {same} of {len(digests)} jobs have the same bits in all runs of their seed")
    ran, right = sum(len(_of(each, ALL)) for each in trials), sum(each.verified for each in trials)
    notes.append(f"{ran} jobs ran, {right} of them verified their answer")
    if (times := faster(trials)) is not None:
        notes.append(
            f"processors share CPUs: jobs on one each ran {times:.1f} times as fast as a processor's part of the "
            "machine is (1 where nothing is shared), so there is the less to gain by more of them"
        )
    starts = [each.alone.start_s for each in trials]
    notes.append(
        f"a start takes {min(starts):.1f} to {max(starts):.1f} s alone, and does not scale: it is part of a job's "
        "time, and a job for which nothing else would be left does one unit of work"
    )
    return notes
