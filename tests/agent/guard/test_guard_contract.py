"""The contract on the parallel side: armed by itself, relaxed for a while on request, cut by the owner."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.groups import ceiling
from kit.guards import MIB, US_PER_S, RealGuard
from kit.waiting import wait_for

from cosched.linux.cgroups import quota
from cosched.model import contract as model
from cosched.model.node import Presence
from node_agent.guard.base.settings import Contract
from node_agent.guard.desk import limiter

CLUSTER = {"do": "contract", "cpu_ratio": 0.5, "memory_ratio": 0.5, "mpl": 1}


HALF = {"cpu_ratio": 0.5, "memory_ratio": 0.5, "mpl": 1}


@pytest.fixture
def guard(make_guard: Callable[..., RealGuard]) -> RealGuard:
    return make_guard(contract=HALF)


def now_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def in_kernel(guard: RealGuard) -> tuple[float | None, bool, int]:
    """(ceiling in CPUs, idle class, memory limit) as the kernel has them."""
    v1 = Path("/sys/fs/cgroup/cpu", guard.group)
    idle = (v1 if v1.exists() else Path("/sys/fs/cgroup", guard.group)) / "cpu.idle"
    v1 = Path("/sys/fs/cgroup/memory", guard.group, "memory.limit_in_bytes")
    memory = v1 if v1.exists() else Path("/sys/fs/cgroup", guard.group, "memory.max")
    return ceiling(guard.group), idle.read_text() == "1\n", int(memory.read_text())


def test_it_begins_armed_and_an_agents_end_arms_it_again(guard: RealGuard) -> None:
    assert in_kernel(guard) == (1.0, True, 512 * MIB)
    answer = guard.ask({"do": "relax", "until_us": now_us() + 60 * US_PER_S, "epoch": 3})
    assert answer["until_us"] > now_us()
    assert in_kernel(guard) == (None, True, 512 * MIB)
    assert guard.status()["armed"] is False
    guard.hang_up()
    wait_for(lambda: in_kernel(guard)[0] == 1.0, "the guard to arm")


@pytest.mark.system("strace")
def test_what_is_so_already_is_not_written(guard: RealGuard) -> None:
    """Who writes a ceiling gives its whole quota again: to parallel work, beside an owner."""
    trace = guard.directory / "writes"
    assert guard.process is not None
    pid = guard.process.pid
    command = ["strace", "-o", str(trace), "-e", "trace=openat", "-p", str(pid)]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:  # it lets the guard go when it ends
        try:
            wait_for(lambda: "TracerPid:\t0" not in Path(f"/proc/{pid}/status").read_text(), "the tracer")
            for _ in range(3):
                guard.ask({"do": "arm"})
                guard.ask(CLUSTER)
            guard.ask({**CLUSTER, "cpu_ratio": 0.25})
        finally:
            tracer.send_signal(signal.SIGINT)
    ceiling = [line for line in trace.read_text().splitlines() if f"{guard.group}/cpu." in line]
    written = [at for at, line in enumerate(ceiling) if "O_WRONLY" in line]
    read = [at for at, line in enumerate(ceiling) if "O_RDONLY" in line]
    assert written, "another ceiling is written"
    assert len([at for at in read if at < written[0]]) >= 6, "and it was looked at before, each time"


def test_it_arms_by_itself_when_the_time_is_over(guard: RealGuard) -> None:
    guard.ask_lasting({"do": "relax", "epoch": 3}, 200_000)
    assert guard.event("armed") == {"event": "armed", "why": "expired"}
    assert in_kernel(guard)[0] == 1.0
    assert guard.status()["armed"] is True


def test_arming_is_an_order_too(guard: RealGuard) -> None:
    guard.ask({"do": "relax", "until_us": now_us() + 60 * US_PER_S, "epoch": 3})
    guard.ask({"do": "arm"})
    assert in_kernel(guard)[0] == 1.0


def test_an_old_epoch_and_a_moment_gone_by_are_refused(guard: RealGuard) -> None:
    guard.ask({"do": "relax", "until_us": now_us() + 60 * US_PER_S, "epoch": 3})
    guard.ask({"do": "arm"})
    code, story = guard.refused({"do": "relax", "until_us": now_us() + US_PER_S, "epoch": 2})
    assert (code, story) == ("stale", "relax of epoch 2; epoch 3 has been seen")
    assert guard.refused({"do": "relax", "until_us": now_us() - 1, "epoch": 3})[0] == "stale"
    assert in_kernel(guard)[0] == 1.0
    guard.kill()
    guard.start()
    assert guard.refused({"do": "relax", "until_us": now_us() + US_PER_S, "epoch": 2})[0] == "stale"


def test_a_tightened_ceiling_holds_while_armed_and_for_its_time(guard: RealGuard) -> None:
    whole = guard.status()["limits"]["cpus"]
    hour_us = now_us() + 3600 * US_PER_S
    guard.ask({"do": "tighten", "ratio": 0.25, "until_us": hour_us})
    found = guard.status()
    assert found["limits"]["cpus"] == 0.25 * (2.0 if whole is None else whole)
    guard.ask({"do": "relax", "until_us": hour_us, "epoch": 1})
    assert guard.status()["limits"]["cpus"] is None, "an empty desk has no owner in pain"
    guard.ask({"do": "arm"})
    assert guard.status()["limits"]["cpus"] == found["limits"]["cpus"]
    guard.ask_lasting({"do": "tighten", "ratio": 0.5}, US_PER_S // 2)
    wait_for(lambda: guard.status()["tight"] == 1.0, "the end of it")
    assert guard.status()["limits"]["cpus"] == whole
    assert guard.refused({"do": "tighten", "ratio": 0.5, "until_us": 1})[0] == "stale"


def test_nobody_relaxes_for_days(guard: RealGuard) -> None:
    answer = guard.ask({"do": "relax", "until_us": now_us() + 86_400 * US_PER_S, "epoch": 3})
    assert answer["until_us"] <= now_us() + limiter.MAX_RELAX_US


def test_the_owner_cuts_what_the_cluster_asks_for(guard: RealGuard) -> None:
    answer = guard.ask({**CLUSTER, "cpu_ratio": 0.9, "memory_ratio": 0.25, "mpl": 4})
    assert answer["contract"] == {"cpu_ratio": 0.5, "memory_ratio": 0.25, "mpl": 1}
    assert in_kernel(guard) == (1.0, True, 256 * MIB)
    guard.ask({**CLUSTER, "cpu_ratio": 0.25})
    assert in_kernel(guard) == (0.5, True, 512 * MIB)


def test_a_tiny_share_is_a_longer_period(guard: RealGuard) -> None:
    guard.ask({**CLUSTER, "cpu_ratio": 0.01})
    assert in_kernel(guard)[0] == pytest.approx(0.02)


def test_a_dedicated_machine_has_no_ceiling_and_no_idle_class(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard(contract={"cpu_ratio": 1.0, "memory_ratio": 1.0})
    assert in_kernel(guard) == (None, False, 1024 * MIB)
    guard.ask(CLUSTER)
    assert in_kernel(guard) == (1.0, True, 512 * MIB)
    guard.ask({**CLUSTER, "cpu_ratio": 1, "memory_ratio": 1})
    assert in_kernel(guard) == (None, False, 1024 * MIB)


def test_memory_limit_below_usage_is_kept_and_reported(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard()
    guard.prepare(memory_bytes=400 * MIB)
    hold = "import time; b = bytearray(200 << 20); print('holding', len(b), flush=True); time.sleep(1000)"
    guard.spawn(["/usr/bin/python3", "-I", "-c", hold])
    guard.told("holding")
    assert guard.ask(CLUSTER)["limits"]["problems"] == []
    answer = guard.ask({**CLUSTER, "memory_ratio": 0.1})
    assert answer["limits"]["problems"] == [
        f"memory limit {1024 * MIB // 10}: more is in use by running jobs; {512 * MIB} is kept"
    ]
    assert in_kernel(guard)[2] == 512 * MIB
    assert guard.listed()["state"] == "running"  # nobody is killed for it
    assert guard.refused(guard.preparation(job=2))[0] == "memory"


def test_without_cgroups_the_ceiling_is_whole_cpus_and_it_says_so(make_guard: Callable[..., RealGuard]) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs")
    guard = make_guard("none", contract=HALF)
    assert guard.status()["can"]["cpu ceiling"].startswith("only in whole CPUs, by affinity")
    assert any(problem.startswith("memory limit") for problem in guard.status()["limits"]["problems"])
    guard.prepare()
    pid = guard.shell("exec sleep 1000")
    assert len(os.sched_getaffinity(pid)) == 1
    assert os.sched_getscheduler(pid) == os.SCHED_IDLE
    guard.ask({"do": "relax", "until_us": now_us() + 60 * US_PER_S, "epoch": 3})
    assert os.sched_getaffinity(pid) == os.sched_getaffinity(0)
    guard.hang_up()
    wait_for(lambda: len(os.sched_getaffinity(pid)) == 1, "the guard to arm")


def test_a_ceiling_throttles(make_guard: Callable[..., RealGuard]) -> None:
    guard = make_guard()
    guard.prepare()
    guard.shell("while :; do :; done")
    guard.ask({**CLUSTER, "cpu_ratio": 0.001})  # 0.002 CPUs: a busy machine may give the idle class little more
    v1 = Path("/sys/fs/cgroup/cpu", guard.group, "cpu.stat")
    stat = v1 if v1.exists() else Path("/sys/fs/cgroup", guard.group, "cpu.stat")
    wait_for(lambda: "nr_throttled 0\n" not in stat.read_text(), "the job to be throttled")


ratios = st.floats(0.001, 1.0) | st.just(1.0)


@given(ratios, ratios, st.integers(1, 3), st.sampled_from(Presence), st.integers(1, 256), st.integers(1, 2**45))
def test_limits_mean_what_the_model_says(
    cpu_ratio: float, memory_ratio: float, mpl: int, presence: Presence, cpus: int, memory_bytes: int
) -> None:
    said = model.limits(
        model.SocialContract(cpu_ratio=cpu_ratio, memory_ratio=memory_ratio, mpl=mpl), presence, cpus, memory_bytes
    )
    ours = limiter.limits(Contract(cpu_ratio, memory_ratio, mpl), presence.counts_as_present, cpus, memory_bytes)
    assert ours == (said.cpus, said.idle, said.memory_bytes)


@given(st.floats(0.001, 512))
def test_quotas_come_to_the_cpus_asked_for_in_what_the_kernel_takes(cpus: float) -> None:
    quota_us, period_us = quota(cpus)
    assert quota_us >= 1000
    assert 10_000 <= period_us <= 1_000_000
    assert quota_us / period_us == pytest.approx(cpus, rel=0.01, abs=0.0006)
