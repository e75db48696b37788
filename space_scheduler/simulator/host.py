"""The host of the core on a virtual clock: :func:`drive` has a core live through a world, event by event.

The world of :func:`simulate` is a dedicated machine of interchangeable processors that runs a workload; that of
``space_scheduler.replay`` is what really happened to a live service. In a simulation events are taken in order of time.
With ``ties=batch`` (the default) all events of an instant are handled and one pass runs, as in the live service. With
``ties=sequential`` one pass runs for each event, at one instant submissions before ends, each kind in the order of the
log: the rule of other simulators, for comparing job by job.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from typing import Protocol

import numpy as np

from cosched.errors import Failed
from cosched.model.job import Job, JobState
from cosched.model.time import FOREVER_US, plain_seconds
from cosched.workload.rules import AtLimit, Times, Workload
from cosched.workload.schedule import Schedule
from space_scheduler.machine.events import Boundary, Event, JobEnded, JobLaunched, JobSubmitted, NodesJoined, TimerDue
from space_scheduler.machine.instructions import Instruction, SetTimer, Start, Tell
from space_scheduler.machine.state import MachineRules, SchedulerState
from space_scheduler.policy.interface import Policy
from space_scheduler.reasons import Why

Observer = Callable[[int, Event, list[Instruction]], None]
_CHUNK = 4096
_IDLE_WAKE_UPS = 100_000


class Ties(StrEnum):
    """How many passes an instant gets."""

    BATCH = "batch"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True)
class Outcome(Schedule):
    """A schedule and how it came about: ``reasons`` counts the starts by reason, ``passes`` the scheduling passes."""

    reasons: Mapping[str, int]
    passes: int


class Stuck(Failed):
    """Nothing more can happen and jobs still wait: a policy that starves."""


class World(Protocol):
    """What a core lives in."""

    def happenings(self) -> Iterable[tuple[int, Event]]:
        """What happens, and when; the next is asked for when all that followed from the one before is carried out."""

    def carry_out(self, instructions: list[Instruction], now_us: int) -> Sequence[Event]:
        """Do what the core says; gives the events that follow at once."""


def drive(state: SchedulerState, world: World, observer: Observer | None = None, *, validate: bool = False) -> None:
    """Have a core live through all that happens in a world. Raises what the core, the observer or the world raises.

    ``observer`` sees every event with its instructions before they are carried out; ``validate`` walks every invariant
    after each event (slow, for tests).
    """
    handle, carry_out = state.handle, world.carry_out

    def happened(event: Event, now_us: int) -> None:
        instructions = handle(event, now_us)
        if observer:
            observer(now_us, event, instructions)
        if validate:
            state.validate()
        if instructions:
            for following in carry_out(instructions, now_us):
                happened(following, now_us)

    for now_us, event in world.happenings():
        happened(event, now_us)


def simulate(
    workload: Workload,
    policy: Policy,
    *,
    ties: Ties = Ties.BATCH,
    at_limit: AtLimit = AtLimit.KILL,
    launch_delay_us: int = 0,
    observer: Observer | None = None,
    progress: Callable[[int], None] | None = None,
    validate: bool = False,
) -> Outcome:
    """Run a workload to its end.

    ``observer`` and ``validate`` are those of :func:`drive`; ``progress`` is told how many jobs have been submitted,
    every few thousand. The same arguments give the same outcome, event by event. Raises :class:`Stuck` when jobs wait
    and nothing can happen any more.
    """
    kill = at_limit is AtLimit.KILL
    sequential = ties is Ties.SEQUENTIAL
    rules = MachineRules(kill_at_limit=kill, release_at_limit=kill and sequential and not launch_delay_us)
    state = SchedulerState(policy, rules)
    run = _Run(workload, sequential, launch_delay_us, progress)
    drive(state, run, observer, validate=validate)
    if state.records:
        first = next(iter(state.records))
        raise Stuck(
            f"{len(state.records)} jobs wait and nothing can happen any more at {plain_seconds(state.now_us)} s; "
            f"job {workload.job_id[first]}: {state.explain(first)}"
        )
    reasons = {why.name.lower(): times for why, times in sorted(run.reasons.items())}
    return Outcome(workload, run.starts_us, run.ends_us, run.promised_us, reasons, state.passes)


class _Run:
    """The world of a simulation: jobs come as the workload has them, and run for as long as it says."""

    def __init__(
        self, workload: Workload, sequential: bool, launch_delay_us: int, progress: Callable[[int], None] | None
    ) -> None:
        self.workload = workload
        self.sequential = sequential
        self.launch_delay_us = launch_delay_us
        self.progress = progress
        self.tell_at = _CHUNK
        count = len(workload)
        self.starts_us: Times = np.full(count, -1, np.int64)
        self.ends_us: Times = np.full(count, -1, np.int64)
        self.promised_us: Times = np.full(count, -1, np.int64)
        self.reasons: Counter[Why] = Counter()
        self.run_us: list[int] = workload.run_us.tolist()
        self.timed_out: list[bool] = workload.timed_out.tolist()
        self.submissions = _Submissions(workload)
        self.agenda: list[tuple[int, int, Event]] = []  # (time, in order of entry, event): a heap
        self.entries = 0
        self.idle_wake_ups = 0
        self.timer_us = FOREVER_US

    def happenings(self) -> Iterator[tuple[int, Event]]:
        yield 0, NodesJoined(self.workload.procs_total)
        yield 0, Boundary()
        submissions, agenda, sequential = self.submissions, self.agenda, self.sequential
        while True:
            next_end_us = agenda[0][0] if agenda else FOREVER_US
            next_us = submissions.next_us if submissions.next_us < next_end_us else next_end_us
            now_us = next_us if next_us < self.timer_us else self.timer_us
            if now_us == FOREVER_US:
                return
            self._count_wake_ups(alone=now_us < next_us)
            while submissions.next_us == now_us:
                yield now_us, JobSubmitted(submissions.take())
                if sequential:
                    yield now_us, Boundary()
            if self.progress and submissions.done >= self.tell_at:
                self.tell_at = submissions.done + _CHUNK
                self.progress(submissions.done)
            while agenda and agenda[0][0] == now_us:  # what follows from one of them at this time included
                yield now_us, heappop(agenda)[2]
                if sequential:
                    yield now_us, Boundary()
            if self.timer_us <= now_us:
                self.timer_us = FOREVER_US
                yield now_us, TimerDue()
                if sequential:
                    yield now_us, Boundary()
            if not sequential:
                yield now_us, Boundary()

    def _count_wake_ups(self, *, alone: bool) -> None:
        """A policy that asks for the timer again and again while nothing else happens is stopped."""
        self.idle_wake_ups = self.idle_wake_ups + 1 if alone else 0
        if self.idle_wake_ups > _IDLE_WAKE_UPS:
            raise Stuck(f"the policy asked {_IDLE_WAKE_UPS} times in a row to be woken, and nothing else happened")

    def carry_out(self, instructions: list[Instruction], now_us: int) -> list[Event]:
        launched: list[Event] = []
        for instruction in instructions:
            if isinstance(instruction, Start):
                self._start(instruction, now_us)
                if not self.launch_delay_us:
                    launched.append(JobLaunched(instruction.job.id))
            elif isinstance(instruction, Tell):
                if self.promised_us[instruction.job_id] < 0:
                    self.promised_us[instruction.job_id] = instruction.promised_us
            elif isinstance(instruction, SetTimer):
                self.timer_us = instruction.at_us
        return launched

    def _start(self, start: Start, now_us: int) -> None:
        index = start.job.id
        self.reasons[start.reason.why] += 1
        up_us = now_us + self.launch_delay_us
        run_us, timed_out = self.run_us[index], self.timed_out[index]
        if start.limit_us is not None and run_us > start.limit_us:
            run_us, timed_out = start.limit_us, True
        end_us = up_us + run_us
        self.starts_us[index] = up_us
        self.ends_us[index] = end_us
        if self.launch_delay_us:
            self._enter(up_us, JobLaunched(index))
        self._enter(end_us, JobEnded(index, JobState.TIMED_OUT if timed_out else JobState.COMPLETED))

    def _enter(self, at_us: int, event: Event) -> None:
        self.entries += 1
        heappush(self.agenda, (at_us, self.entries, event))


class _Submissions:
    """The workload's jobs, made as their time comes: a million of them are never in memory at once."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.done = 0
        self._rows: Iterator[tuple[int, int, int, int]] = iter(())
        self._next: tuple[int, int, int, int] | None = None
        self.next_us = FOREVER_US
        self._step()

    def take(self) -> Job:
        """The next job; its id is its index in the workload."""
        assert self._next is not None
        submit_us, procs, estimate_us, user = self._next
        job = Job(self.done, procs, estimate_us, submit_us, user)
        self.done += 1
        self._step()
        return job

    def _step(self) -> None:
        if self.done % _CHUNK == 0:
            part = slice(self.done, self.done + _CHUNK)
            load = self.workload
            columns = (load.submit_us[part], load.procs[part], load.estimate_us[part], load.user[part])
            self._rows = zip(*(column.tolist() for column in columns), strict=True)
        self._next = next(self._rows, None)
        self.next_us = self._next[0] if self._next else FOREVER_US
