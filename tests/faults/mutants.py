"""Schedulers that break a promise on purpose: each has to be found, or the judge sees nothing."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from typing import Any, TypeVar, cast
from unittest.mock import patch

import msgspec

from cosched.config.cluster import ClusterConfig
from cosched.model.components import Between
from cosched.model.contract import SocialContract, offered
from cosched.model.desk import Wakeable
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
from space_scheduler.service.launch.owners import Sleepers
from space_scheduler.service.launch.resizing import Kept, Resizing, Stage
from space_scheduler.service.launch.service_core import ServiceCore
from space_scheduler.service.launch.values import Effect, Send, SetTimer

Host = TypeVar("Host")


def altered(host: type[Host], **parts: Any) -> type[Host]:
    """A host with other parts, named like the first of them."""
    return cast(type[Host], type(next(iter(parts.values())).__name__, (host,), parts))


def ruled(before: Callable[[ServiceCore], None]) -> type[Scheduler]:
    """A scheduler to whose rules something is done before each input."""

    def handle(self: ServiceCore, happened: given.AnyInput, now_s: float) -> list[Effect]:
        before(self)
        return ServiceCore.handle(self, happened, now_s)

    return altered(Scheduler, rules_type=type(before.__name__, (ServiceCore,), {"handle": handle}))


def with_parts(part: type, parts: Callable[[ServiceCore], Iterable[Any]]) -> type[Scheduler]:
    """A scheduler all of whose rules' gangs, resizes, … are of another type."""

    def before(rules: ServiceCore) -> None:
        for each in parts(rules):
            each.__class__ = part

    before.__name__ = part.__name__
    return ruled(before)


def gangs(rules: ServiceCore) -> list[Gang]:
    """Those of all jobs."""
    return [launch.gang for launch in rules.launches.attempts.values()]


def resizings(rules: ServiceCore) -> list[Resizing]:
    """Those that are under way."""
    return [launch.resizing for launch in rules.launches.attempts.values() if launch.resizing is not None]


def changing(changed: Callable[[Effect], Effect | None]) -> type[Scheduler]:
    """A scheduler whose rules' effects are changed, or left out."""

    def handle(self: ServiceCore, happened: given.AnyInput, now_s: float) -> list[Effect]:
        effects = [changed(effect) for effect in ServiceCore.handle(self, happened, now_s)]
        return [effect for effect in effects if effect is not None]

    return altered(Scheduler, rules_type=type(changed.__name__, (ServiceCore,), {"handle": handle}))


# --- the worker -------------------------------------------------------------------------------------------------------


class AnswersBeforeCommit(WorkerCore):
    """A submission is answered before it is in the journal."""

    def _commit(self, done: list[fx.Answer]) -> Steps[None]:
        if done:
            yield fx.HandOut(done, [])
        self._wanted = self._wanted or any(each.work.decides for each in done)
        yield from super()._commit([])


class EarlyStarter(Worker):
    """What a pass has decided is carried out before it is in the journal."""

    def _carry_out(self, effect: fx.Effect) -> fx.Outcome:
        handed: set[int] = self.__dict__.setdefault("handed", set())
        if isinstance(effect, fx.HandOut):
            effect = fx.HandOut(effect.answers, [each for each in effect.committed if each.seq not in handed])
        outcome = super()._carry_out(effect)
        if isinstance(effect, fx.Decide):
            early = list(self._found.core._committed)
            handed |= {each.seq for each in early}
            super()._carry_out(fx.Publish(0, True, "", True))
            super()._carry_out(fx.HandOut([], early))
        return outcome


class ForgetsReports(WorkerCore):
    """What nodes report while the disk is full is forgotten."""

    def _refuse(self, works: Sequence[Work]) -> Steps[None]:
        yield from super()._refuse(works)
        self._held_back.clear()


class GivesUp(WorkerCore):
    """A disk that was full once is not tried again."""

    def _writable_again(self) -> Steps[bool]:
        moment = yield fx.Look()
        assert isinstance(moment, fx.Moment)
        self._not_before_s = moment.monotonic_s + 1
        return False


class SpinsToTheInterval(WorkerCore):
    """The policy's timer is over, the interval between two passes is not: the worker turns until it is. (It was so.)"""

    def pause_s(self, moment: fx.Moment) -> float | None:
        over = moment.pass_due_us is not None and moment.pass_due_us <= moment.core_us
        return 0.0 if over and not self._unwritable else super().pause_s(moment)


class RefusesReports(Scheduler):
    """What the rules have found is refused while the disk is full, as a wish is. (It was so: seed 109.)"""

    def _post(self, event: ev.Event, note: str = "", facts: Any = None, *, wish: bool = False) -> None:
        wish = wish or isinstance(event, ev.NodeDrained | ev.NodeResumed)
        super()._post(event, note, facts, wish=wish)


# --- the rules --------------------------------------------------------------------------------------------------------


class LosesLimits(ServiceCore):
    """A job that is prepared after a restart has no limit."""

    after_restart = False

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        self.after_restart = self.after_restart or (isinstance(happened, given.Started) and bool(happened.jobs))
        effects = super().handle(happened, now_s)
        return [_prepared(effect, limit_us=None) for effect in effects] if self.after_restart else effects


def _prepared(effect: Effect, **changes: Any) -> Effect:
    """The effect; an order to prepare a job is changed."""
    if isinstance(effect, Send) and isinstance(effect.message, wire.Prepare):
        return Send(effect.node, msgspec.structs.replace(effect.message, **changes))
    return effect


class Hasty(Gang):
    """The script runs as soon as its own node is ready, before all others are."""

    def prepared(self, node: str) -> list[Any]:
        actions = super().prepared(node)
        if not actions and node == self.first and len(self.nodes) > 1:
            return [Order(node, OrderKind.RUN)]
        return actions


class BelievesAnyNode(Gang):
    """Any node of a job may say that its script has ended."""

    def program_ended(self, node: str, how: wire.Exit, error_tail: bytes = b"") -> list[Any]:
        return super().program_ended(self.first, how, error_tail)


class RunsAgain(Gang):
    """A launch is tried again though the script may have run."""

    def _finished(self) -> list[Any]:
        found = super()._finished()
        lost = (JobState.NODE_LOST, JobState.LAUNCH_FAILED)
        return [
            msgspec.structs.replace(each, unrun=True, outcome=JobState.LAUNCH_FAILED, blamed=each.blamed or self.nodes)
            if isinstance(each, Ended) and each.outcome in lost
            else each
            for each in found
        ]


class WaitsForStalledStarts(Gang):
    """A job whose script never began waits for a node that cannot end it."""

    def cannot_end(self, node: str) -> list[Any]:
        return []


class CountsBeforeAllHaveAnswered(Resizing):
    """A job is counted with its new share when the first of its nodes has it."""

    def answered(self, node: str) -> list[Any]:
        self._waits &= {node}
        return super().answered(node)


class LeavesWhatItHasChanged(Resizing):
    """Where one node refuses a new share, the others keep it."""

    def _undo(self, why: str, unchanged: str = "") -> list[Any]:
        self.stage = Stage.OVER
        return [Kept(why)]


class Relauncher(ServiceCore):
    """A job that runs when the scheduler is started anew is given up instead of adopted."""

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        effects = super().handle(happened, now_s)
        if isinstance(happened, given.Started):
            running = [job.id for job in happened.jobs if job.state is JobState.RUNNING]
            effects += [Post(ev.JobEnded(job_id, JobState.NODE_LOST)) for job_id in running]
        return effects


class DeafToLeases(ServiceCore):
    """A node that is silent stays in service for ever."""

    def handle(self, happened: given.AnyInput, now_s: float) -> list[Effect]:
        return [] if isinstance(happened, given.Ticked) else super().handle(happened, now_s)


class NeverComparesAHeartbeat(ServiceCore):
    """What nodes say with their heartbeats that they were told of jobs is not compared with what the core holds."""

    def __init__(self, *made: Any) -> None:
        super().__init__(*made)
        self.launches.audit.heard = lambda entry, said, there: None  # type: ignore[method-assign]


def leaks(effect: Effect) -> Effect | None:
    """Nodes are never told that they may forget a job."""
    return None if isinstance(effect, Send) and isinstance(effect.message, wire.Forget) else effect


def says_no_uid(effect: Effect) -> Effect:
    """Nodes are not told the uids of submitters."""
    return _prepared(effect, uid=None)


def ignores_timeouts(effect: Effect) -> Effect | None:
    """A launch may take as long as it takes."""
    return None if isinstance(effect, SetTimer) else effect


def deaf_to_flapping(effect: Effect) -> Effect | None:
    """A node that comes and goes is never set aside."""
    aside = isinstance(effect, Post) and isinstance(effect.event, ev.NodeDrained)
    return None if aside and effect.event.reason.startswith("set aside") else effect  # type: ignore[union-attr]


def double_books(effect: Effect) -> Effect:
    """Each place is given away twice."""
    if isinstance(effect, Post) and isinstance(effect.event, ev.NodeJoined):
        node = effect.event.node
        return Post(ev.NodeJoined(msgspec.structs.replace(node, procs=2 * node.procs)))
    return effect


class IgnoresOwners(NodeEntry):
    """The cluster's contract counts, whatever a desk's owner allows."""

    def offers(self, contract: SocialContract) -> Node:
        assert self.hello is not None
        return offered(contract, self.name, self.hello.procs, self.hello.memory_bytes, memory_is_relaxed=False)


def gives_held_processors(rules: ServiceCore) -> None:
    """What is left of an attempt that was given up counts for nothing."""
    for entry in rules.book:
        entry.left.clear()


class BelievesWallClock(Scheduler):
    """Leases are counted by a clock that people set."""

    def now_s(self) -> float:
        return (self.world.wall_us + self.world.now_us) / S


# --- machines that sleep ----------------------------------------------------------------------------------------------


class WakesForNobody(Scheduler):
    """Whoever sleeps is wanted, whether a job waits or not."""

    def _ask_wanted(self, nodes: tuple[Node, ...]) -> None:
        self.feed(given.Wanted(tuple(each.name for each in nodes)))


class DeafToOwnersWord(Sleepers):
    """A machine is woken whether its owner agrees or not."""

    def look(self) -> Iterator[Effect]:
        for entry in self._book:
            entry.wakeable = Wakeable("52:54:00:12:34:56", "10.0.0.255", ((0.0, 86400.0),))
        yield from super().look()


class CallsAgain(Sleepers):
    """A machine that was called in vain is called as often as one looks."""

    def wanted(self, names: tuple[str, ...]) -> Iterator[Effect]:
        yield from super().wanted(names)
        self._calls.clear()


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
    altered(Scheduler, worker_type=AnswersBeforeCommit): ("P2", 6),
    altered(Scheduler, thread_type=EarlyStarter): ("", 7),
    altered(Scheduler, worker_type=ForgetsReports): ("", 24),
    altered(Scheduler, worker_type=GivesUp): ("", 0),
    altered(Scheduler, worker_type=SpinsToTheInterval): ("O17", 7),
    RefusesReports: ("O10", 51),
    altered(Scheduler, rules_type=LosesLimits): ("P1", 0),
    with_parts(Hasty, gangs): ("P1", 5),
    with_parts(RunsAgain, gangs): ("P2", 26),
    with_parts(BelievesAnyNode, gangs): ("P2", 46),
    with_parts(WaitsForStalledStarts, gangs): ("O14", 1),
    with_parts(CountsBeforeAllHaveAnswered, resizings): ("S1", 44),
    with_parts(LeavesWhatItHasChanged, resizings): ("S1", 30),
    altered(Scheduler, rules_type=Relauncher): ("", 0),
    altered(Scheduler, rules_type=DeafToLeases): ("O10", 32),
    altered(Scheduler, rules_type=NeverComparesAHeartbeat): ("O15", 27),
    changing(leaks): ("D6", 0),
    changing(says_no_uid): ("O16", 0),
    changing(ignores_timeouts): ("P1", 51),
    changing(deaf_to_flapping): ("O5", 80),
    changing(double_books): ("P6", 39),
    with_parts(IgnoresOwners, lambda rules: rules.book): ("P6", 1),
    ruled(gives_held_processors): ("P6", 1),
    BelievesWallClock: ("O10", 5),
    TellsEpochFirst: ("", 0),
    KeepsOldTotals: ("O11", 11),
    ForgetsRules: ("E1", 3),
    Starver: ("P4", 0),
    WakesForNobody: ("D7", 5),
    with_parts(DeafToOwnersWord, lambda rules: [rules.sleepers]): ("D7", 27),
    with_parts(CallsAgain, lambda rules: [rules.sleepers]): ("D7", 114),
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
