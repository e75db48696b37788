"""EASY and EASY++ with predicted run times (Tsafrir, Etsion & Feitelson 2007), plainly: lists, no increments.

Nothing of cosched is used here. Times are in µs; a job is killed by nothing, its run time respects its estimate.
"""

from typing import NamedTuple

_MINUTE = 60_000_000
STEPS = [each * _MINUTE for each in (1, 5, 15, 30, 60, 120, 300, 600, 1200, 3000, 6000)]


class PlainJob(NamedTuple):
    """A job of a user, in the order of submission."""

    submit: int
    run: int
    procs: int
    estimate: int
    user: int


class _Running:
    def __init__(self, at: int, now: int, prediction: int, run: int) -> None:
        self.at, self.end, self.predicted_end, self.steps = at, now + run, now + prediction, 0

    def lengthen(self, now: int) -> None:
        """A prediction that is outrun is made longer, the next time by more."""
        if self.predicted_end <= now:
            self.predicted_end = now + STEPS[self.steps]
            self.steps += 1


def predicted(jobs: list[PlainJob], at: int, ended: list[int]) -> int:
    """The mean run time of the user's last two jobs that have ended, at most the estimate."""
    last = [each for each in sorted(ended) if jobs[each].user == jobs[at].user][-2:]
    if len(last) < 2:
        return jobs[at].estimate
    return max(1, min(jobs[at].estimate, (jobs[last[0]].run + jobs[last[1]].run) // 2))


def starts(jobs: list[PlainJob], machine: int, *, shortest: bool) -> list[int]:
    """When each job starts; all that happens at one moment is followed by one pass."""
    begun, predictions = [-1] * len(jobs), [0] * len(jobs)
    queue: list[int] = []
    running: list[_Running] = []
    ended: list[int] = []
    come = 0
    while come < len(jobs) or queue or running:
        moments = [each for one in running for each in (one.end, one.predicted_end)]
        now = min(moments + [job.submit for job in jobs[come : come + 1]])
        ended += [one.at for one in running if one.end == now]
        while come < len(jobs) and jobs[come].submit == now:
            predictions[come] = predicted(jobs, come, ended)
            queue.append(come)
            come += 1
        running = [one for one in running if one.end > now]
        for one in running:
            one.lengthen(now)
        for at in _to_start(jobs, queue, running, predictions, machine, now, shortest=shortest):
            begun[at] = now
            queue.remove(at)
            running.append(_Running(at, now, predictions[at], jobs[at].run))
    return begun


def _to_start(
    jobs: list[PlainJob],
    queue: list[int],
    running: list[_Running],
    predictions: list[int],
    machine: int,
    now: int,
    *,
    shortest: bool,
) -> list[int]:
    free = machine - sum(jobs[one.at].procs for one in running)
    ends = [(one.predicted_end, jobs[one.at].procs) for one in running]
    waiting, chosen = [*queue], []
    while waiting and jobs[waiting[0]].procs <= free:
        chosen.append(waiting.pop(0))
        free -= jobs[chosen[-1]].procs
        ends.append((now + predictions[chosen[-1]], jobs[chosen[-1]].procs))
    if not waiting:
        return chosen
    head, *others = waiting
    shadow = min(end for end, _ in ends if free + sum(procs for each, procs in ends if each <= end) >= jobs[head].procs)
    extra = free + sum(procs for end, procs in ends if end <= shadow) - jobs[head].procs
    for at in sorted(others, key=lambda at: (predictions[at] if shortest else 0, at)):
        procs, late = jobs[at].procs, now + predictions[at] > shadow
        if procs <= free and (not late or procs <= extra):
            chosen.append(at)
            free -= procs
            extra -= procs if late else 0
    return chosen
