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
from kit.jobs_alone import Kernel
from kit.waiting import wait_for

from cosched.linux.cgroups import quota
from cosched.model import contract as model
from cosched.model.node import Presence
from node_agent.guard.base.requests import Refusal
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


class Alone:
    """A limiter without a guard, of two CPUs and a GiB, at second 1000; what it writes is kept."""

    def __init__(self, **owner: float) -> None:
        self.kernel = Kernel()
        contract = Contract(**(HALF | owner))  # type: ignore[arg-type]
        self.limiter = limiter.Limiter(self.kernel, contract, 2, 1024 * MIB, -1)
        self.now_us = 1000 * US_PER_S
        self.limiter.arm(self.now_us)

    def asks(self, cpu_ratio: float, memory_ratio: float = 0.5, mpl: int = 1) -> None:
        """The cluster does."""
        self.limiter.set_contract(cpu_ratio, memory_ratio, mpl, self.now_us)

    def relax(self, lasting_us: int, epoch: int = 3) -> int:
        """For how long it is."""
        return self.limiter.relax(self.now_us + lasting_us, epoch, self.now_us) - self.now_us

    def limits(self) -> tuple[float | None, bool, int]:
        """In force: ceiling in CPUs, idle class, memory."""
        return self.kernel.limits

    def passes(self, us: int) -> str | None:
        self.now_us += us
        return self.limiter.tick(self.now_us)


def test_contract_is_relaxed_for_a_while_by_the_highest_epoch_alone() -> None:
    alone = Alone()
    assert alone.limits() == (1.0, True, 512 * MIB)
    assert alone.relax(86_400 * US_PER_S) == limiter.MAX_RELAX_US
    assert alone.limits() == (None, True, 512 * MIB)
    alone.limiter.arm(alone.now_us)
    for epoch, lasting_us, words in ((2, US_PER_S, "relax of epoch 2; epoch 3 has been seen"), (3, -1, "1 us ago")):
        with pytest.raises(Refusal, match=words):
            alone.relax(lasting_us, epoch)
    assert alone.limits()[0] == 1.0
    alone.relax(US_PER_S)
    assert (alone.passes(US_PER_S - 1), alone.passes(1), alone.limits()[0]) == (None, "expired", 1.0)


def test_a_tightened_ceiling_holds_while_armed_and_for_its_time() -> None:
    alone = Alone()
    alone.limiter.tighten(0.25, alone.now_us + 100 * US_PER_S, alone.now_us)
    assert alone.limits()[0] == 0.25
    alone.relax(50 * US_PER_S)
    assert alone.limits()[0] is None, "an empty desk has no owner in pain"
    alone.limiter.arm(alone.now_us)
    assert alone.limits()[0] == 0.25
    alone.passes(100 * US_PER_S)
    assert (alone.limits()[0], alone.limiter.status_fields()["tight"]) == (1.0, 1.0)
    with pytest.raises(Refusal, match="tighten until 1, which was"):
        alone.limiter.tighten(0.5, 1, alone.now_us)


def test_owner_limit_applies_to_cluster_limits_and_cpu_shares() -> None:
    alone = Alone()
    alone.asks(0.9, 0.25, 4)
    assert alone.limiter.contract == Contract(0.5, 0.25, 1)
    assert alone.limits() == (1.0, True, 256 * MIB)
    alone.asks(0.4)
    for share, cpus in ((0.25, 0.5), (0.9, 0.8), (None, 0.8)):
        alone.limiter.set_share(share, alone.now_us)
        assert alone.limits() == (cpus, True, 512 * MIB), "node.toml is the maximum"


def test_a_dedicated_machine_has_no_ceiling_and_no_idle_class() -> None:
    alone = Alone(cpu_ratio=1.0, memory_ratio=1.0)
    for asked, limits in (
        ((1.0, 1.0), (None, False, 1024 * MIB)), ((0.5,), (1.0, True, 512 * MIB)), ((1, 1), (None, False, 1024 * MIB))
    ):  # fmt: skip
        alone.asks(*asked)
        assert alone.limits() == limits


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
