"""What is promised of every job and of every answer, whatever befell: pure, of what was read elsewhere."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from cosched.model.job import TERMINAL
from cosched.wire.api import JobDoc

ENDED = {str(state) for state in TERMINAL}
#: A promise may be older by so much than the request that it answers: one pass of the scheduler.
PROMISE_S = 2.0
#: Once faults are healed, a job may be ``starting`` or ``ending`` for so long: a launch, its time-out, another launch.
PASSING_S = 90.0
#: What guards have on record and what the scheduler has may differ for so long while no fault lasts: some heartbeats,
#: and a resize that waits for ranks to have begun (15 s were seen on two CPUs at a load of 32).
DIFFERENT_S = 30.0
#: Nodes' shares of a job: name to processors.
Shares = Mapping[str, int]


def job_problems(job: JobDoc, lines: Sequence[str], at_end: bool, restarts: bool) -> list[str]:
    """What is wrong with an ended job.

    ``lines`` are of its canary, "JOB ATTEMPT PID" for each start of its script; ``at_end``: the script came to its end;
    ``restarts``: the policy may end it and queue it again.
    """
    found = []
    terminal = [step.state for step in job.history if step.state in ENDED]
    if terminal != [job.state] or job.history[-1].state != job.state:
        found.append(f"has ended as {terminal}, and is {job.state}")
    attempts = [tuple(line.split()[:2]) for line in lines]
    if len(set(attempts)) != len(attempts):
        found.append(f"ran twice as the same attempt: {lines}")
    if any(number != str(job.job_id) for number, _ in attempts):
        found.append(f"ran as another job: {lines}")
    again = sum(step.state == "queued" for step in job.history[1:])
    may = 1 + (again if restarts else 0)
    if len(attempts) > may:
        found.append(f"ran {len(attempts)} times where it may {may}: {lines}")
    if job.state == "completed" and not (attempts and at_end):
        found.append(
            f"is completed; its script ran {len(attempts)} times and came {'' if at_end else 'not '}to its end"
        )
    return found


def promise_problems(jobs: Sequence[JobDoc], asked_s: float) -> list[str]:
    """Promises to queued jobs that lay in the past when they were asked for (``asked_s``, Unix time)."""
    found = []
    for job in jobs:
        if job.state == "queued" and job.promised_start is not None:
            late_s = asked_s - datetime.fromisoformat(job.promised_start).timestamp()
            if late_s > PROMISE_S:
                found.append(f"job {job.job_id} is promised a start that was {late_s:.1f} s ago")
    return found


class Lasting:
    """Things that may be for a while, and are a problem when they last: by key, since when on a clock of seconds."""

    def __init__(self, most_s: float) -> None:
        self._most_s = most_s
        self._since_s: dict[object, float] = {}

    def seen(self, keys: Sequence[object], now_s: float, from_s: float = 0.0) -> list[object]:
        """Those of these keys that have been there at each call for longer than that; time before ``from_s`` is free.

        Calls may be far apart: a fault between two of them is told by ``from_s`` alone.
        """
        self._since_s = {key: max(self._since_s.get(key, now_s), from_s) for key in keys}
        return [key for key, since_s in self._since_s.items() if now_s - since_s > self._most_s]

    def forget(self) -> None:
        """What was there does not count any more."""
        self._since_s = {}


def share_differences(jobs: Sequence[JobDoc], recorded: Mapping[int, Shares]) -> list[str]:
    """Where running jobs' processors, as the scheduler has them, are not those that guards have on record.

    ``recorded``: for each job its nodes' processors; a node where the guard does not keep it to some is left out.
    """
    found = []
    for job in jobs:
        if job.state != "running":
            continue
        for share in job.nodes:
            has = recorded.get(job.job_id, {}).get(share.name, -1)
            if has not in (-1, share.cpus):
                found.append(
                    f"job {job.job_id} on {share.name}: {share.cpus} processors by the scheduler, {has} by the guard"
                )
    return found


def recorded_shares(records: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[int, dict[str, int]]:
    """Jobs' processors on each node by guards' records; -1 where the guard does not keep a job to some."""
    found: dict[int, dict[str, int]] = {}
    for node, groups in records.items():
        for record in groups:
            if record["ending"] is None:
                held = record["asleep"] or record["stopped_us"] is not None
                processors = 0 if held else len(record["processors"]) or -1
                found.setdefault(record["request"]["job"], {})[node] = processors
    return found
