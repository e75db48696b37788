"""The campaign of chaos: its judges catch what they are for, its disks are thawed in any case, and a short round."""

import errno
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from campaigns import _chaos_judge as judge
from campaigns._chaos_plan import KINDS, LabPlan, RoundPlan, probes
from campaigns._disks import Disk
from campaigns.chaos import DISKS, Campaign
from kit.needs import need_root
from kit.waiting import BOUND_S, wait_for

from cosched.apps.lab import tiers
from cosched.wire.api import JobDoc, ShareDoc, Step

NOON = "2026-01-01T12:00:00+00:00"
NOON_S = 1_767_268_800.0


def job(*states: str, **fields: object) -> JobDoc:
    """Job 7 with that history."""
    history = [Step(NOON, state) for state in states]
    known: dict[str, object] = {
        "job_id": 7, "name": "x", "user": "u", "state": states[-1], "tasks": 2, "time_limit_s": 9.0, "directory": "/",
        "submit_time": NOON, "history": history,
    }  # fmt: skip
    return JobDoc(**{**known, **fields})  # type: ignore[arg-type]


# --- The judges -------------------------------------------------------------------------------------------------------

DONE = job("queued", "starting", "running", "ending", "completed")


@pytest.mark.parametrize(
    ("ended", "lines", "at_end", "problem"),
    [
        (DONE, ["7 1 20"], True, ""),
        (job("queued", "starting", "failed"), [], False, ""),
        (DONE, ["7 1 20", "7 1 30"], True, "ran twice as the same attempt"),
        (DONE, ["7 1 20", "7 2 30"], True, "ran 2 times where it may 1"),
        (DONE, ["8 1 20"], True, "ran as another job"),
        (DONE, [], False, "is completed; its script ran 0 times"),
        (DONE, ["7 1 20"], False, "is completed; its script ran 1 times"),
        (job("queued", "running", "failed", "completed"), ["7 1 20"], True, "has ended as ['failed', 'completed']"),
        (job("queued", "completed", "running"), ["7 1 20"], True, "has ended as ['completed'], and is running"),
    ],
)
def test_judge_of_ended_jobs_names_the_problem(ended: JobDoc, lines: list[str], at_end: bool, problem: str) -> None:
    found = judge.job_problems(ended, lines, at_end, restarts=False)
    assert [each.startswith(problem) for each in found[:1]] == [True] * bool(problem)


def test_requeued_job_may_run_once_for_each_time_in_the_queue() -> None:
    again = job("queued", "running", "queued", "running", "completed")
    assert judge.job_problems(again, ["7 1 20", "7 2 30"], True, restarts=True) == []
    assert judge.job_problems(again, ["7 1 20", "7 2 30", "7 3 40"], True, restarts=True) != []


@pytest.mark.parametrize(("late_s", "state", "problems"), [(1, "queued", 0), (3, "queued", 1), (3, "running", 0)])
def test_promise_in_the_past_is_a_problem_of_queued_jobs(late_s: float, state: str, problems: int) -> None:
    promised = job(state, promised_start=NOON)
    assert len(judge.promise_problems([promised], NOON_S + late_s)) == problems


def test_condition_is_a_problem_only_when_it_lasts_without_a_break() -> None:
    lasting = judge.Lasting(10.0)
    assert lasting.seen(["a"], 0.0) == []
    assert lasting.seen([], 5.0) == []
    assert lasting.seen(["a"], 6.0) == []
    assert lasting.seen(["a"], 16.0) == []
    assert lasting.seen(["a", "b"], 16.1) == ["a"]


def test_time_before_all_was_healed_does_not_count_towards_a_lasting_condition() -> None:
    lasting = judge.Lasting(10.0)
    assert lasting.seen(["a"], 1.0, from_s=1.0) == []
    assert lasting.seen(["a"], 50.0, from_s=45.0) == [], "no call between the healing and this one"
    assert lasting.seen(["a"], 55.1, from_s=45.0) == ["a"]


@pytest.mark.parametrize(
    ("changed", "problems"),
    [
        ({}, 0),
        ({"processors": [0]}, 1),
        ({"asleep": True}, 1),
        ({"stopped_us": 5}, 1),
        ({"processors": []}, 0),
        ({"ending": "limit", "processors": [0]}, 0),
    ],
)
def test_share_on_record_that_differs_from_the_schedulers_is_found(changed: dict[str, object], problems: int) -> None:
    record = {"request": {"job": 7}, "processors": [0, 1], "ending": None, "asleep": False, "stopped_us": None}
    recorded = judge.recorded_shares({"node1": [{**record, **changed}]})
    running = job("running", nodes=[ShareDoc("node1", 2, 2), ShareDoc("node2", 2, 2)])
    assert len(judge.share_differences([running], recorded)) == problems


# --- The plan ---------------------------------------------------------------------------------------------------------


def test_plan_of_a_round_follows_from_seed_and_number() -> None:
    one, other = RoundPlan(5, 3), RoundPlan(5, 3)
    assert (one.labs, one.jobs, one.faults) == (other.labs, other.jobs, other.faults)
    assert RoundPlan(5, 4).faults != one.faults != RoundPlan(6, 3).faults


def test_every_kind_of_fault_and_job_is_drawn_in_a_short_campaign() -> None:
    rounds = [RoundPlan(1, number) for number in range(6)]
    assert {fault.kind for each in rounds for fault in each.faults} == set(KINDS)
    shapes = {name for each in rounds for job in each.jobs for name in job.shape}
    assert shapes >= {"tasks", "min_tasks", "sizes", "components", "requeue"}


def test_last_jobs_include_one_that_fills_a_cluster() -> None:
    for lab in (LabPlan("a", 4, 2, "easy", "2,2"), LabPlan("b", 3, 2, "fjt4")):
        assert {"tasks": 4 if lab.clusters else 6} in [probe.shape for probe in probes(lab, 0)]


# --- Disks ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    need_root()
    with Disk(tmp_path / "disk", 16) as made:
        try:
            made.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"needs loop devices: {error}")
        yield made
    assert not (tmp_path / "disk").exists()


def test_full_disk_takes_nothing_until_it_is_freed(disk: Disk) -> None:
    disk.fill()
    with pytest.raises(OSError, match="No space") as refused:
        (disk.path / "file").write_bytes(b"x" * 8192)
    assert refused.value.errno == errno.ENOSPC
    disk.free()
    (disk.path / "file").write_bytes(b"x" * 8192)


def test_write_to_a_frozen_disk_waits_until_it_is_thawed(disk: Disk) -> None:
    disk.freeze()
    writer = subprocess.Popen(["sh", "-c", 'echo x > "$1"', "sh", disk.path / "file"])
    wait_for(lambda: _state(writer.pid) == "D", "the writer to wait")
    disk.thaw()
    assert writer.wait(BOUND_S) == 0


def test_disk_is_thawed_when_its_owner_is_killed(disk: Disk) -> None:
    code = (
        "import sys, time; from pathlib import Path; from campaigns._disks import Disk\n"
        "disk = Disk(Path(sys.argv[1]), 16); disk.freeze(); print('frozen', flush=True); time.sleep(3600)"
    )
    search = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    owner = subprocess.Popen([sys.executable, "-c", code, disk.path], env=search, stdout=subprocess.PIPE)
    with owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"frozen\n"
        owner.send_signal(signal.SIGKILL)
    assert subprocess.run(["touch", disk.path / "file"], timeout=BOUND_S, check=False).returncode == 0


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


# --- Rounds -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("met", "done", "rounds", "part", "goes_on"),
    [
        (KINDS, 3, None, 0.9, True),
        (KINDS, 3, None, 1.0, False),
        (KINDS[1:], 3, None, 1.9, True),
        (KINDS[1:], 3, None, 2.0, False),
        ((), 3, 4, 9.0, True),
        ((), 4, 4, 0.0, False),
    ],
)
def test_campaign_goes_on_while_there_is_time_or_a_kind_is_missing(
    met: tuple[str, ...], done: int, rounds: int | None, part: float, goes_on: bool
) -> None:
    campaign = Campaign(Path("/nowhere"), {}, Path("/nowhere"))
    campaign.met.update(met)
    assert campaign.goes_on(done, rounds, part) is goes_on


@pytest.mark.slow
@pytest.mark.xdist_group("faults")
def test_short_round_of_chaos_breaks_no_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs labs of tier 1, with control groups: {possible.why}")
    with ExitStack() as stack:
        base = Path(stack.enter_context(TemporaryDirectory(prefix="chaos-", dir="/tmp")))  # a short path: for sockets
        base.chmod(0o755)
        (base / "shared").mkdir()
        disks = {name: stack.enter_context(Disk(base / name, size)) for name, size in DISKS.items()}
        try:
            for disk in disks.values():
                disk.make()
        except subprocess.CalledProcessError as error:
            pytest.skip(f"needs loop devices: {error}")
        monkeypatch.setenv("COSCHED_RUNTIME_DIR", str(disks["state"].path))
        campaign = Campaign(base, disks, base / "kept")
        assert campaign.run(RoundPlan(1, 0, faults_s=10.0)) == []
    assert campaign.met.total() > 0
    assert campaign.came >= Counter({"accepted": 1, "completed when healed": 10, "records read": 1})
