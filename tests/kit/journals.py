"""Journals made by hand: a clock that a test moves, bad policies, a core driven by chance, and what it knew when."""

import random
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cosched.errors import Failed
from cosched.model.job import Job, JobState
from cosched.model.node import Node
from cosched.wire.api import Submission
from cosched.wire.messages import Exit
from kit.drive import policy_named
from kit.loads import SECOND
from space_scheduler.eligibility.rule import Rule
from space_scheduler.machine import events as ev
from space_scheduler.machine.record import IllegalTransition, Infeasible, UnknownJob
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Plan, PlannedStart, Policy, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.core.journalled import JournalledCore, Settings
from space_scheduler.service.journal.clock import Clock, Sources
from space_scheduler.service.journal.journal import Journal
from space_scheduler.service.journal.records import Facts, JobRecord

HOUR = 3600 * SECOND
RULES = MachineRules(launch_retries=1)
SCRIPT = Submission(script="#!/bin/sh\ntrue\n", directory="/tmp", tasks=1)


@dataclass
class HandTime:
    """A wall clock, a time since the boot and a boot that a test sets."""

    wall_us: int = 1_700_000_000 * SECOND
    boottime_us: int = 77 * SECOND
    boot: str = "first boot"

    def sources(self) -> Sources:
        return Sources(lambda: self.wall_us, lambda: self.boottime_us, lambda: self.boot)

    def pass_by(self, time_us: int) -> None:
        self.wall_us += time_us
        self.boottime_us += time_us


def core_of(journal: Journal, policy: Policy, rules: MachineRules, **settings: Any) -> JournalledCore:
    """A core on an open journal."""
    return JournalledCore(journal, Settings(journal.path, policy, "a test's", rules=rules, **settings))


class Raiser:
    """Fails at every pass."""

    order: Order = staticmethod(fcfs)

    def plan(self, snapshot: Snapshot) -> Plan:
        raise RuntimeError("this policy is broken")


def never_asked(policy: Policy | str) -> Policy:
    """A policy's order and memory; it fails when it is asked to decide."""
    made = policy_named(policy) if isinstance(policy, str) else policy
    broken: Any = Raiser()
    broken.order = made.order
    if hasattr(made, "memory_type"):
        broken.memory_type = made.memory_type
    return broken  # type: ignore[no-any-return]


class Backwards:
    """The last job first, as long as it fits: decides otherwise than every other policy here."""

    order: Order = staticmethod(fcfs)

    def plan(self, snapshot: Snapshot) -> Plan:
        free_procs = snapshot.free_procs
        starts = []
        for job in reversed(list(snapshot.queue)):
            if job.procs <= free_procs:
                free_procs -= job.procs
                starts.append(PlannedStart(job, Reason(Why.FIRST_FIT)))
        return Plan(starts)


def state_bytes(state: SchedulerState) -> bytes:
    """All of a state but the moment it looked at the clock last, which a refused event moves too."""
    return msgspec.json.encode(msgspec.structs.replace(state.snapshot(), now_us=0))


@dataclass(frozen=True)
class Known:
    """What was known after a commit, when the log of changes had this size."""

    wal_bytes: int
    seq: int
    state: bytes
    records: Mapping[int, JobRecord]


@dataclass
class Driven:
    """A core with a journal, driven by chance; ``commits`` has what it knew after each commit."""

    path: Path
    policy: Policy | str = "conservative"
    seed: int = 0
    time: HandTime = field(default_factory=HandTime)
    keep_events: int | None = None
    keep_us: int | None = None
    keep_jobs_us: int | None = None
    snapshot_every: int = 1 << 60
    accepted: set[int] = field(default_factory=set)
    eligibility: Sequence[Rule] = ()

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.known: dict[int, bytes] = {}  # the state after each event that ended a commit
        self.commits: list[Known] = []
        self.open()

    def open(self) -> None:
        policy = policy_named(self.policy) if isinstance(self.policy, str) else self.policy
        self.journal = Journal(self.path, self.keep_jobs_us)
        journal = self.journal
        self.clock = Clock(tuple(run.anchor for run in journal.runs), journal.last_us, self.time.sources())
        name = self.policy if isinstance(self.policy, str) else "a test's"
        self.run = journal.begin_run(self.clock.anchor, "test", name, None, RULES)
        self.core = core_of(
            journal,
            policy,
            RULES,
            keep_events=self.keep_events,
            keep_us=self.keep_us,
            snapshot_every=self.snapshot_every,
            eligibility=self.eligibility,
        )
        if not self.core.state.nodes():
            for name, procs in (("ant", 4), ("bee", 2), ("cat", 2)):
                self.core.take_in(ev.NodeJoined(Node(name, procs, 8 << 30)), self.clock.now_us())
        self.commit()

    def crash(self) -> None:
        """As if it had been killed: nothing is written any more, the lock is free."""
        self.journal.close()

    def commit(self) -> None:
        wal = self.path.with_name(self.path.name + "-wal")
        self.core.commit()
        self.core.state.validate()
        committed_bytes = wal.stat().st_size
        self.core.save_if_due(self.clock.now_us())  # a transaction of its own, in which nothing more comes to be known
        seq = self.journal.seq
        self.known[seq] = state_bytes(self.core.state)
        for wal_bytes in sorted({committed_bytes, wal.stat().st_size}):
            self.commits.append(Known(wal_bytes, seq, self.known[seq], self.core.records.copy()))

    def step(self) -> None:
        """Some events and a commit, or a pass and a commit."""
        self.time.pass_by(self.random.randrange(1, 40 * SECOND))
        if self.random.random() < 0.4:
            self.core.decide(self.clock.now_us())
        else:
            for _ in range(self.random.randrange(1, 4)):
                with suppress(IllegalTransition, Infeasible, UnknownJob):  # a refused event leaves nothing behind
                    self.event()
        self.commit()

    def job(self) -> Job:
        """What somebody submits."""
        procs, estimate_us = self.random.choice((1, 1, 2, 3, 6, 50)), self.random.randrange(1, 900) * SECOND
        return Job(0, procs, estimate_us, 0, memory_bytes=1 << 28)

    def event(self) -> None:
        core, chance, now_us = self.core, self.random, self.clock.now_us()
        job_id = chance.choice(list(core.state.records) or [99])
        record = core.state.records.get(job_id)
        state = record.state if record else None
        match chance.randrange(12):
            case 0 | 1 | 2 | 3:
                number = core.submit(
                    self.job(), SCRIPT, chance.choice(("ann", "bob")), now_us, hold=chance.random() < 0.1
                )
                assert number not in self.accepted
                self.accepted.add(number)
            case 4:
                core.take_in(ev.JobCancelled(job_id), now_us, note="not wanted")
            case 5:
                core.take_in(ev.JobHeld(job_id), now_us)
            case 6:
                core.take_in(ev.JobReleased(job_id), now_us)
            case 7 | 8 | 9:
                if state is JobState.STARTING and record and chance.random() < 0.3:
                    assert record.allocation
                    blamed = chance.choice(record.allocation.nodes).node
                    core.take_in(ev.LaunchFailed(job_id, (blamed,)), now_us, note=f"{blamed} refused: dust in it")
                elif state is JobState.STARTING:
                    core.take_in(ev.JobLaunched(job_id), now_us)
                elif state in (JobState.RUNNING, JobState.ENDING):
                    outcome = chance.choice((JobState.COMPLETED, JobState.FAILED))
                    facts = Facts(exit=Exit(status=3), cpu_us={"ant": 1000})
                    core.take_in(ev.JobEnded(job_id, outcome), now_us, note="by itself", facts=facts)
            case 10:
                core.annotate(job_id, Facts(cpu_us={"bee": 5}))
            case 11:
                name = chance.choice(("ant", "bee", "cat"))
                event = chance.choice((ev.NodeDrained(name, "dust"), ev.NodeResumed(name), ev.NodeLost(name), None))
                core.take_in(event or ev.NodeJoined(Node(name, 4, 8 << 30)), now_us)


def copied(path: Path, to: Path) -> Path:
    """The journal's files as they are at this moment, at another place: what a crash leaves."""
    to.mkdir()
    for name in (path.name, path.name + "-wal"):
        if path.with_name(name).exists():
            shutil.copy(path.with_name(name), to / name)
    return to / path.name


def recovered(path: Path, policy: Policy | None = None) -> JournalledCore | Failed:
    """What a start makes of a journal (by a policy that fails when it is asked), or why it refuses."""
    try:
        journal = Journal(path)
    except Failed as error:
        return error
    try:
        return core_of(journal, policy or never_asked("conservative"), RULES)
    except Failed as error:
        return error
    finally:
        journal.close()
