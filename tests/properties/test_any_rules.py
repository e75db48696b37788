"""A scheduler that comes back under other rules loses nothing, contradicts nothing, and refuses nothing that could run.

A journal is driven by chance, killed at any moment between two commits, and opened again under another policy with
another number of tasks on a CPU, other sharing and other limits, as often as one likes.
"""

from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.drive import policy_named
from kit.journals import SCRIPT, HandTime
from kit.loads import SECOND

from cosched.errors import Failed
from cosched.model.coscheduling import Mode
from cosched.model.job import TERMINAL, Job, JobState
from cosched.model.node import Node, Owner
from space_scheduler.machine import events as ev
from space_scheduler.machine.record import IllegalTransition, Infeasible, Record, UnknownJob
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Plan, Policy, Snapshot, traits_of
from space_scheduler.policy.order import Key
from space_scheduler.progress import Sharing
from space_scheduler.replay import replay
from space_scheduler.service.core.journalled import JournalledCore, Opened, Settings, opened

POLICIES = (
    "basic",
    "normal",
    "uniform-light",
    "uniform-hard",
    "2dbf",
    "3dbf-light",
    "3dbf-hard",
    "easy",
    "conservative",
)
NODES = [Node(name, 4 * cpus, 4 << 30, cpus, 500) for name, cpus in (("ant", 1), ("bee", 1), ("cat", 2), ("dog", 1))]


@dataclass
class Restarted:
    """A journal, and the core that has it for now."""

    path: Path
    chance: Random
    time: HandTime = field(default_factory=HandTime)
    accepted: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)
    chosen: int = 0

    def any_policy(self) -> tuple[Policy, str, MachineRules]:
        """Any policy, its name, and rules as the service has them."""
        name = self.chance.choice(POLICIES)
        policy = policy_named(name)
        traits = traits_of(policy)
        rules = MachineRules(
            awaits_nodes=True,
            launch_retries=1,
            max_nodes_per_job=self.chance.choice([None, None, 3]),
            sharing=Sharing(self.chance.choice(list(Mode))) if traits.place else None,
            mpl=self.chance.choice([traits.mpl, traits.mpl, 2]),
        )
        return policy, name, rules

    def choose(self) -> None:
        """An operator has another policy decide from now on."""
        policy, name, self.rules = self.any_policy()
        self.core.choose(policy, name, None, self.rules, self.now_us)
        assert not any(record.promise_us is not None for record in self.waiting()), "a promise of the policy before"
        self.chosen += 1

    def waiting(self) -> list[Record]:
        return [each for each in self.core.state.records.values() if each.state is JobState.QUEUED]

    def open(self) -> None:
        """Under any policy, as the service has its rules."""
        policy, name, rules = self.any_policy()
        every = self.chance.choice([5, 40, 1 << 60])
        self.opened: Opened = opened(
            Settings(self.path, policy, name, None, rules, every, None, None, 1, self.time.sources())
        )
        self.rules = rules
        if not self.core.state.nodes():
            for node in NODES:
                self.core.take_in(ev.NodeJoined(node), self.now_us)
            self.core.commit()
        self.check()

    @property
    def core(self) -> JournalledCore:
        return self.opened.core

    @property
    def now_us(self) -> int:
        return self.opened.clock.now_us()

    def crash(self) -> None:
        self.opened.journal.close()

    def step(self) -> None:
        self.time.pass_by(self.chance.randrange(1, 60 * SECOND))
        if self.chance.random() < 0.4:
            self.core.decide(self.now_us)
        elif self.chance.random() < 0.1:
            self.choose()
        else:
            for _ in range(self.chance.randrange(1, 4)):
                with suppress(IllegalTransition, Infeasible, UnknownJob):
                    self.event()
        for each in self.core.commit():
            self.ended |= {job_id for job_id, step in each.transitions if step.state in TERMINAL}
        self.core.save_if_due()
        self.check()

    def event(self) -> None:
        chance, core, now_us = self.chance, self.core, self.now_us
        job_id = chance.choice(list(core.state.records) or [99])
        record = core.state.records.get(job_id)
        match chance.randrange(10):
            case 0 | 1 | 2 | 3:
                self.submit()
            case 4:
                core.take_in(chance.choice([ev.JobHeld, ev.JobReleased, ev.JobCancelled])(job_id), now_us)
            case 5:
                name = chance.choice(NODES).name
                core.take_in(
                    chance.choice([ev.OwnerLeft(name), ev.OwnerCame(name, Owner(chance.choice([0, 500, 1000])))]),
                    now_us,
                )
            case 6:
                node = chance.choice(NODES)
                core.take_in(
                    chance.choice([ev.NodeDrained(node.name), ev.NodeResumed(node.name), ev.NodeJoined(node)]), now_us
                )
            case _:
                if record and record.state is JobState.STARTING:
                    core.take_in(ev.JobLaunched(job_id), now_us)
                elif record and record.state in (JobState.RUNNING, JobState.ENDING):
                    core.take_in(ev.JobEnded(job_id, chance.choice([JobState.COMPLETED, JobState.FAILED])), now_us)

    def submit(self) -> None:
        chance = self.chance
        job = Job(
            0,
            chance.choice((1, 1, 2, 4, 8, 16)),
            chance.randrange(1, 900) * SECOND,
            0,
            memory_bytes=chance.choice((0, 1 << 28)),
            kind=chance.choice(("cpu", "comm", "")),
            cpu_permille=chance.choice((600, 1000)),
        )
        # what a machine with these nodes and without a past would say
        fresh = SchedulerState(self.opened.core.policy, self.rules)
        for status in self.core.state.nodes():
            fresh.handle(ev.NodeJoined(status.node), 0)
        refused = fresh.refusal(job)
        if refused is None:
            self.accepted.add(self.core.submit(job, SCRIPT, "ann", self.now_us))
            return
        with pytest.raises(Infeasible):
            self.core.submit(job, SCRIPT, "ann", self.now_us)

    def check(self) -> None:
        self.core.state.validate()
        assert self.core.state.records.keys() == self.accepted - self.ended, "a job was lost, or has come back"


def lives(path: Path, seed: int) -> None:
    made = Restarted(path, Random(seed))
    for _ in range(5):
        made.open()
        for _ in range(made.chance.randrange(25)):
            made.step()
        made.crash()
    found = replay(path, lambda run: policy_named(run.policy))
    assert found.agrees, str(found.difference)


@settings(max_examples=settings().max_examples // 4)
@given(seed=st.integers(0, 10**9))
def test_whatever_the_rules_were_it_goes_on(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    lives(tmp_path_factory.mktemp("rules") / "journal.db", seed)


def test_under_more_tasks_on_a_cpu_wider_jobs_are_taken(tmp_path: Path) -> None:
    """Basic has one task on each of five CPUs, Normal four: the machine is counted anew, and killed once more."""
    path, time = tmp_path / "journal.db", HandTime()

    def open_under(name: str) -> Opened:
        policy = policy_named(name)
        rules = MachineRules(awaits_nodes=True, sharing=Sharing(), mpl=traits_of(policy).mpl)
        return opened(Settings(path, policy, name, None, rules, 1 << 60, None, None, 1, time.sources()))

    first = open_under("basic")
    for node in NODES:
        first.core.take_in(ev.NodeJoined(node), 1)
    with pytest.raises(Infeasible):
        first.core.submit(Job(0, 12, SECOND, 0), SCRIPT, "ann", 1)
    first.core.commit()
    first.journal.close()
    for name, procs in (("normal", 20), ("basic", 5), ("normal", 20)):
        found = open_under(name)
        state = found.core.state
        assert (
            state.machine.capacity.procs_installed,
            state.machine.capacity.procs_total,
            state.machine.capacity.free_procs,
        ) == (procs, procs, procs)
        state.validate()
        if procs == 20:
            found.core.submit(Job(0, 12, SECOND, 0), SCRIPT, "ann", found.clock.now_us())
            found.core.commit()
        found.journal.close()
    saved = found.journal.path
    assert saved == path
    assert replay(path, lambda run: policy_named(run.policy)).agrees


def test_a_chosen_policy_is_forgotten_with_what_was_not_written(tmp_path: Path) -> None:
    made = Restarted(tmp_path / "journal.db", Random(3))
    made.open()
    for _ in range(12):
        made.step()
    before, known = (made.core.policy, made.core.rules), made.core.state.snapshot()
    made.core.choose(policy_named("firstfit"), "firstfit", None, MachineRules(), made.now_us)
    made.core.recover()  # as where the journal could not be written
    assert (made.core.policy, made.core.rules) == before
    assert made.core.state.snapshot() == known
    assert [run.policy for run in made.core.journal.runs][-1] != "firstfit"
    made.crash()


def test_a_policy_that_cannot_order_the_queue_is_not_chosen(tmp_path: Path) -> None:
    class Disorder:
        def order(self, job: Job, rank: int) -> Key:
            raise ZeroDivisionError

        def plan(self, snapshot: Snapshot) -> Plan:
            return Plan()

    made = Restarted(tmp_path / "journal.db", Random(3))
    made.open()
    while not made.waiting():
        made.step()
    before = made.core.state
    with pytest.raises(Failed, match="policy disorder cannot order the queue: ZeroDivisionError"):
        made.core.choose(Disorder(), "disorder", None, MachineRules(), made.now_us)
    assert made.core.state is before
    assert not made.core.staged
    made.crash()


def test_a_start_under_other_rules_writes_a_snapshot_first(tmp_path: Path) -> None:
    made = Restarted(tmp_path / "journal.db", Random(5))
    made.open()
    while not (made.core.state.running() and made.core.journal.seq > 10):
        made.step()
    made.crash()
    seq, rules = made.core.journal.seq, made.rules
    policy = made.core.policy
    again = opened(Settings(made.path, policy, "x", None, rules, 1 << 60, None, None, 1, made.time.sources()))
    assert again.core.rebuilt.snapshot_seq < seq
    assert again.journal.snapshot() is None or again.journal.snapshot().seq < seq  # type: ignore[union-attr]
    again.journal.close()
    other = msgspec.structs.replace(rules, launch_retries=7)
    last = opened(Settings(made.path, policy, "x", None, other, 1 << 60, None, None, 1, made.time.sources()))
    found = last.journal.snapshot()
    assert found is not None
    assert found.seq == seq
    last.journal.close()
