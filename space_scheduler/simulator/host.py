"""The host of the core on a virtual clock: :func:`drive` has a core live through a world, event by event.

The world of :func:`simulate` is a dedicated machine of interchangeable processors that runs a workload, or a
:class:`Site` of named nodes with owners, where jobs that share nodes take as long as their rates have it; that of
``space_scheduler.replay`` is what really happened to a live service. In a simulation events are taken in order of time.
With ``ties=batch`` (the default) all events of an instant are handled and one pass runs, as in the live service. With
``ties=sequential`` one pass runs for each event, at one instant submissions before ends, each kind in the order of the
log: the rule of other simulators, for comparing job by job.
"""

import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain
from typing import Protocol, TypedDict, Unpack

import numpy as np
from msgspec import structs

from cosched.model.time import FOREVER_US, plain_seconds
from cosched.workload.rules import AtLimit, Workload
from cosched.workload.schedule import Schedule, settled
from space_scheduler.eligibility.dependency import DEPENDENCY
from space_scheduler.machine.events import Event
from space_scheduler.machine.instructions import Instruction
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Policy, traits_of
from space_scheduler.progress import NodeCpu
from space_scheduler.simulator.predicting import PredictedRun
from space_scheduler.simulator.site import Site, SiteRun
from space_scheduler.simulator.truth import LearningRun
from space_scheduler.simulator.world import Run, Stuck

__all__ = [
    "Observer",
    "Outcome",
    "Simulation",
    "Site",
    "Stuck",
    "Ties",
    "World",
    "begin",
    "drive",
    "simulate",
    "site_rules",
]

_log = logging.getLogger(__name__)
Observer = Callable[[int, Event, list[Instruction]], None]


class Ties(StrEnum):
    """How many passes an instant gets."""

    BATCH = "batch"
    SEQUENTIAL = "sequential"


@dataclass(frozen=True)
class Outcome(Schedule):
    """A schedule and how it came about: ``reasons`` counts the starts by reason, ``passes`` the scheduling passes."""

    reasons: Mapping[str, int]
    passes: int


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

    watched = observer is not None or validate
    gc.disable()  # a core makes no cycles: looking for them takes a twentieth of the CPU of RICC under EASY
    try:
        for now_us, event in world.happenings():
            if watched:
                happened(event, now_us)
            elif instructions := handle(event, now_us):  # the same, without a call for each event
                for following in carry_out(instructions, now_us):
                    happened(following, now_us)
    finally:
        gc.enable()


def site_rules(policy: Policy, site: Site, rules: MachineRules | None = None) -> MachineRules:
    """The rules of a machine that is this site, under this policy."""
    return structs.replace(
        rules or MachineRules(),
        sharing=site.sharing,
        max_nodes_per_job=site.max_nodes_per_job,
        mpl=traits_of(policy).mpl,
        between=site.between,
    )


def node_cpus(state: SchedulerState) -> Mapping[str, NodeCpu]:
    """The nodes of a core as rates depend on them; none where it keeps no rates."""
    rates = state.machine.rates
    return {} if rates is None else rates.occupancy.nodes


class Simulation:
    """A simulation that can be stopped, looked at and carried on (:func:`begin`)."""

    def __init__(self, state: SchedulerState, run: Run, site: Site | None) -> None:
        self._state = state
        self._run = run
        self._site = site
        self._course = _Course(run)

    def until(self, jobs: int) -> Outcome:
        """Carry it on until so many jobs have been submitted, to the end of that instant, and look at them.

        It is what a simulation of these jobs alone would have by then. A job that waits has no start and no end yet
        (``FOREVER_US``), one that runs ends as is predicted of it now. Where it is as far, it stays there.
        """
        course = self._course
        if course.submitted < jobs:
            course.jobs = jobs
            drive(self._state, course)
        return self._outcome(self._run.workload.only(slice(course.submitted)))

    def finish(self, observer: Observer | None = None, *, validate: bool = False) -> Outcome:
        """Carry it on to its end. Raises as :func:`simulate` does, and warns of jobs that were set aside on the way."""
        state = self._state
        self._course.jobs = None
        drive(state, self._course, observer, validate=validate)
        if state.records:
            aside = state.machine.jobs.aside.jobs
            first = next(iter(aside or state.records))
            problem = f": {aside[first].problem}" if aside else ""
            raise Stuck(
                f"{len(state.records)} jobs wait and nothing can happen any more at {plain_seconds(state.now_us)} s; "
                f"job {first}: {state.explain(first)}{problem}"
            )
        if told := self._run.aside:
            words = "passes failed with jobs, which were set aside for a time (%d of them): job %d: %s"
            _log.warning(words, len({each.job_id for each in told}), told[0].job_id, told[0].problem)
        return self._outcome(self._run.workload)

    def _outcome(self, load: Workload) -> Outcome:
        run, site, count = self._run, self._site, len(load)
        start_us, end_us, promised_us = (
            np.array(each[:count], np.int64) for each in (run.starts_us, run.ends_us, run.promised_us)
        )
        waits = start_us < 0
        start_us[waits] = end_us[waits] = FOREVER_US
        work_us = None
        if load.shapes:
            work_us = np.array([-(-each // 1) for each in run.run_us[:count]], np.int64)
        elif site is not None:
            work_us = np.array(run.run_us[:count], np.int64)
        outcome = Outcome(
            load,
            start_us,
            end_us,
            promised_us,
            {why.name.lower(): times for why, times in sorted(run.reasons.items())},
            self._state.passes,
            work_us=work_us,
            holdings=None if run.holdings is None else settled(run.holdings),
        )
        if site is None:
            return outcome
        return replace(
            outcome,
            placed=[run.placed.get(row, ()) for row in range(count)],
            nodes=[node.name for node in site.nodes],
            clusters=[node.cluster for node in site.nodes] if any(node.cluster for node in site.nodes) else (),
        )


class _Course:
    """The world of a run, up to the end of the instant by which ``jobs`` have been submitted; None: to its end.

    ``submitted``: how many there were at the end of the last stretch. That an instant is over is known by what happens
    next, which is taken from the run then and kept for the next stretch.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.jobs: int | None = None
        self.submitted = -1
        self._ahead = iter(run.happenings())
        self._next: tuple[int, Event] | None = None

    def happenings(self) -> Iterator[tuple[int, Event]]:
        ahead = self._ahead if self._next is None else chain((self._next,), self._ahead)
        self._next = None
        return ahead if self.jobs is None else self._stretch(ahead)

    def _stretch(self, ahead: Iterator[tuple[int, Event]]) -> Iterator[tuple[int, Event]]:
        """Up to the end of the instant by which ``jobs`` have been submitted."""
        assert self.jobs is not None
        last_us = FOREVER_US
        for now_us, event in ahead:
            if now_us > last_us:
                self._next = now_us, event
                return
            yield now_us, event
            self.submitted = self.run.submissions.done
            if self.submitted >= self.jobs:
                last_us = now_us

    def carry_out(self, instructions: list[Instruction], now_us: int) -> Sequence[Event]:
        return self.run.carry_out(instructions, now_us)


class Options(TypedDict, total=False):
    """How a workload is simulated: see :func:`begin`."""

    ties: Ties
    at_limit: AtLimit
    launch_delay_us: int
    site: Site | None
    progress: Callable[[int], None] | None
    fold_cost_ppm: int
    resize_cost_us: int
    holdings: bool
    predicted: bool


def simulate(
    workload: Workload,
    policy: Policy,
    *,
    observer: Observer | None = None,
    validate: bool = False,
    **options: Unpack[Options],
) -> Outcome:
    """Run a workload to its end; ``options`` are those of :func:`begin`.

    ``observer`` and ``validate`` are those of :func:`drive`. The same arguments give the same outcome, event by event.
    Raises :class:`Stuck` when jobs wait and nothing can happen any more.
    """
    return begin(workload, policy, **options).finish(observer, validate=validate)


def begin(
    workload: Workload,
    policy: Policy,
    *,
    ties: Ties = Ties.BATCH,
    at_limit: AtLimit = AtLimit.KILL,
    launch_delay_us: int = 0,
    site: Site | None = None,
    progress: Callable[[int], None] | None = None,
    fold_cost_ppm: int = 0,
    resize_cost_us: int = 0,
    holdings: bool = False,
    predicted: bool = False,
) -> Simulation:
    """A simulation of a workload on ``workload.procs_total`` processors, or on a site.

    On a site run times and estimates are those alone on idle nodes. ``progress`` is told how many jobs have been
    submitted, every few thousand. ``fold_cost_ppm`` and ``resize_cost_us`` are those of :class:`MachineRules`;
    ``holdings``: the outcome has what each job held from when on, which it also has where the workload has jobs of
    several widths. ``predicted``: the scheduler goes by its own predictions of rigid jobs' run times on a machine of
    counted processors (``space_scheduler.simulator.predicting``), and kills no job at one.
    """
    kill = at_limit is AtLimit.KILL and not predicted
    sequential = ties is Ties.SEQUENTIAL
    release = kill and sequential and not launch_delay_us and site is None
    rules = MachineRules(
        kill_at_limit=kill, release_at_limit=release, fold_cost_ppm=fold_cost_ppm, resize_cost_us=resize_cost_us
    )
    if site is None:
        kind = PredictedRun if predicted else Run
        run = kind(workload, sequential, launch_delay_us, progress)
    else:
        rules = site_rules(policy, site, rules)
        run = SiteRun(workload, sequential, launch_delay_us, progress, site)
    run.resize_cost_us = resize_cost_us
    run.holdings = [] if holdings or workload.shapes else None
    state = SchedulerState(policy, rules, None if workload.preceding is None else (DEPENDENCY,))
    if site is not None and site.learns and site.sharing is not None:
        run.truth = LearningRun(run, site.sharing, lambda: node_cpus(state), site.between)
    return Simulation(state, run, site)
