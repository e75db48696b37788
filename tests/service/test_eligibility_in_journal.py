"""Rules before the queue in the service: journalled, recovered without asking them, told in both books."""

import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from kit.journals import SCRIPT, Driven, copied, never_asked, recovered, state_bytes
from kit.waiting import BOUND_S

from cosched.model.job import After, Job, JobState
from cosched.model.time import US_PER_S
from space_scheduler.eligibility.dependency import DEPENDENCY
from space_scheduler.eligibility.rule import Moment, Wait
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Start
from space_scheduler.reasons import Reason, Why
from space_scheduler.replay import replay
from space_scheduler.service.core.journalled import JournalledCore
from space_scheduler.service.journal.journal import Journal


class ByChance:
    """Keeps jobs back for a time, or until another has ended, by chance: another answer whenever it is asked."""

    name = "by-chance"

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def wait(self, job: Job, moment: Moment) -> Wait | None:
        dice, times = self.random.random(), 0 if moment.before is None else moment.before.kept
        if dice < 0.4 or times > 3:
            return None
        if dice < 0.7:
            return Wait(until_us=moment.now_us + self.random.randrange(60) * US_PER_S, kept=times + 1)
        others = tuple(each.id for each, state in moment.jobs() if each.id != job.id and state in HOLDING)
        return Wait(Reason(Why.AFTER_JOB), ends=others, words="by chance", kept=times + 1)


HOLDING = (JobState.STARTING, JobState.RUNNING)


@pytest.mark.parametrize(
    "seeds", [pytest.param(range(8), id="some"), pytest.param(range(10_000), id="all", marks=pytest.mark.long)]
)
def test_recovery_replays_rule_decisions_without_asking_rules(tmp_path: Path, seeds: Sequence[int]) -> None:
    waited = 0
    for seed in seeds:
        path = tmp_path / f"{seed}" / "journal.db"
        path.parent.mkdir()
        driven = Driven(
            path, "conservative", seed, eligibility=[ByChance(seed)], snapshot_every=9 if seed % 2 else 1 << 60
        )
        for _ in range(25):
            driven.step()  # each commit compares the two books
            waited += driven.core.alive[JobState.WAITING] > 0
        again = recovered(copied(path, path.parent / "copy"), never_asked("conservative"))
        driven.crash()
        assert isinstance(again, JournalledCore), (seed, again)
        assert again.records == driven.core.records, seed
        assert again.kept_back == driven.core.kept_back, seed
        assert state_bytes(again.state) == state_bytes(driven.core.state), seed
    assert waited > len(seeds)


def test_dependent_job_starts_after_a_crash_at_every_commit(tmp_path: Path) -> None:
    driven = Driven(tmp_path / "journal.db", "fcfs", eligibility=[DEPENDENCY], snapshot_every=7)
    first = driven.core.submit(driven.job(), SCRIPT, "ann", driven.clock.now_us())
    jobs = [first]
    for _ in range(15):
        follows = After(jobs[-1], 2 * US_PER_S)
        jobs.append(driven.core.submit(Job(0, 1, US_PER_S, 0, after=follows), SCRIPT, "ann", driven.clock.now_us()))
    started: list[int] = []
    for _ in range(200):
        driven.core.decide(driven.clock.now_us())
        starts = [
            each.job.id
            for committed in driven.core._committed
            for each in committed.instructions
            if isinstance(each, Start)
        ]
        started += starts
        driven.commit()
        driven.crash()
        driven.open()
        for job_id in starts:
            driven.core.take_in(ev.JobLaunched(job_id), driven.clock.now_us())
            driven.core.take_in(ev.JobEnded(job_id), driven.clock.now_us())
            driven.commit()
            driven.crash()
            driven.open()
        driven.time.pass_by(US_PER_S)
        if not driven.core.records:
            break
    assert started == jobs
    story = driven.journal.job(jobs[1])
    assert story is not None
    assert [(each.state, each.reason and each.reason.why) for each in story.history[:4]] == [
        (JobState.QUEUED, Why.ACCEPTED),
        (JobState.WAITING, Why.AFTER_JOB),
        (JobState.WAITING, Why.THINK_TIME),
        (JobState.QUEUED, Why.ELIGIBLE),
    ]


@pytest.mark.parametrize(
    ("length", "kills"),
    [pytest.param(12, 6, id="some"), pytest.param(1000, 200, id="all", marks=pytest.mark.long)],
)
def test_chain_in_a_host_killed_at_random_moments_runs_once_in_order(tmp_path: Path, length: int, kills: int) -> None:
    """SIGKILL, again and again, on the same journal: real processes, real writes."""
    path, script = tmp_path / "journal.db", Path(__file__).with_name("killed_chain.py")
    command: list[str | Path] = [sys.executable, script, path, str(length), str(kills), "1"]
    lived = subprocess.run(command, capture_output=True, text=True, check=False, timeout=max(BOUND_S, 3 * kills))
    assert (lived.returncode, lived.stdout) == (0, f"{kills}\n"), lived.stderr
    assert path.with_name("ran").read_text().split() == [str(job_id) for job_id in range(1, length + 1)]
    journal = Journal(path)
    stories = [journal.job(job_id) for job_id in range(1, length + 1)]
    assert (journal.next_job_id, journal.alive()) == (length + 1, {})
    journal.close()
    ended_seq = 0
    for story in stories:
        assert story is not None
        assert [each.state for each in story.history if each.state not in (JobState.WAITING, JobState.QUEUED)] == [
            *(JobState.STARTING, JobState.RUNNING, JobState.COMPLETED)
        ]
        *_, started, _, ended = story.history
        assert ended_seq < started.seq, "it started before the one that it follows had ended"
        ended_seq = ended.seq
    assert replay(path).difference is None
