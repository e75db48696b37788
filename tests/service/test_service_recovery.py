"""After a crash anywhere: what was accepted is there, once; what was decided is as it was; nobody decides again."""

import asyncio
import random
import subprocess
import sys
import threading
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kit.drive import policy_named
from kit.journals import (
    SCRIPT,
    Backwards,
    Driven,
    HandTime,
    Raiser,
    copied,
    core_of,
    never_asked,
    recovered,
    state_bytes,
)
from kit.loads import SECOND
from kit.waiting import BOUND_S

from cosched.model.job import TERMINAL, Job, JobState
from cosched.model.node import Node
from cosched.model.time import US_PER_S
from space_scheduler.machine import events as ev
from space_scheduler.machine.rules import MachineRules
from space_scheduler.service.core.host import CoreHost
from space_scheduler.service.core.journalled import JournalledCore, Settings
from space_scheduler.service.journal.journal import Journal
from space_scheduler.service.journal.schema import JournalRefused


@pytest.mark.parametrize("policy", ["easy", "conservative", "fcfs", "fpfs", "sjbf"])
def test_recovery_asks_no_policy_and_gives_the_same_state(tmp_path: Path, policy: str) -> None:
    made = Driven(tmp_path / "journal.db", policy, seed=5)
    for _ in range(120):
        made.step()
    made.crash()
    core = recovered(made.path, never_asked(policy))
    assert isinstance(core, JournalledCore)
    assert core.state.passes > 10
    assert state_bytes(core.state) == made.known[made.journal.seq]
    core.state.validate()


@pytest.mark.parametrize("policy", [Raiser(), Backwards()])
def test_another_policy_finds_who_was_started_where(tmp_path: Path, policy: object) -> None:
    made = Driven(tmp_path / "journal.db", "easy", seed=6)
    for _ in range(120):
        made.step()
    made.crash()
    core = recovered(made.path, policy)  # type: ignore[arg-type]
    assert isinstance(core, JournalledCore)
    assert core.records == made.core.records
    for job_id, record in made.core.state.records.items():
        found = core.state.records[job_id]
        assert (found.state, found.allocation, found.story) == (record.state, record.allocation, record.story)


def test_what_was_recovered_is_told(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"

    async def first() -> None:
        host = CoreHost(Settings(path, policy_named("easy"), "easy"))
        await host.start()
        await host.post(ev.NodeJoined(Node("ant", 4, 1 << 30)))
        for procs in (1, 2, 4):
            await host.submit(Job(0, procs, SECOND, 0), SCRIPT, "ann")
        async with asyncio.timeout(BOUND_S):
            while host.view().free_procs != 1:
                await asyncio.sleep(0.002)
        await host.post(ev.JobLaunched(1))
        await host.post(ev.JobCancelled(2))
        await host.post(ev.NodeDrained("ant", "dust"))
        await host.close()

    async def second() -> None:
        host = CoreHost(Settings(path, Backwards(), "a test's"))
        found = await host.start()
        assert found.epoch == host.fence.epoch == 2
        assert {job_id: record.state.value for job_id, record in found.jobs.items()} == {
            1: "running",
            2: "ending",
            3: "queued",
        }
        assert [found.jobs[n].attempt for n in (1, 2, 3)] == [1, 1, 0]
        assert found.jobs[1].allocation is not None
        assert found.jobs[1].allocation.nodes[0].node == "ant"
        assert [(status.node.name, status.state, status.reason) for status in found.nodes] == [
            ("ant", "draining", "dust")
        ]
        assert "1 queued, 1 running, 1 ending" in str(found)
        await host.post(ev.JobEnded(1))
        await host.post(ev.JobEnded(2, JobState.CANCELLED))
        await host.post(ev.JobLaunched(2)) if 2 in host.view().jobs else None
        await host.close()

    asyncio.run(first())
    asyncio.run(second())
    core = recovered(path)
    assert isinstance(core, JournalledCore)
    assert core.ended == {JobState.COMPLETED: 1, JobState.CANCELLED: 1}


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    seed=st.integers(0, 10**6),
    steps=st.integers(0, 60),
    cut=st.floats(0, 1),
    policy=st.sampled_from(["easy", "conservative"]),
    every=st.sampled_from([5, 1 << 60]),
)
def test_a_crash_between_any_two_writes(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: int, cut: float, policy: str, every: int
) -> None:
    """Crash with the last write torn anywhere, recover, go on, crash again: every accepted job is there, once."""
    folder = tmp_path_factory.mktemp("crash")
    made = Driven(folder / "journal.db", policy, seed=seed, snapshot_every=every, keep_events=20)
    for _ in range(steps):
        made.step()
    torn = copied(made.path, folder / "torn")
    made.crash()
    wal = torn.with_name("journal.db-wal")
    last = made.commits[-2].wal_bytes if len(made.commits) > 1 else made.commits[-1].wal_bytes
    whole = wal.read_bytes()
    kept = last + round(cut * (len(whole) - last))
    wal.write_bytes(whole[:kept])
    known = [each for each in made.commits if each.wal_bytes <= kept][-1]

    core = recovered(torn, never_asked(policy))
    assert isinstance(core, JournalledCore), core
    assert core.journal.seq == known.seq
    assert core.records == known.records
    assert state_bytes(core.state) == known.state

    again = Driven(torn, policy, seed=seed + 1, time=made.time, accepted={*range(1, core.journal.next_job_id)})
    before = {*again.core.records}
    assert before == {*known.records}
    for _ in range(10):
        again.step()
    rows = again.journal._db.execute("SELECT job_id, state FROM jobs").fetchall()
    again.crash()
    assert sorted(job_id for job_id, _ in rows) == sorted(again.accepted)
    alive = {job_id for job_id, state in rows if JobState(state) not in TERMINAL}
    assert alive == set(again.core.records)


def test_killed_at_any_moment_nothing_accepted_is_lost_or_doubled(tmp_path: Path) -> None:
    """SIGKILL, again and again, on the same journal: a real process, real writes."""
    path = tmp_path / "journal.db"
    script = Path(__file__).with_name("crashing_host.py")
    chance = random.Random(4)
    accepted: list[int] = []
    started: list[int] = []
    ended: list[int] = []
    for _ in range(6):
        process = subprocess.Popen([sys.executable, script, path], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines, most = [], chance.randrange(1, 200)
        watchdog = threading.Timer(60, process.kill)
        watchdog.start()
        try:
            for line in process.stdout:
                lines.append(line)
                if len(lines) >= most:
                    break
        finally:
            watchdog.cancel()
            process.kill()
            rest, _ = process.communicate(timeout=BOUND_S)
        assert len(lines) >= most
        for word, _, number in (line.partition(" ") for line in "".join([*lines, rest]).splitlines()):
            {"accepted": accepted, "started": started, "ended": ended}[word].append(int(number))
        core = recovered(path, policy_named("easy"))
        assert isinstance(core, JournalledCore), core
        core.state.validate()
        assert set(accepted) <= set(range(1, core.journal.next_job_id))
        assert not set(ended) & set(core.records)
        states = {job_id: record.state for job_id, record in core.records.items()}
        assert JobState.QUEUED not in {states.get(job_id) for job_id in started}, "a start was handed on and forgotten"
    assert len(accepted) == len(set(accepted))
    assert len(started) == len(set(started)), "a job was started twice"
    assert len(ended) == len(set(ended))
    assert len(ended) > 20


def test_time_goes_on_from_the_journal(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", "easy")
    for _ in range(20):
        made.step()
    last_us = made.journal.last_us
    made.crash()
    made.time.boot, made.time.boottime_us, made.time.wall_us = "another boot", 3, made.time.wall_us - 10**12
    made.open()
    assert made.clock.now_us() >= last_us > 0
    for _ in range(20):
        made.step()
    assert made.journal.last_us >= last_us
    made.crash()
    assert isinstance(recovered(made.path, policy_named("easy")), JournalledCore)


def test_a_record_that_does_not_fit_is_refused_not_bent(tmp_path: Path) -> None:
    """A start of a job that is not queued: whole rows, right checksums, impossible story."""
    path = tmp_path / "journal.db"
    made = Driven(path, "easy", time=HandTime())
    made.core.submit(Job(0, 1, US_PER_S, 0), SCRIPT, "ann", made.clock.now_us())
    made.commit()
    made.time.pass_by(US_PER_S)
    made.core.decide(made.clock.now_us())
    boundary = made.core._entries[-1]
    made.commit()
    made.journal.write([msgspec.structs.replace(boundary, seq=made.journal.seq + 1, transitions=())])
    made.crash()
    refused = recovered(path)
    assert isinstance(refused, JournalRefused)
    assert "does not follow from those before it" in str(refused)
    assert "job 1" in str(refused)


def test_other_rules_apply_to_what_comes_not_to_what_was(tmp_path: Path) -> None:
    made = Driven(tmp_path / "journal.db", "easy", seed=8)
    for _ in range(60):
        made.step()
    made.crash()
    journal = Journal(made.path)
    core = core_of(journal, policy_named("easy"), MachineRules(kill_at_limit=False, max_nodes_per_job=1))
    journal.close()
    assert core.records == made.core.records
