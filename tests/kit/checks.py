"""The promises of the core as checks of what was seen, whatever the machine's own books say. Each raises ``Broken``."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, settings

from cosched.model.job import Job
from cosched.model.time import FOREVER_US
from cosched.workload.rules import Workload
from kit.drive import policy_named
from kit.loads import TELLING, story
from space_scheduler.machine.events import Event, JobEnded, JobSubmitted
from space_scheduler.machine.instructions import Instruction, Start, Tell
from space_scheduler.policy.interface import Plan, Policy, Snapshot
from space_scheduler.simulator import host
from space_scheduler.simulator.host import Outcome, Stuck, Ties

#: For what is asked of each policy in turn: few examples for each. All together have many times as many.
of_each = settings(max_examples=max(12, settings().max_examples * 3 // 25))

Seen = tuple[int, Event, list[Instruction]]


class Broken(AssertionError):
    """A promise was not kept."""


def hold(promise: bool, what: str) -> None:
    if not promise:
        raise Broken(what)


@dataclass
class Run:
    """What a simulation did, as its observer saw it."""

    outcome: Outcome
    seen: list[Seen] = field(default_factory=list)


def run(load: Workload, policy: Policy | str, ties: Ties = Ties.BATCH, **options: object) -> Run:
    seen: list[Seen] = []
    policy = policy_named(policy) if isinstance(policy, str) else policy
    try:
        outcome = host.simulate(
            load,
            policy,
            ties=ties,
            observer=lambda *what: seen.append(what),
            **options,  # type: ignore[arg-type]
        )
    except Stuck as stuck:
        raise Broken(f"{stuck}; {story(load)}") from stuck
    return Run(outcome, seen)


# checks of an outcome


def processors_are_not_over_committed(outcome: Outcome) -> None:
    """At no time do more processors run jobs than the machine has. Intervals are half-open."""
    load = outcome.workload
    steps = [(int(at), -int(procs)) for at, procs in zip(outcome.end_us, load.procs, strict=True)]
    steps += [(int(at), int(procs)) for at, procs in zip(outcome.start_us, load.procs, strict=True)]
    busy = 0
    for at, procs in sorted(steps):  # at one time ends come first: their numbers are negative
        busy += procs
        hold(busy <= load.procs_total, f"{busy} of {load.procs_total} processors busy at {at} µs; {story(load)}")


def starts_are_possible(outcome: Outcome) -> None:
    """Nobody starts before being submitted, and everybody runs as long as the job is."""
    load = outcome.workload
    for job, (start, end) in enumerate(zip(outcome.start_us, outcome.end_us, strict=True)):
        hold(start >= load.submit_us[job], f"job {job} starts at {start}, before its submission; {story(load)}")
        hold(end - start == load.run_us[job], f"job {job} runs {end - start} µs; {story(load)}")


def first_promises_are_kept(outcome: Outcome) -> None:
    """No job starts after the first start that was promised to it."""
    for job, (start, promised) in enumerate(zip(outcome.start_us, outcome.promised_us, strict=True)):
        if promised >= 0:
            hold(start <= promised, f"job {job} starts at {start}, promised {promised}; {story(outcome.workload)}")


def starts_follow_arrivals(outcome: Outcome) -> None:
    """First come, first served: nobody starts before one who came earlier."""
    hold(not outcome.backfilled.any(), f"starts {outcome.start_us.tolist()}; {story(outcome.workload)}")


# checks of what the observer saw


def no_promise_is_moved_later(seen: Sequence[Seen]) -> None:
    promised: dict[int, int] = {}
    for now, _, instructions in seen:
        for tell in instructions:
            if isinstance(tell, Tell):
                before = promised.get(tell.job_id, FOREVER_US)
                hold(
                    tell.promised_us <= before, f"at {now} job {tell.job_id} moves from {before} to {tell.promised_us}"
                )
                promised[tell.job_id] = tell.promised_us


def each_job_ends_exactly_once(done: Run) -> None:
    load = done.outcome.workload
    submitted = Counter(event.job.id for _, event, _ in done.seen if isinstance(event, JobSubmitted))
    started = Counter(i.job.id for _, _, told in done.seen for i in told if isinstance(i, Start))
    ended = Counter(event.job_id for _, event, _ in done.seen if isinstance(event, JobEnded))
    everyone = Counter(range(len(load)))
    for what, counts in (("submitted", submitted), ("started", started), ("ended", ended)):
        hold(counts == everyone, f"{what}: {dict(counts)} of {len(load)} jobs; {story(load)}")


# checks of one pass


class Watched:
    """A policy whose every pass is looked at: what it starts moves no reservation of the first n waiting jobs."""

    def __init__(self, policy: Policy, reservations: int) -> None:
        self.policy = policy
        self.order = policy.order
        self.reservations = reservations

    def plan(self, snapshot: Snapshot) -> Plan:
        plan = self.policy.plan(snapshot)
        started = {start.job.id for start in plan.changes}
        waiting = list(snapshot.queue)
        heads = 0
        while heads < len(waiting) and waiting[heads].id in started:
            heads += 1
        reserved = [job for job in waiting[heads:][: self.reservations] if job.id not in started]
        first = {job.id for job in waiting[: heads + self.reservations]}
        spans = [(end, procs) for end, _, procs in snapshot.ends]
        spans += [(snapshot.now_us + j.estimate_us, j.procs) for j in waiting if j.id in started & first]
        late = [(snapshot.now_us + j.estimate_us, j.procs) for j in waiting if j.id in started - first]
        without = reservations(snapshot, spans, reserved)
        with_them = reservations(snapshot, spans + late, reserved)
        hold(without == with_them, f"at {snapshot.now_us} reservations move from {without} to {with_them}")
        return plan


def reservations(snapshot: Snapshot, busy: list[tuple[int, int]], jobs: list[Job]) -> dict[int, int]:
    """The earliest start of each job in turn, beside ``busy`` (until, processors) and the ones before it."""
    spans = [(snapshot.now_us, until, procs) for until, procs in busy]
    starts: dict[int, int] = {}
    for job in jobs:
        for at in sorted({snapshot.now_us, *(end for _, end, _ in spans)}):
            moments = [at] + [start for start, _, _ in spans if at < start < at + job.estimate_us]
            if all(job.procs + sum(p for s, e, p in spans if s <= m < e) <= snapshot.procs_total for m in moments):
                starts[job.id] = at
                spans.append((at, at + job.estimate_us, job.procs))
                break
    return starts


# the harness is tested too


def fails(promise: Callable[[Workload], object]) -> None:
    """One of the telling workloads breaks the promise."""

    def search() -> None:
        for load in TELLING:
            promise(load)

    with pytest.raises(Broken):
        search()


def telling(**rest: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A property is asked of the telling workloads, and of a third as many drawn ones as others."""

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        for load in TELLING:
            test = example(load=load, **rest)(test)
        return settings(max_examples=max(20, settings().max_examples * 3 // 10))(test)

    return decorate
