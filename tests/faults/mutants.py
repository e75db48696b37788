"""Schedulers that break a promise on purpose: each has to be found, or the judge sees nothing."""

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any
from unittest.mock import patch

import msgspec

from cosched.config.cluster import ClusterConfig
from cosched.model.components import Between
from cosched.model.contract import SocialContract, offered
from cosched.model.job import JobState
from cosched.model.node import Node
from cosched.wire import messages as wire
from faults.scheduler import Scheduler
from faults.worker import Worker
from faults.world import S
from space_scheduler.clusters import Clusters
from space_scheduler.eligibility.rule import Rule
from space_scheduler.machine import blame
from space_scheduler.machine import events as ev
from space_scheduler.machine.blame import Found
from space_scheduler.policy.interface import Plan, PlannedStart, Policy, Snapshot
from space_scheduler.service.core import worker as fx
from space_scheduler.service.core.journalled import Opened
from space_scheduler.service.core.worker import Post, Steps, Work, WorkerCore
from space_scheduler.service.journal import jobs, journal, reading
from space_scheduler.service.launch import values as given
from space_scheduler.service.launch.gang import Ended, Gang, Order
from space_scheduler.service.launch.nodes import NodeEntry
from space_scheduler.service.launch.orders import OrderKind
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import Effect, Send, SetTimer

# --- the worker -------------------------------------------------------------------------------------------------------


class _AnswersFirst(WorkerCore):
    def _commit(self, done: list[fx.Answer]) -> Steps[None]:
        if done:
            yield fx.HandOut(done, [])
        self._wanted = self._wanted or any(each.work.decides for each in done)
        yield from super()._commit([])


class AnswersBeforeCommit(Scheduler):
    """Who submits a job is told that it is accepted before it is in the journal."""

    worker_type = _AnswersFirst


class _Hasty(Worker):
    def _carry_out(self, effect: fx.Effect) -> fx.Outcome:
        if isinstance(effect, fx.HandOut):
            effect = fx.HandOut(effect.answers, [each for each in effect.committed if each.seq not in self.handed])
        outcome = super()._carry_out(effect)
        if isinstance(effect, fx.Decide):
            early = list(self._found.core._committed)
            self.handed |= {each.seq for each in early}
            super()._carry_out(fx.Publish(0, True, "", True))
            super()._carry_out(fx.HandOut([], early))
        return outcome

    @property
    def handed(self) -> set[int]:
        handed: set[int] = self.__dict__.setdefault("_handed", set())
        return handed

    @handed.setter
    def handed(self, seqs: set[int]) -> None:
        self.__dict__["_handed"] = seqs


class EarlyStarter(Scheduler):
    """What a pass has decided is carried out before it is in the journal."""

    thread_type = _Hasty


class _DropsReports(WorkerCore):
    def _refuse(self, works: Sequence[Work]) -> Steps[None]:
        yield from super()._refuse(works)
        self._held_back.clear()


class ForgetsReports(Scheduler):
    """What nodes report while the disk is full is forgotten."""

    worker_type = _DropsReports


class _GivesUp(WorkerCore):
    def _writable_again(self) -> Steps[bool]:
        moment = yield fx.Look()
        assert isinstance(moment, fx.Moment)
        self._not_before_s = moment.monotonic_s + 1
        return False


class GivesUp(Scheduler):
    """A disk that was full once is not tried again."""

    worker_type = _GivesUp


class _SpinsToTheInterval(WorkerCore):
    def pause_s(self, moment: fx.Moment) -> float | None:
        over = moment.pass_due_us is not None and moment.pass_due_us <= moment.core_us
        return 0.0 if over and not self._unwritable else super().pause_s(moment)


class SpinsToTheInterval(Scheduler):
    """The policy's timer is over, the interval between two passes is not: the worker turns until it is. (It was so.)"""

    worker_type = _SpinsToTheInterval


class RefusesReports(Scheduler):
    """What the rules have found is refused while the disk is full, as a wish is. (It was so: seed 109.)"""

    def _post(self, event: ev.Event, note: str = "", facts: Any = None, *, wish: bool = False) -> None:
        wish = wish or isinstance(event, ev.NodeDrained | ev.NodeResumed)
        super()._post(event, note, facts, wish=wish)


# --- the rules --------------------------------------------------------------------------------------------------------


class _Rules(ServiceCore):
    def changed(self, effect: Effect) -> Effect | None:
        return effect

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        effects = [self.changed(effect) for effect in super().handle(happened, now_s)]
        return [effect for effect in effects if effect is not None]


class _LosesLimits(_Rules):
    after_restart = False

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        self.after_restart = self.after_restart or (isinstance(happened, given.Started) and bool(happened.jobs))
        return super().handle(happened, now_s)

    def changed(self, effect: Effect) -> Effect:
        if self.after_restart and isinstance(effect, Send) and isinstance(effect.message, wire.Prepare):
            return Send(effect.node, msgspec.structs.replace(effect.message, limit_us=None))
        return effect


class LosesLimits(Scheduler):
    """A job that is prepared after a restart has no limit."""

    rules_type = _LosesLimits


class GangRules(_Rules):
    """All gangs are of another type."""

    gang_type: type[Gang]

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        for launch in self.launches.attempts.values():
            launch.gang.__class__ = self.gang_type
        return super().handle(happened, now_s)


class HastyGang(Gang):
    """Runs the script as soon as its own node is ready."""

    def prepared(self, node: str) -> list[Any]:
        actions = super().prepared(node)
        if not actions and node == self.first and len(self.nodes) > 1:
            return [Order(node, OrderKind.RUN)]
        return actions


class _HastyRules(GangRules):
    gang_type = HastyGang


class Hasty(Scheduler):
    """The script runs before all nodes are ready."""

    rules_type = _HastyRules


class BelievingGang(Gang):
    """Whichever node says that the script has ended, it has."""

    def program_ended(self, node: str, how: wire.Exit, error_tail: bytes = b"") -> list[Any]:
        return super().program_ended(self.first, how, error_tail)


class _BelievingRules(GangRules):
    gang_type = BelievingGang


class BelievesAnyNode(Scheduler):
    """Any node of a job may say that its script has ended."""

    rules_type = _BelievingRules


class CarelessGang(Gang):
    """What may have run is taken for not run."""

    def _finished(self) -> list[Any]:
        found = super()._finished()
        lost = (JobState.NODE_LOST, JobState.LAUNCH_FAILED)
        return [
            msgspec.structs.replace(each, unrun=True, outcome=JobState.LAUNCH_FAILED, blamed=each.blamed or self.nodes)
            if isinstance(each, Ended) and each.outcome in lost
            else each
            for each in found
        ]


class _CarelessRules(GangRules):
    gang_type = CarelessGang


class RunsAgain(Scheduler):
    """A launch is tried again though the script may have run."""

    rules_type = _CarelessRules


class _Relauncher(_Rules):
    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        effects = super().handle(happened, now_s)
        if isinstance(happened, given.Started):
            effects += [
                Post(ev.JobEnded(job.id, JobState.NODE_LOST)) for job in happened.jobs if job.state is JobState.RUNNING
            ]
        return effects


class Relauncher(Scheduler):
    """A job that runs when the scheduler is started anew is given up instead of adopted."""

    rules_type = _Relauncher


class _DeafToLeases(_Rules):
    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        return [] if isinstance(happened, given.Ticked) else super().handle(happened, now_s)


class DeafToLeases(Scheduler):
    """A node that is silent stays in service for ever."""

    rules_type = _DeafToLeases


class _Forgetful(_Rules):
    def changed(self, effect: Effect) -> Effect | None:
        return None if isinstance(effect, Send) and isinstance(effect.message, wire.Forget) else effect


class Leaker(Scheduler):
    """Nodes are never told that they may forget a job."""

    rules_type = _Forgetful


class _Patient(_Rules):
    def changed(self, effect: Effect) -> Effect | None:
        return None if isinstance(effect, SetTimer) else effect


class _NoUids(_Rules):
    def changed(self, effect: Effect) -> Effect:
        if isinstance(effect, Send) and isinstance(effect.message, wire.Prepare):
            return Send(effect.node, msgspec.structs.replace(effect.message, uid=None))
        return effect


class SaysNoUid(Scheduler):
    """Nodes are not told the uids of submitters."""

    rules_type = _NoUids


class IgnoresTimeouts(Scheduler):
    """A launch may take as long as it takes."""

    rules_type = _Patient


class _Trusting(_Rules):
    def changed(self, effect: Effect) -> Effect | None:
        aside = isinstance(effect, Post) and isinstance(effect.event, ev.NodeDrained)
        return None if aside and effect.event.reason.startswith("set aside") else effect  # type: ignore[union-attr]


class DeafToFlapping(Scheduler):
    """A node that comes and goes is never set aside."""

    rules_type = _Trusting


class _Doubling(_Rules):
    def changed(self, effect: Effect) -> Effect:
        if isinstance(effect, Post) and isinstance(effect.event, ev.NodeJoined):
            node = effect.event.node
            return Post(ev.NodeJoined(msgspec.structs.replace(node, procs=2 * node.procs)))
        return effect


class DoubleBooker(Scheduler):
    """Each place is given away twice."""

    rules_type = _Doubling


class _Unowned(NodeEntry):
    def offers(self, contract: SocialContract) -> Node:
        assert self.hello is not None
        return offered(contract, self.name, self.hello.procs, self.hello.memory_bytes, memory_is_relaxed=False)


class _DeafToOwners(_Rules):
    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        for entry in self.book:
            entry.__class__ = _Unowned
        return super().handle(happened, now_s)


class IgnoresOwners(Scheduler):
    """The cluster's contract counts, whatever a desk's owner allows."""

    rules_type = _DeafToOwners


class BelievesWallClock(Scheduler):
    """Leases are counted by a clock that people set."""

    def now_s(self) -> float:
        return (self.world.wall_us + self.world.now_us) / S


# --- restarts and policies --------------------------------------------------------------------------------------------


class TellsEpochFirst(Scheduler):
    """Nodes are told an epoch that is not on the disk: a crash takes it back."""

    def crash(self) -> None:
        was_alive = self.alive
        super().crash()
        if was_alive and self.path.exists():
            with closing(sqlite3.connect(self.path)) as database:
                database.execute("DELETE FROM runs WHERE epoch = ?", (self.fence.epoch,))
                database.commit()


class ForgetsRules(Scheduler):
    """A scheduler that is started anew asks no rules before the queue."""

    def eligibility(self, config: ClusterConfig) -> Sequence[Rule]:
        return () if self.starts else super().eligibility(config)


class KeepsOldTotals(Scheduler):
    """A start under another multiprogramming level counts with the places of before."""

    totals: tuple[ClusterConfig, int] | None = None

    def _serve(self, found: Opened) -> None:
        capacity: Any = found.core.state.machine.capacity
        if self.totals is not None and self.totals[0].contract.mpl != self.config.contract.mpl:
            capacity.procs_total, capacity.free_procs = self.totals[1], self.totals[1]
        self.totals = self.config, capacity.procs_total
        super()._serve(found)


class Starver(Scheduler):
    """Every third job is never started."""

    def policy(self, config: ClusterConfig) -> Policy:
        policy = super().policy(config)
        plan: Callable[[Snapshot], Plan] = policy.plan

        def starving(snapshot: Snapshot) -> Plan:
            found = plan(snapshot)
            kept = [each for each in found.changes if not (isinstance(each, PlannedStart) and each.job.id % 3 == 0)]
            return msgspec.structs.replace(found, changes=kept)

        object.__setattr__(policy, "plan", starving)
        return policy


@contextmanager
def no_checksums() -> Iterator[None]:
    """A journal whose rows have no checksums: what is there is believed."""
    with ExitStack() as patched:
        for module in (journal, reading, jobs):
            patched.enter_context(patch.object(module, "checksum", lambda *parts, start=0: 0))
            if hasattr(module, "agrees"):
                patched.enter_context(patch.object(module, "agrees", lambda expected, *parts, start=0: True))
        yield


@contextmanager
def no_lock() -> Iterator[None]:
    """Nothing keeps a second scheduler from a journal."""
    with patch("space_scheduler.service.journal.schema.fcntl.flock", lambda *_: None):
        yield


#: Each with the promise that the judge names (empty: any), and the first seed that finds it: a test begins there.
SCHEDULERS: dict[type[Scheduler], tuple[str, int]] = {
    AnswersBeforeCommit: ("P2", 6),
    EarlyStarter: ("", 7),
    ForgetsReports: ("", 24),
    GivesUp: ("", 0),
    SpinsToTheInterval: ("O17", 7),
    RefusesReports: ("O10", 51),
    LosesLimits: ("P1", 0),
    Hasty: ("P1", 5),
    RunsAgain: ("P2", 26),
    BelievesAnyNode: ("P2", 46),
    Relauncher: ("", 0),
    DeafToLeases: ("O10", 32),
    Leaker: ("D6", 0),
    SaysNoUid: ("O16", 0),
    IgnoresTimeouts: ("P1", 51),
    DeafToFlapping: ("O5", 80),
    DoubleBooker: ("P6", 39),
    IgnoresOwners: ("P6", 1),
    BelievesWallClock: ("O10", 5),
    TellsEpochFirst: ("", 0),
    KeepsOldTotals: ("O11", 11),
    ForgetsRules: ("E1", 3),
    Starver: ("P4", 0),
}


@contextmanager
def wedged() -> Iterator[None]:
    """A pass that fails because of one job is not made again without it. (It was so.)"""

    def raised(_attempt: object, _known: object, _new: object, error: Exception) -> Found:
        raise error

    with patch.object(blame, "without_culprits", raised):
        yield


@contextmanager
def no_labs() -> Iterator[None]:
    """Components are laid on nodes, whichever lab those belong to."""

    def named(names: Sequence[str], between: Between | None, key: object = None) -> Clusters:
        own = tuple(str(index) for index in range(len(names)))
        return Clusters(own, tuple(range(len(names))), between or Between(), alone=tuple(range(len(names))))

    with patch.object(Clusters, "named", named):
        yield
