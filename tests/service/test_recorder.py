"""A record of a service's inputs is taken in again to the same effects; one of other rules, or a torn one, says so."""

import os
import subprocess
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from kit.service import Cluster, running
from kit.waiting import BOUND_S

from cosched.apps.cli.main import main
from cosched.config.cluster import CoschedulingSettings
from cosched.errors import Failed
from cosched.model.contract import SocialContract
from cosched.model.coscheduling import Mode
from cosched.model.node import Presence, Usage
from cosched.model.time import US_PER_S
from cosched.wire import messages as wire
from space_scheduler.service.launch.gang import Gang
from space_scheduler.service.recorder import Replayed, take_in_again


@pytest.fixture
async def night(tmp_path: Path) -> Path:
    """The record of a service with two agents: jobs that go and end in several ways, an agent that is removed."""
    contract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=2)
    cluster = Cluster(
        policy="normal", contract=contract, coscheduling=CoschedulingSettings(mode=Mode.CCS), launch_timeout="60s"
    )
    path = tmp_path / "night.record"
    try:
        async with running(cluster, record=path) as service, AsyncExitStack() as stack:
            first, second = [await stack.enter_async_context(service.agent(name)) for name in ("n1", "n2")]
            wide = await service.runs(tasks=3, time_limit_s=100)
            for seconds in range(5):
                sign = wire.JobSigns(wide, 1, "polls", 0, ("tcp",), ran_us=seconds * US_PER_S, queued_us=0)
                for agent in (first, second):
                    usage = Usage(cpu_local=0.6, memory_local_bytes=1 << 30)
                    beat = wire.Heartbeat(usage, Presence.PRESENT, clock_bound_us=10, asked_us=1, jobs=(sign,))
                    await agent.say(beat)
            first.refuses = {wire.Prepare: "failed"}
            await service.job_in(await service.submit(tasks=1), "running", "launch failed")
            cancelled = await service.submit(tasks=1)
            await service.post(f"/v1/jobs/{cancelled}/cancel")
            await first.ends(wide, wire.Exit(status=3), b"no such grid\n")
            await service.job_in(wide, "failed")
            second.close()
            await second.connection.close()
            await service.until(lambda: not service.service.book.entry("n2").connected, "away")
            await service.post("/v1/nodes/n2/remove", {})
        second_path = tmp_path / "second.record"
        async with running(cluster, record=second_path) as service, service.agent("n1"):  # with jobs of before
            await service.until(lambda: service.service.book.entry("n1").agreed, "heard")
    finally:
        cluster.close()
    return path


async def test_a_night_is_taken_in_again_to_the_same_effects(night: Path) -> None:
    found = take_in_again(night)
    assert found.difference is None
    assert not found.torn
    assert found.inputs > 30
    assert found.effects > found.inputs / 2
    assert take_in_again(night.with_name("second.record")).difference is None
    assert night.stat().st_mode & 0o777 == 0o600


async def test_it_is_the_same_in_another_process(night: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of it depends on how this process orders sets of names."""
    argv = [sys.executable, "-m", "cosched.apps.cli.main", "replay", "--inputs", str(night)]
    for seed in ("1", "2"):
        done = subprocess.run(
            argv,
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=False,
            timeout=BOUND_S,
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.endswith("effects as recorded.\n")


async def test_other_rules_are_told_from_the_first_difference_on(
    night: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Gang, "prepared", lambda *_: [])
    found = take_in_again(night)
    assert found.difference is not None
    assert "Prepared" in found.difference.happened
    with pytest.raises(SystemExit) as ended:
        main(["replay", "--inputs", str(night)])
    assert ended.value.code == 1
    assert f"Different at input {found.difference.number}: " in capsys.readouterr().out


async def test_a_torn_record_is_read_as_far_as_it_goes_and_others_are_refused(night: Path, tmp_path: Path) -> None:
    whole, torn = take_in_again(night), tmp_path / "torn"
    data = night.read_bytes()
    seen: set[Replayed] = set()
    for cut in (1, 2, 5, 100, len(data) // 2):
        torn.write_bytes(data[:-cut])
        found = take_in_again(torn)
        assert found.torn
        assert found.inputs < whole.inputs
        seen.add(found)
    assert len(seen) > 1
    for bad in (b"", b"SQLite format 3\0", data[4:], b"\xff" * 100):
        torn.write_bytes(bad)
        with pytest.raises(Failed, match="no record"):
            take_in_again(torn)
    with pytest.raises(Failed, match="cannot be read"):
        take_in_again(tmp_path / "nothing")


async def test_a_record_is_never_written_over(night: Path) -> None:
    cluster = Cluster()
    try:
        with pytest.raises(Failed, match="File exists"):
            async with running(cluster, record=night):
                pass
    finally:
        cluster.close()
    assert take_in_again(night).difference is None


async def test_a_record_on_a_full_disk_ends_and_the_service_goes_on_and_says_so() -> None:
    cluster = Cluster()
    try:
        full = Path("/dev/full")  # every write to it is refused, as by a full disk
        async with running(cluster, record=cluster.path / "night") as service:
            assert service.service.recorder is not None
            os.dup2(os.open(full, os.O_WRONLY), service.service.recorder._file.fileno())
            async with service.agent("n1"):
                await service.logged("record", "it ends here: No space left on device")
            await service.job_in(await service.submit(), "queued", "starting")
        assert service.log.getvalue().count("it ends here") == 1
    finally:
        cluster.close()
