"""A journal of jobs that shrink, widen and are queued again, killed between any two steps: it comes back the same.

``HYPOTHESIS_PROFILE=campaign`` lives 200 of them instead of some.
"""

import os
from contextlib import suppress
from pathlib import Path

import pytest
from kit.journals import Driven, state_bytes
from kit.reshaper import Reshaper, shaped

from cosched.model.job import Job, JobState
from space_scheduler.machine import events as ev
from space_scheduler.machine.holding import Resizing
from space_scheduler.machine.record import IllegalTransition, UnknownJob
from space_scheduler.replay import replay
from space_scheduler.service.core.journalled import Settings, opened

LIVES = 200 if os.environ.get("HYPOTHESIS_PROFILE") == "campaign" else 8


class Reshaped(Driven):
    """Hosts carry changes out late, or refuse them; the service is killed now and then."""

    killed = resized = 0

    def job(self) -> Job:
        return shaped(super().job(), self.random)

    def under_way(self) -> list[int]:
        changing = self.core.state.machine.jobs.changing.items()
        return [job_id for job_id, each in changing if isinstance(each.holding, Resizing)]

    def event(self) -> None:
        if (jobs := self.under_way()) and self.random.random() < 0.5:
            job_id = self.random.choice(jobs)
            refused = self.random.random() < 0.3
            event = ev.ResizeFailed(job_id, "dust") if refused else ev.JobResized(job_id)
            self.core.take_in(event, self.clock.now_us())
            self.resized += not refused
            return
        records = self.core.state.records.values()
        starting = [each.job.id for each in records if each.state is JobState.STARTING and not each.holding.awaits]
        if starting and self.random.random() < 0.5:
            self.core.take_in(ev.JobLaunched(self.random.choice(starting)), self.clock.now_us())
            return
        away = [each for each in self.core.state.nodes() if not each.in_service]
        if away and self.random.random() < 0.3:
            node = self.random.choice(away)
            back = ev.NodeJoined(node.node) if node.lost else ev.NodeResumed(node.node.name)
            self.core.take_in(back, self.clock.now_us())
            return
        super().event()

    def step(self) -> None:
        if self.random.random() < 0.15:
            with suppress(IllegalTransition, UnknownJob):
                if self.random.random() < 0.5:
                    self.core.take_in(ev.JobCancelled(1), self.clock.now_us())  # not committed: it never was
            self.kill()
        super().step()

    def kill(self) -> None:
        """Nothing is written any more; what was committed comes back, and nothing else."""
        known = self.commits[-1]
        self.killed += 1
        self.crash()
        self.open()
        self.core.state.validate()
        restored = self.commits[-1]
        assert (restored.state, restored.records) == (known.state, known.records)


@pytest.mark.parametrize("part", range(4))
def test_it_comes_back_the_same_after_every_kill_and_replays(tmp_path: Path, part: int) -> None:
    killed = resized = 0
    for seed in range(part, LIVES, 4):
        every = 40 if seed % 3 else 1 << 60
        made = Reshaped(tmp_path / f"{seed}.db", policy=Reshaper(seed), seed=seed, snapshot_every=every)
        for _ in range(120):
            made.step()
        made.kill()
        made.crash()
        found = replay(made.path, lambda run: Reshaper(seed))  # noqa: B023
        assert found.agrees, str(found.difference)
        killed, resized = killed + made.killed, resized + made.resized
    assert killed > LIVES // 4
    assert resized > LIVES // 4


def test_a_service_that_starts_again_knows_what_was_under_way(tmp_path: Path) -> None:
    """Its nodes are asked again; plans count what each job is to hold, and it holds what it held."""
    policy = Reshaper(3)
    made = Reshaped(tmp_path / "journal.db", policy=policy, seed=3)
    for _ in range(300):
        made.step()
        if made.under_way():
            break
    (job_id, *_) = made.under_way()
    before = state_bytes(made.core.state)
    record = made.core.state.records[job_id]
    held, target = record.holding.held, record.allocation
    made.crash()
    found = opened(
        Settings(made.path, policy, "a test's", None, made.core.state.rules, 1000, None, None, 1, made.time.sources())
    )
    try:
        assert state_bytes(found.core.state) == before
        assert found.recovered.resizing[job_id] == target
        assert found.recovered.jobs[job_id].allocation == held != target
        found.core.state.validate()
    finally:
        found.journal.close()
    again = replay(made.path, lambda run: policy)
    assert again.agrees, str(again.difference)
