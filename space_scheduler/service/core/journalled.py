"""The core with its journal: what is in memory is what is in the journal, and nothing else. One thread's.

An event is taken in by the core first, which says whether it fits, and *staged*; :meth:`JournalledCore.commit` writes
all that is staged in one transaction. Where that fails, or the core or a policy fails in a way that leaves its state in
doubt, the state is built again from the journal.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from typing import ClassVar, Final

import msgspec

import cosched
from cosched.errors import Failed
from cosched.model.components import Dividing
from cosched.model.job import TERMINAL, Job, JobState
from cosched.model.node import Node
from cosched.model.time import FOREVER_US, US_PER_S
from cosched.wire.api import Submission
from space_scheduler.eligibility.rule import Rule
from space_scheduler.machine import events as ev
from space_scheduler.machine.explain import promise_to_come, without_place
from space_scheduler.machine.holding import Resizing
from space_scheduler.machine.instructions import Instruction, Kill, Resize, SetAside, Start, Tell
from space_scheduler.machine.jobs import Note
from space_scheduler.machine.nodes import UnknownNode
from space_scheduler.machine.record import IllegalTransition, Infeasible, UnknownJob
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.snapshot import SavedState
from space_scheduler.machine.state import SchedulerState
from space_scheduler.machine.turns import SavedTurns
from space_scheduler.policy.interface import Changes, Policy
from space_scheduler.reasons import CANCELLED, Why
from space_scheduler.service.core import worker as fx
from space_scheduler.service.core.sizing import SizesUnknown, divided, sized
from space_scheduler.service.core.worker import Most, QueueFull
from space_scheduler.service.journal.clock import Clock, Sources
from space_scheduler.service.journal.journal import Journal, SnapshotRow, packed
from space_scheduler.service.journal.reading import Chosen, Entry, Run, Saved, text_of
from space_scheduler.service.journal.records import (
    EXPLAINED,
    MOST_RESHAPED,
    Committed,
    Explained,
    Facts,
    JobRecord,
    PagedDict,
    Reshaped,
    Transition,
    View,
)
from space_scheduler.service.journal.recovery import Recovered, differing, rebuild, timer_after
from space_scheduler.service.journal.schema import JournalRefused, readable

RESUMED: Final = "the state was built again from the journal before this pass"
#: How long a job may take to end after its predicted end before it is overdue, unless the host says otherwise.
OVERDUE_AFTER_US: Final = 5 * US_PER_S
#: Snapshots in the time for which events are kept, at least: they are dropped from one to the next.
_SNAPSHOTS_KEPT: Final = 4
#: The states of jobs that hold nothing.
NOT_STARTED: Final = frozenset({JobState.QUEUED, JobState.WAITING})
#: The states of jobs that hold nodes.
_HOLDING: Final = frozenset({JobState.STARTING, JobState.RUNNING, JobState.ENDING})
#: What in a job's record is the time at which it came to a state, where that is kept.
_TIMES: Final = {JobState.RUNNING: "start_us", **dict.fromkeys(TERMINAL, "end_us")}
#: The states that the core decides.
_DECIDED: Final = frozenset({JobState.QUEUED, JobState.WAITING, JobState.STARTING, JobState.ENDING})

#: So many of the jobs that wait are looked at, the first ones. A pass over all of a deep queue with nodes that are new
#: takes seconds under conservative backfilling, in the thread that accepts jobs.
MOST_WAITING: Final = 100
#: An event that does not fit is the business of its sender: the core has changed nothing.
MISFITS: Final = (Infeasible, QueueFull, SizesUnknown, UnknownJob, UnknownNode, IllegalTransition)


@dataclass(frozen=True)
class Settings:
    """What a core with its journal is made of. The journal at ``path`` is made if there is none.

    ``policy_name`` and ``order_name`` are what the journal says of the policy, for a replay. A snapshot is written
    after ``snapshot_every`` events, and those of more than ``keep_events`` or ``keep_us`` before it are dropped
    (None: never), and jobs, with their stories, that ended ``keep_jobs_us`` before it. This start's epoch is
    ``least_epoch`` at least: how a fresh journal takes over nodes that have obeyed another. Jobs are divided over
    clusters by ``dividing`` (None: those alone that say their components). A job that others wait for is predicted
    anew so long after its predicted end (``overdue_after_us``). ``eligibility`` are the rules that are asked before a
    job is queued.
    """

    path: Path
    policy: Policy
    policy_name: str
    order_name: str | None = None
    rules: MachineRules = field(default_factory=MachineRules)
    snapshot_every: int = 5_000
    keep_events: int | None = 20_000
    keep_us: int | None = None
    least_epoch: int = 1
    sources: Sources | None = None
    dividing: Dividing | None = None
    overdue_after_us: int = OVERDUE_AFTER_US
    keep_jobs_us: int | None = None
    eligibility: Sequence[Rule] = ()


@dataclass(frozen=True)
class Opened:
    """What a start found. ``journal`` and ``core`` belong to the thread that opened them."""

    journal: Journal
    core: "JournalledCore"
    clock: Clock
    run: Run
    recovered: Recovered


class JournalledCore:
    """The scheduler's state, its journal, and what the service knows of every live job.

    ``compares``: whether each commit asserts that the two agree, as tests have it; it costs in proportion to the jobs.
    ``half_done``: an event has failed half-way; what was staged before it is committed, and then the state recovered.
    """

    compares: ClassVar[bool] = False

    def __init__(self, journal: Journal, settings: Settings) -> None:
        """Recover from the journal. Raises :class:`JournalRefused`."""
        self.journal, self.settings = journal, settings
        self._committed_with = settings.policy, settings.rules  # in force by the journal, whatever is staged
        self.recover()

    # what the worker's rules want done

    def carry_out(
        self, effect: fx.Deed, look: Callable[[], fx.Moment], packed_row: Callable[[], SnapshotRow]
    ) -> fx.Outcome:
        """Do it, and say what came of it. Unexpected exceptions propagate, but for those of a pass.

        ``packed_row`` is asked for once for each snapshot that was packed.
        """
        try:
            match effect:
                case fx.Look():
                    return look()
                case fx.Decide(now_us):
                    return self.decide(now_us)
                case fx.Commit():
                    return self.commit()
                case fx.Recover():
                    self.recover()
                case fx.Probe():
                    self.journal.probe()
                case fx.WriteSnapshot():
                    self.write_snapshot(packed_row(), look().core_us)
                case fx.SaveLast():
                    self.save_if_due(look().core_us, now=True)
        except Exception as error:
            if isinstance(error, Failed) or isinstance(effect, fx.Decide):
                return error
            raise
        return None

    def apply(self, work: fx.Work, now_us: int) -> fx.Answer | Exception:
        """Do a work, and say what came of it."""
        answer: object = None
        try:
            match work.request:
                case fx.Submit(job, submission, user, hold, most):
                    answer = self.submit(job, submission, user, now_us, hold=hold, most=most)
                case fx.Post(event, note, facts):
                    answer = self.take_in(event, now_us, note, facts)
                case fx.Choose(policy, name, order, rules):
                    self.choose(policy, name, order, rules, now_us)
                case fx.Annotate(job_id, facts):
                    self.annotate(job_id, facts)
                case fx.Explain(job_id, owners):
                    answer = self.explain(job_id, now_us, owners=owners)
                case fx.AskWanted(nodes):
                    answer = self.wanted(nodes, now_us)
        except MISFITS as error:
            return fx.Answer(work, error=error)
        except Exception as error:
            self.half_done = not work.reads
            return error
        return fx.Answer(work, answer)

    def published(self, effect: fx.Publish, seen: View) -> View:
        """What is to be seen from now on; ``seen`` is what was seen last."""
        if not effect.known:
            return msgspec.structs.replace(seen, accepting=False, problem=effect.problem)
        return self.view(decided_us=effect.decided_us, accepting=effect.accepting, problem=effect.problem)

    # to and from the journal

    def recover(self) -> None:
        """Make the state the journal's; whatever is staged is forgotten. Raises :class:`JournalRefused`."""
        self._entries: list[Entry] = []
        self._changed: dict[int, JobRecord] = {}
        self._committed: list[Committed] = []
        self._chosen: list[Chosen] = []
        self.half_done = False
        self.policy, self.rules = self._committed_with
        self._resumed = True
        with readable(self.journal.path):
            self.rebuilt = found = rebuild(self.journal)
            self.records = PagedDict(self.journal.alive())
            self.alive = Counter(record.state for record in self.records.values())
            self.waiting = Counter(record.user for record in self.records.values() if record.state in NOT_STARTED)
            self.kept_back = Counter(why for record in self.records.values() if (why := record.kept_back) is not None)
            self.ended = self.journal.ended()
        self.state, self.timer_us = found.state(self.policy, self.rules, self.settings.eligibility), found.timer_us
        self.state.machine.jobs.notes = []
        self._read_anew()
        if problem := differing(self.state, self.records):
            raise JournalRefused(f"journal {self.journal.path}: it contradicts itself: {problem}")
        self._snapshot_seq, self._snapshot_us = found.snapshot_seq, self.journal.snapshot_us

    def _read_anew(self) -> None:
        """In journals of version 0.1 a job that was set aside is listed as queued: it waits."""
        for each in self.state.machine.jobs.aside:
            kept, record = self.records.get(each.job_id), self.state.records[each.job_id]
            if kept is not None and kept.state is JobState.QUEUED and record.state is JobState.WAITING:
                self._put(msgspec.structs.replace(kept, state=record.state))

    def recovered(self, epoch: int) -> Recovered:
        """What there is, for whoever asks the agents what runs."""
        return Recovered(
            epoch=epoch,
            events=self.rebuilt.events,
            snapshot_seq=self.rebuilt.snapshot_seq,
            jobs=self.records.copy(),
            nodes=tuple(self.state.nodes()),
            turns=SavedTurns() if self.state.machine.turns is None else self.state.machine.turns.saved(),
            progress={each.job.id: self.state.progress(each) for each in self.state.running()},
            ended=self.ended.copy(),
            resizing={  # of whose nodes nobody has heard since
                job_id: record.allocation
                for job_id, record in self.state.machine.jobs.changing.items()
                if isinstance(record.holding, Resizing)
            },
            last_job_id=self.journal.next_job_id - 1,
            asked={
                each.job.id: (each.given, bool(each.asks)) for each in self.state.running() if each.given or each.asks
            },
        )

    def difference(self) -> str:
        """How the core's jobs differ from the service's records of them; empty when they agree."""
        return differing(self.state, self.records)

    @property
    def staged(self) -> bool:
        """Whether there is anything to commit."""
        return bool(self._entries or self._changed)

    def commit(self) -> list[Committed]:
        """Write all that is staged, and give its events. Raises :class:`JournalUnwritable`; then nothing is written.

        After that the state is ahead of the journal: :meth:`recover` before anything else.
        """
        if self.staged:
            self.journal.write(self._entries, self._changed.values(), self._chosen)
        self._committed_with = self.policy, self.rules
        self._chosen.clear()
        committed, changed = self._committed, self._changed
        self._entries, self._changed, self._committed = [], {}, []
        for job_id, record in changed.items():
            if not record.alive and job_id in self.records:
                del self.records[job_id]
                self.ended[record.state] = self.ended.get(record.state, 0) + 1
        if self.compares and not self.half_done:
            assert not (wrong := self.difference()), wrong
        return committed

    def save_if_due(self, now_us: int | None = None, *, now: bool = False) -> None:
        """Write a snapshot when enough has happened since the last one. Raises :class:`JournalUnwritable`.

        ``now_us``: core time; None: that of the last event.
        """
        now_us = self.journal.last_us if now_us is None else now_us
        due = self.save_us is not None and self.save_us <= now_us
        if due or (now and self.journal.seq > self._snapshot_seq):
            self.write_snapshot(packed(self.photograph()), now_us)

    def write_snapshot(self, row: SnapshotRow, now_us: int) -> None:
        """Write what :func:`packed` has made of one, and drop what is not to be kept any longer.

        Raises :class:`JournalUnwritable`.
        """
        keep_events, keep_us = self.settings.keep_events, self.settings.keep_us
        self.journal.write_snapshot(row, keep_events=keep_events, keep_us=keep_us, now_us=now_us)

    def save_if_rules_changed(self) -> None:
        """Write a snapshot under the rules of now, if those of the past were others: no recovery crosses the change.

        It is of what was recorded, no policy's memory lost, so that it tells the same as the events before it. Raises
        :class:`JournalUnwritable`.
        """
        if self.rebuilt.rules_change(self.rules):
            state = self.rebuilt.snapshot(self.rules)
            saved = Saved(self.journal.seq, state.now_us, self.journal.chain, state)
            self.write_snapshot(packed(saved), saved.now_us)
            self._snapshot_seq, self._snapshot_us = saved.seq, saved.now_us

    @property
    def save_us(self) -> int | None:
        """From when on, in core time, a snapshot is due; None: no such time is set.

        At once when enough has happened since the last one. One after the last in which there is anything new, so that
        events can be dropped up to it later; one when events are to be dropped: also where nothing has happened since.
        """
        journal, keep_us, new = self.journal, self.settings.keep_us, self.journal.seq - self._snapshot_seq
        if new >= self.settings.snapshot_every:
            return self._snapshot_us
        if keep_us is None:
            return None
        drop_us = None if journal.droppable_us is None else journal.droppable_us + keep_us
        return _earliest(self._snapshot_us + keep_us // _SNAPSHOTS_KEPT if new else None, drop_us, journal.jobs_due_us)

    @property
    def pass_due_us(self) -> int | None:
        """From when on, in core time, a pass is due whatever happens; None: no such time is set.

        That is when the policy has asked for one, or when a job is overdue that others wait for: promises counted on
        its end.
        """
        overdue_us = self.state.overdue_at_us(self.settings.overdue_after_us)
        return _earliest(self.timer_us, None if overdue_us == FOREVER_US else overdue_us)

    def photograph(self) -> Saved:
        """The committed state as it is now, to be packed and written; the next is due so much later."""
        assert not self.staged
        state = self.state.snapshot()
        self._snapshot_seq, self._snapshot_us = self.journal.seq, state.now_us
        return Saved(self.journal.seq, state.now_us, self.journal.chain, state)

    # what is staged

    def submit(
        self, job: Job, submission: Submission, user: str, now_us: int, *, hold: bool = False, most: Most | None = None
    ) -> int:
        """Take in a new job under the next number. Raises ``Infeasible``, ``SizesUnknown`` and :class:`QueueFull`."""
        if most is not None:
            most.check(user, self.waiting)
        job_id = self.journal.next_job_id + sum(job_id >= self.journal.next_job_id for job_id in self._changed)
        job, submission = sized(msgspec.structs.replace(job, id=job_id, submit_us=now_us), submission, self.state)
        job = divided(job, submission, self.state, self.settings.dividing, f"{self.journal.cluster_id} {job_id}")
        self.take_in(
            ev.JobSubmitted(job),
            now_us,
            new=JobRecord(job=job, user=user, submission=submission, state=JobState.QUEUED, submit_us=now_us),
        )
        if hold:
            self.take_in(ev.JobHeld(job_id), now_us)
        return job_id

    def take_in(
        self,
        event: ev.Event,
        now_us: int,
        note: str = "",
        facts: Facts | None = None,
        new: JobRecord | None = None,
    ) -> Committed:
        """Take in one event. Raises as ``SchedulerState.handle`` does."""
        instructions = self.state.handle(event, now_us)
        decision = self.state.decision() if isinstance(event, ev.Boundary) else None
        if new is not None:
            new = msgspec.structs.replace(new, job=self.state.records[new.id].job)
            self.records[new.id] = new
            self._count(new, 1)
        seq = self.journal.seq + len(self._entries) + 1
        steps = self._follow(instructions, seq, event, note)
        if facts is not None:
            job = self._changed.get(event.job_id) or self.records[event.job_id]  # type: ignore[attr-defined]
            if job.state not in NOT_STARTED:  # unless it waits again by this event
                self._put(msgspec.structs.replace(job, facts=job.facts.merged(facts)))
        self._entries.append(
            Entry(
                seq=seq,
                now_us=now_us,
                event=event,  # type: ignore[arg-type]
                note=note,
                decision=decision,
                instructions=tuple(map(text_of, instructions)),
                transitions=tuple(steps),
            )
        )
        self.timer_us = timer_after(self.timer_us, event, instructions)
        told = tuple((job_id, step) for job_id, _, step in steps)
        ended = tuple(self._changed[job_id] for job_id, step in told if step.state in TERMINAL)
        committed = Committed(seq, now_us, event, tuple(instructions), told, ended)
        self._committed.append(committed)
        return committed

    def decide(self, now_us: int) -> bool:
        """Close the batch: stage the timer, if it is due, and a pass, if anything has changed; whether there was one.

        Raises whatever the policy raises; then :meth:`recover`.
        """
        if self.timer_us is not None and self.timer_us <= now_us:
            self.take_in(ev.TimerDue(), now_us)
        passes = self.state.passes
        overdue = self.state.overdue_at_us(0) <= now_us
        self.take_in(ev.Boundary(name_overdue=overdue), now_us, RESUMED if self._resumed else "")
        if self.state.passes == passes:  # nobody was asked, nothing has changed: not worth a line
            self._entries.pop()
            self._committed.pop()
            return False
        self._resumed = False
        return True

    def choose(self, policy: Policy, name: str, order: str | None, rules: MachineRules, now_us: int) -> None:
        """Stage that another policy, by its name and its order's, is in force from now on, and these rules with it.

        Raises ``Failed`` where it cannot order the queue; then nothing has changed.
        """
        try:
            state = SchedulerState.restore(policy, rules, self.state.snapshot(), self.settings.eligibility)
        except Failed:
            raise
        except Exception as error:
            raise Failed(f"policy {name} cannot order the queue: {type(error).__name__}: {error}") from error
        if rules != self.rules:
            state.rules_changed()
        state.machine.jobs.notes = []
        self.state, self.policy, self.rules = state, policy, rules
        committed = self.take_in(ev.RulesChanged(name, order), now_us)
        self._chosen.append(Chosen(committed.seq, name, order, rules))

    def annotate(self, job_id: int, facts: Facts) -> None:
        """Stage facts of a job, alive or ended. Raises ``UnknownJob``."""
        record = self._changed.get(job_id) or self.records.get(job_id) or self.journal.job(job_id)
        if record is None:
            raise UnknownJob(job_id)
        self._put(msgspec.structs.replace(record, facts=record.facts.merged(facts)))

    def _follow(
        self, instructions: Sequence[Instruction], seq: int, event: ev.Event, words: str
    ) -> list[tuple[int, str, Transition]]:
        """Bring the service's records up to the book's notes and the instructions; gives the steps of jobs."""
        noted: dict[int, list[Note]] = {}
        for note in self.state.machine.jobs.drain():
            noted.setdefault(note.record.job.id, []).append(note)
        starts = {each.job.id: each for each in instructions if isinstance(each, Start)}
        told = {each.job_id for each in instructions if isinstance(each, Resize | Kill | Tell | SetAside)}
        steps: list[tuple[int, str, Transition]] = []
        for job_id in sorted(noted.keys() | starts.keys() | told):
            notes, start, kept = noted.get(job_id, []), starts.get(job_id), self.records[job_id]
            record = notes[0].record if notes else self.state.records[job_id]
            notes = [one for one in notes if one.was is not one.state or one.state is JobState.WAITING]
            made = [_transition(one, seq, event, words) for one in notes]
            changes: dict[str, object] = {_TIMES[one.state]: one.now_us for one in made if one.state in _TIMES}
            if again := any(one.state is JobState.QUEUED and one.was in _HOLDING for one in notes):
                changes |= {"job": record.job, "allocation": None, "limit_us": None, "start_us": None}
                changes |= {"facts": msgspec.structs.replace(kept.facts, peers=None), "reshaped": ()}
            if made:
                changes |= {"history": (*kept.history, *made), "state": record.state}
            if start is not None:
                changes |= {"limit_us": start.limit_us, "attempt": kept.attempt + 1}
            before = None if again else kept.allocation
            if (held := record.holding.held) != before:
                changes["allocation"] = held
                if before is not None and held is not None:
                    reshaped = Reshaped(self.state.machine.now_us, held.processes, held.procs, record.reason)
                    changes["reshaped"] = (*kept.reshaped, reshaped)[-MOST_RESHAPED:]
            if record.promise_us != kept.promised_us:
                changes["promised_us"] = record.promise_us
            if changes:
                self._put(msgspec.structs.replace(kept, **changes))
            was = ("" if one.was is None else one.was.value for one in notes)
            steps += zip(repeat(job_id), was, made, strict=False)
        return steps

    def _put(self, record: JobRecord) -> None:
        self._changed[record.id] = record
        if known := self.records.get(record.id):
            self._count(known, -1)
            self.records[record.id] = record
            self._count(record, 1)

    def _count(self, record: JobRecord, by: int) -> None:
        if record.alive:
            self.alive[record.state] += by
        if record.state in NOT_STARTED:
            self.waiting[record.user] += by
        if (why := record.kept_back) is not None:
            self.kept_back[why] += by

    # looking at it

    def explain(self, job_id: int, now_us: int, *, owners: bool = False) -> Explained:
        """Why a job is in its state; with ``owners``, nodes with what their owners use. Raises ``UnknownJob``."""
        record = self.state.records.get(job_id)
        if record is not None:
            reason, cause = self.state.explain(job_id, now_us), caused(record.cause) if record.cause else ""
            aside = self.state.machine.jobs.aside.jobs.get(job_id)
            gate = self.state.machine.jobs.gates.waits.get(job_id)
            words = gate.wait.words if gate is not None and gate.wait.reason == reason else ""
            note = aside.problem if aside is not None else words or self.records[job_id].history[-1].note
            return Explained(
                record.state,
                reason,
                record.decided_us,
                cause,
                note,
                promise_to_come(record.promise_us, now_us),
                tuple(self.state.explain_nodes(job_id, owners=owners)),
            )
        ended = self.journal.job(job_id)
        if ended is None:
            raise UnknownJob(job_id)
        last = ended.history[-1]
        return Explained(ended.state, last.reason, last.now_us, last.cause, last.note)

    def wanted(self, nodes: Sequence[Node], now_us: int) -> tuple[str, ...]:
        """On which of these nodes, did they join now, a job that waits would start; none while the policy fails.

        Nothing changes by it. What would start without them has started before they join. Of a queue of more than
        :data:`MOST_WAITING` jobs the first are tried, as by a scheduler that has just been restarted: what the policy
        remembers is of all of them.
        """
        if not self.state.queue.line():
            return ()
        try:
            trial = SchedulerState.restore(self.policy, self.rules, _first_waiting(self.state))
            now_us = max(now_us, trial.now_us)
            trial.handle(ev.Boundary(), now_us)
            for node in nodes:
                trial.handle(ev.NodeJoined(node), now_us)
                trial.handle(ev.NodeResumed(node.name), now_us)
            starts = [each for each in trial.handle(ev.Boundary(), now_us) if isinstance(each, Start)]
        except Exception:  # a policy may raise anything, and does so in its own passes, which tell of it
            return ()
        used = {share.node for start in starts for share in start.allocation.nodes}
        return tuple(node.name for node in nodes if node.name in used)

    def view(self, *, decided_us: int, accepting: bool, problem: str) -> View:
        """All there is to see, as a value of its own. It costs what has changed, however many jobs there are."""
        state = self.state
        return View(
            seq=self.journal.seq,
            now_us=self.journal.last_us,
            jobs=self.records.copy(),
            line=state.queue.line(),
            waiting=dict(+self.waiting),
            kept_back=dict(+self.kept_back),
            alive=dict(+self.alive),
            procs_total=state.machine.capacity.procs_total,
            free_procs=state.machine.capacity.free_procs,
            passes=state.passes,
            decided_us=decided_us,
            ended=self.ended.copy(),
            accepting=accepting,
            problem=problem,
            out_since_us={each.node.name: each.since_us for each in state.machine.nodes or () if not each.in_service},
            aside=dict(state.machine.jobs.aside.jobs),
            without_place=without_place(state.machine, self.journal.last_us, EXPLAINED),
        )


def _earliest(*times_us: int | None) -> int | None:
    return min((each for each in times_us if each is not None), default=None)


#: What an event's fields are in words, where it has them.
_WORDS: Final = (
    *(("job_id", "job"), ("name", "node"), ("program", "program"), ("kind", "as")),
    *(("outcome", "as"), ("procs", "processors")),
)


def caused(event: ev.Event) -> str:
    """An event in a few words: its name, and the job, node or processors it is about."""
    found = ((word, getattr(event, key, None)) for key, word in _WORDS)
    about = " ".join(f"{word} {value}" for word, value in found if value is not None)
    match event:
        case ev.Boundary(name_overdue=True):
            return "a predicted end that has passed"
        case ev.OwnerCame() | ev.OwnerLeft():
            about = ""  # stories of jobs are kept for longer than presence at desks
        case ev.JobSubmitted(job):
            about = f"job {job.id}"
        case ev.LaunchFailed(_, nodes):
            about += f" on {', '.join(nodes)}"
        case ev.JobSentAway(_, node):
            about += f" by the owner of {node}"
        case ev.NodeJoined(joined):
            about = f"node {joined.name}"
    return f"{type(event).__name__} {about}".rstrip()


#: Decisions about jobs that end because of a node.
_LOST: Final = (Why.NODE_LOST, Why.ENDED_BY_OWNER)


def _transition(note: Note, seq: int, event: ev.Event, words: str) -> Transition:
    """A step of a job for its history. ``words``: what the one that posted the event had to say.

    It has the decision's reason, where it was the core's; most ends are what nodes report.
    """
    decided = note.state in _DECIDED
    lost = note.state is JobState.NODE_LOST and note.reason.why in _LOST
    reason = CANCELLED if note.state is JobState.CANCELLED else note.reason if decided or lost else None
    cause = note.cause or event if decided else event
    return Transition(seq, note.at_us, note.state, reason, caused(cause), words)


def opened(settings: Settings) -> Opened:
    """Open, recover. Raises ``JournalRefused``, ``JournalUnwritable`` or another ``Failed``; nothing is then open."""
    journal = Journal(settings.path, settings.keep_jobs_us)
    try:
        clock = Clock(tuple(run.anchor for run in journal.runs), journal.last_us, settings.sources)
        run = journal.begin_run(
            clock.anchor,
            cosched.__version__,
            settings.policy_name,
            settings.order_name,
            settings.rules,
            least_epoch=settings.least_epoch,
            eligibility=[rule.name for rule in settings.eligibility],
        )
        core = JournalledCore(journal, settings)
        core.save_if_rules_changed()
        core.commit()
    except BaseException:
        journal.close()
        raise
    return Opened(journal, core, clock, run, core.recovered(run.epoch))


def _first_waiting(state: SchedulerState) -> SavedState:
    """The state with the first jobs of its queue alone."""
    saved, line = state.snapshot(), state.queue.line()
    if len(line) <= MOST_WAITING:
        return saved
    first = {job.id for _, job in line[:MOST_WAITING]}
    jobs = tuple(each for each in saved.jobs if each.state is not JobState.QUEUED or each.job.id in first)
    return msgspec.structs.replace(saved, jobs=jobs, aside=(), changes=Changes(), memory=None, forgotten=True)
