"""One core: a live journal's events, decided again, give the same instructions, byte for byte; and mutants do not."""

import asyncio
import random
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from kit.drive import policy_named
from kit.journals import SCRIPT, Backwards, Driven, Raiser
from kit.loads import SECOND

import cosched
from cosched.apps.cli.replay import command
from cosched.errors import BadInput, Failed
from cosched.model.coscheduling import Mode
from cosched.model.job import Job, JobState
from cosched.model.node import Node, Owner
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Kill, Start
from space_scheduler.machine.rules import MachineRules
from space_scheduler.policy.interface import Plan, Snapshot
from space_scheduler.policy.order import Order, fcfs
from space_scheduler.progress import Sharing
from space_scheduler.replay import replay
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.core.journalled import Settings
from space_scheduler.service.journal.reading import Run, sealed
from space_scheduler.service.journal.records import Committed


class Forgetful:
    """EASY whose memory has no declared type: after a restart it has none."""

    order: Order = staticmethod(fcfs)

    def plan(self, snapshot: Snapshot) -> Plan:
        count, memory = snapshot.memory or (0, None)
        plan = policy_named("easy").plan(replace(snapshot, memory=memory))
        told = [] if count % 3 else plan.told
        return Plan(plan.changes, (count + 1, plan.memory), plan.wake_us, told)


async def live_run(
    path: Path,
    policy: str,
    seed: int,
    jobs: int = 40,
    *,
    node: tuple[Any, ...] = (2, 8 << 30),
    rules: MachineRules | None = None,
) -> int:
    """A real host, real time, jobs that end on their own, some cancelled; gives the number of instructions.

    Where nodes are shared, jobs are of both kinds, and owners come and go.
    """
    chance = random.Random(seed)
    tasks: set[asyncio.Task[object]] = set()
    count = 0

    def committed(each: Committed) -> None:
        nonlocal count
        count += len(each.instructions)
        for instruction in each.instructions:
            if isinstance(instruction, Start):
                tasks.add(asyncio.ensure_future(run(instruction.job.id, chance.random() / 50)))
            elif isinstance(instruction, Kill):
                tasks.add(asyncio.ensure_future(end(instruction.job_id, JobState.CANCELLED)))

    async def run(job_id: int, time_s: float) -> None:
        await host.post(ev.JobLaunched(job_id))
        await asyncio.sleep(time_s)
        await end(job_id, JobState.COMPLETED)

    async def end(job_id: int, outcome: JobState) -> None:
        if job_id in host.view().jobs and job_id not in ending:
            ending.add(job_id)
            await host.post(ev.JobEnded(job_id, outcome))

    ending: set[int] = set()
    host = CoreHost(
        Settings(
            path, policy_named(policy), policy, rules=rules or MachineRules(), snapshot_every=30, keep_events=None
        ),
        pass_interval_us=2_000,
        on_committed=committed,
    )
    found = await host.start()
    if found.epoch == 1:
        for name in ("ant", "bee", "cat"):
            await host.post(ev.NodeJoined(Node(name, *node)))
    for record in found.jobs.values():
        if record.allocation:
            tasks.add(asyncio.ensure_future(end(record.id, JobState.NODE_LOST)))
    for _ in range(jobs):
        job = Job(0, chance.randrange(1, 6), chance.randrange(1, 99) * SECOND, 0)
        if rules is not None:
            kind, memory_bytes = chance.choice(["cpu", "comm"]), chance.choice([0, 1 << 30])
            job = msgspec.structs.replace(job, kind=kind, memory_bytes=memory_bytes)
            if chance.random() < 0.3:
                name = chance.choice(["ant", "bee", "cat"])
                await host.post(chance.choice([ev.OwnerLeft(name), ev.OwnerCame(name, Owner(200))]))
        job_id = await host.submit(job, SCRIPT, "ann")
        if chance.random() < 0.1 and host.view().jobs[job_id].state is JobState.QUEUED:
            await host.post(ev.JobCancelled(job_id))
        await asyncio.sleep(chance.random() / 200)
    await host.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return count


async def test_a_live_run_replays_over_a_restart(tmp_path: Path) -> None:
    path, policy = tmp_path / "journal.db", "conservative"
    count = sum([await live_run(path, policy, seed) for seed in (1, 2)])
    found = replay(path)
    assert found.agrees, str(found.difference)
    assert found.instructions == count > 40
    assert found.passes > 20
    assert found.first_seq == 1
    assert found.software == (cosched.__version__,)
    assert found.policies == (policy,)


async def test_a_live_run_on_shared_nodes_replays_over_a_restart(tmp_path: Path) -> None:
    path, policy = tmp_path / "journal.db", "3dbf-light"
    rules = MachineRules(sharing=Sharing(Mode.CCS, {"comm": {"comm": 300, "cpu": 100}}))
    shared = (8, 8 << 30, 2, 500)
    count = sum([await live_run(path, policy, seed, node=shared, rules=rules) for seed in (1, 2)])
    found = replay(path)
    assert found.agrees, str(found.difference)
    assert found.instructions == count
    with closing(sqlite3.connect(path)) as journal:
        paced = journal.execute("SELECT count(*) FROM instructions WHERE instruction LIKE '%Pace%'").fetchone()[0]
    assert paced > 10


@settings(max_examples=settings().max_examples // 5)
@given(seed=st.integers(0, 10**6), policy=st.sampled_from(["easy", "conservative", "sjbf", "backfill(3)"]))
def test_whatever_happened_replays(tmp_path_factory: pytest.TempPathFactory, seed: int, policy: str) -> None:
    made = Driven(tmp_path_factory.mktemp("replay") / "journal.db", policy, seed=seed)
    for _ in range(40):
        made.step()
    made.crash()
    made.open()
    for _ in range(30):
        made.step()
    made.crash()
    found = replay(made.path, lambda run: policy_named(policy))
    assert found.agrees, str(found.difference)
    assert found.events == made.journal.seq


def test_a_policy_without_a_typed_memory_replays_over_restarts(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", Forgetful(), seed=3)
    for _ in range(5):
        for _ in range(25):
            made.step()
        made.crash()
        made.open()
    made.crash()
    found = replay(made.path, lambda run: Forgetful())
    assert found.agrees, str(found.difference)
    assert found.passes > 10


def test_a_change_of_policy_is_followed(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", "conservative", seed=4)
    for policy in ("easy", "conservative", "fcfs"):
        for _ in range(30):
            made.step()
        made.crash()
        made.policy = policy
        made.open()
    for _ in range(30):
        made.step()
    made.crash()
    found = replay(made.path)
    assert found.agrees, str(found.difference)
    assert found.policies == ("conservative", "easy", "fcfs")


def test_a_compacted_journal_replays_from_its_first_snapshot(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", "conservative", seed=5, keep_events=50, snapshot_every=20)
    for _ in range(150):
        made.step()
    found = replay(made.path)  # while it is open
    made.crash()
    assert found.agrees, str(found.difference)
    assert found.first_seq > 50
    assert found.events == made.journal.seq - found.first_seq + 1


@pytest.mark.parametrize("policy", [Backwards(), Raiser()])
def test_a_policy_that_decides_otherwise_is_found_out(tmp_path: Path, policy: object) -> None:
    made = Driven(tmp_path / "journal.db", "easy", seed=6)
    for _ in range(80):
        made.step()
    made.crash()
    found = replay(made.path, lambda run: policy)  # type: ignore[arg-type, return-value]
    assert found.difference is not None
    assert found.difference.before[-1].startswith(f"{found.difference.seq} at ")
    assert found.difference.recorded != found.difference.replayed
    told = str(found.difference)
    assert "the journal has" in told
    assert "the replay has" in told
    if isinstance(policy, Raiser):
        assert "this policy is broken" in told


def test_the_command(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", "easy", seed=7)
    for _ in range(60):
        made.step()
    made.crash()
    run = CliRunner().invoke(command, [str(tmp_path)], standalone_mode=False)
    assert run.return_value == 0
    assert "instructions as recorded" in run.output
    assert "Made by cosched test" in run.output
    document = msgspec.json.decode(CliRunner().invoke(command, [str(made.path), "--json"]).output)
    assert document["agrees"]
    assert document["events"] == made.journal.seq
    with closing(sqlite3.connect(made.path)) as db:  # as if another policy had been at work
        found = db.execute("SELECT run FROM runs").fetchone()[0].replace('"easy"', '"sjf"')
        other = msgspec.json.decode(found, type=Run)
        db.execute("UPDATE runs SET run = ?", (sealed(other, made.journal.cluster_id),))
        db.commit()
    run = CliRunner().invoke(command, [str(tmp_path)], standalone_mode=False)
    assert run.return_value == 1
    assert "Different at event" in run.output
    with pytest.raises(BadInput, match="no such file"):
        CliRunner().invoke(command, [str(tmp_path / "none")], standalone_mode=False, catch_exceptions=False)


def test_a_journal_without_events_says_so(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", "easy")
    made.crash()
    with closing(sqlite3.connect(made.path)) as db:
        db.execute("DELETE FROM events")
        db.commit()
    with pytest.raises(Failed, match="no events to replay"):
        replay(made.path)
