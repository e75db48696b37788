"""Coscheduling on a lab whose nodes have several tasks on a CPU: what it does is counted, shown, and undone."""

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from kit.desks import TYPIST
from kit.groups import groups
from kit.processes import cpu_s
from kit.waiting import BOUND_S, wait_for
from live.conftest import Jobs, groups_of

from cosched.apps.lab.cgroups import PARENT
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.model.coscheduling import Mode
from cosched.wire.api import CoschedulingDoc

pytestmark = pytest.mark.xdist_group("live")

PULSE = f"{shlex.quote(sys.executable)} -P -m cosched.programs.pulse --grain-ms 1"
COMPUTES = f"exec {PULSE} --receive none"
BLOCKS = f"exec mpirun {PULSE} --receive block"
SLEEPS = "exec sleep 900"
_LIMIT_S = 900.0  # none of these jobs is to end by itself


@pytest.fixture(scope="module")
def shared() -> Iterator[Lab]:
    """Two nodes, up to three tasks on each CPU, coscheduled by ccs unless a job says otherwise."""
    pin = len(os.sched_getaffinity(0)) >= 2
    with Lab.up(2, name=f"shared-{os.getpid()}", pin=pin, mpl=3, coscheduling=Mode.CCS) as up:
        if up.tier != 1:
            pytest.skip(f"needs a lab of tier 1, with control groups: {up.why}")
        yield up


@pytest.fixture
def on_shared(shared: Lab) -> Iterator[Jobs]:
    """Jobs on that lab; none is left after the test."""
    with shared.client() as client:
        path = os.path.dirname(sys.executable) + ":/usr/bin:/bin"
        made = Jobs(client, {"PATH": path})
        try:
            yield made
        finally:
            made.end_all()


def beside(jobs: Jobs, script: str, neighbour: str = COMPUTES, **wishes: object) -> int:
    """A job of two tasks beside a neighbour on each node, which only computes unless another one is given."""
    for _ in range(2):
        jobs.becomes(jobs.submit(neighbour, tasks=1, time_limit_s=_LIMIT_S), "running")
    job_id = jobs.submit(script, tasks=2, time_limit_s=_LIMIT_S, **wishes)
    job = jobs.becomes(job_id, "running")
    assert [share.tasks for share in job.nodes] == [1, 1]
    return job_id


def coscheduling(client: Client, job_id: int) -> CoschedulingDoc:
    found = client.explain(job_id).coscheduling
    assert found is not None
    return found


def levers(lab: Lab) -> dict[str, tuple[int, int]]:
    """Weight and idle flag of every job's group in the lab that is not as it was made."""
    changed = {}
    jobs = f"{PARENT}/{lab.name}/*/cosched/job-*"
    for group in [*groups(f"cpu/{jobs}"), *groups(jobs)]:
        for name, made_with in (("cpu.shares", 1024), ("cpu.weight", 100)):
            try:
                weight, idle = int((group / name).read_text()), int((group / "cpu.idle").read_text())
            except OSError:
                continue
            if (weight, idle) != (made_with, 0):
                changed[f"{group.parent.parent.name} {group.name}"] = weight, idle
    return changed


def explained(lab: Lab, job_id: int) -> list[str]:
    """The lines of ``cosched explain``."""
    command = [sys.executable, "-m", "cosched.apps.cli.main", "explain", str(job_id), "--lab", lab.name]
    told = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_S, check=True)
    return [line.strip() for line in told.stdout.splitlines()]


def raised(client: Client) -> dict[str, float]:
    """``cosched_node_raises_total`` by node."""
    lines = [line for line in client.metrics().splitlines() if line.startswith("cosched_node_raises_total{")]
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}


@pytest.mark.slow
def test_blocking_job_is_boosted_on_messages_and_its_kind_is_measured_and_remembered(
    shared: Lab, on_shared: Jobs
) -> None:
    client = on_shared.client
    before = raised(client)
    job_id = beside(on_shared, BLOCKS)

    def seen() -> bool:
        found = coscheduling(client, job_id)
        on_both = found.receives == dict.fromkeys(shared.nodes, "blocks")
        return on_both and found.raises > 0 and found.transports == ["tcp"]

    wait_for(seen, "a job that blocks and is raised")
    found = coscheduling(client, job_id)
    assert (found.mode, found.rows) == ("ccs", 0)
    assert found.share in (0.25, 0.5), "half of the CPU, or of what an owner leaves of it"
    blocking = f"receives: blocks on {shared.nodes[0]}, blocks on {shared.nodes[1]}"
    # measured anew all the time: beside other work a task may seem to poll for once
    lines = wait_for(lambda: lines if blocking in (lines := explained(shared, job_id)) else None, blocking)
    assert lines[-1] == "messages seen waiting: tcp"
    (due,) = [line for line in lines if line.startswith("coscheduling ccs: each task's due is ")]
    assert "% of a CPU, raised " in due
    wait_for(lambda: sum(raised(client).values()) > sum(before.values()), "raises in the metrics")
    (neighbour, *_) = [job.job_id for job in client.jobs() if job.state == "running" and job.job_id != job_id]
    for job, kind, script, tasks in ((neighbour, "cpu", COMPUTES, 1), (job_id, "comm", BLOCKS, 2)):
        wait_for(lambda: used_s(shared, job) > 4, "enough to measure it")  # noqa: B023
        client.cancel(job)
        effort = on_shared.ended(job).effort
        assert effort is not None
        assert effort.orientation == kind, effort
        assert (effort.arrivals_per_s > 10) == (kind == "comm")
        again = client.job(on_shared.submit(script, tasks=tasks, hold=True))
        assert (again.kind, again.kind_from) == (kind, "measured")
    wait_for(lambda: not levers(shared), "groups as they were made")


def used_s(lab: Lab, job_id: int) -> float:
    """CPU seconds of a job's processes."""
    return sum(cpu_s(pid) for inside in groups_of(lab, job_id).values() for pid in inside)


def test_what_ranks_of_one_node_tell_each_other_is_said_to_be_unseen(shared: Lab, on_shared: Jobs) -> None:
    """A job's environment has Open MPI use TCP there too, so that messages are seen; this one wants it otherwise."""
    client = on_shared.client
    job_id = on_shared.submit(f"exec mpirun --mca btl vader,tcp,self {PULSE}", tasks=4, time_limit_s=_LIMIT_S)
    on_shared.becomes(job_id, "running")

    def noticed() -> bool:
        found = client.explain(job_id).coscheduling
        return found is not None and bool(found.unseen)

    wait_for(noticed, "shared memory to be noticed")
    assert "not seen: shared memory on the node (not visible)" in explained(shared, job_id)


@pytest.mark.slow
def test_a_polling_job_takes_turns_with_its_neighbours_until_it_ends(shared: Lab, on_shared: Jobs) -> None:
    client = on_shared.client
    job_id = beside(on_shared, f"exec mpirun {PULSE}")
    wait_for(lambda: coscheduling(client, job_id).rows == 2, "turns")
    held_back: set[str] = set()

    def both_waited_on_both_nodes() -> bool:
        held_back.update(where for where, (_, idle) in levers(shared).items() if idle)
        return len(held_back) == 4

    wait_for(both_waited_on_both_nodes, "turns of each job on each node")
    known = lambda: set(coscheduling(client, job_id).receives.values()) <= {"polls", "yields"}  # noqa: E731
    wait_for(known, "how it receives to be seen on both nodes")  # before, what is seen may be too little
    client.cancel(job_id)
    on_shared.ended(job_id)
    wait_for(lambda: not levers(shared), "groups as they were made")


@pytest.mark.slow
def test_an_owner_at_one_desk_slows_the_whole_job_and_frees_its_share_at_the_other(
    shared: Lab, on_shared: Jobs
) -> None:
    client = on_shared.client
    there, elsewhere = shared.nodes
    job_id = beside(on_shared, SLEEPS, SLEEPS)  # shares are dues, whatever is made of them

    def share_is(wanted: float) -> Callable[[], bool]:
        return lambda: coscheduling(client, job_id).share == wanted

    (neighbour,) = [
        job.job_id
        for job in client.jobs()
        if job.state == "running" and job.job_id != job_id and job.nodes[0].name == elsewhere
    ]
    wait_for(share_is(0.5), "nobody to be there")
    with open(os.devnull, "r+b") as null:
        streams = (null.fileno(), null.fileno(), null.fileno())
        with shared.start(there, [sys.executable, "-c", TYPIST], streams=streams) as typist:
            wait_for(share_is(0.25), "half of what the owner leaves")
            wait_for(lambda: coscheduling(client, neighbour).share == 0.75, "the neighbour to have the rest")
            typist.signal(signal.SIGKILL)
            typist.wait(BOUND_S)
    wait_for(share_is(0.5), "the owner to be gone")


@pytest.mark.slow
def test_a_job_that_wants_nothing_gets_nothing(shared: Lab, on_shared: Jobs) -> None:
    client = on_shared.client
    for _ in range(2):
        neighbour = on_shared.submit(COMPUTES, tasks=1, coscheduling="none", time_limit_s=_LIMIT_S)
        on_shared.becomes(neighbour, "running")
    job_id = on_shared.submit(f"exec mpirun {PULSE}", tasks=2, coscheduling="none", time_limit_s=_LIMIT_S)
    wait_for(lambda: on_shared.client.job(job_id).state == "running", "the job")

    def known() -> bool:
        receives = coscheduling(client, job_id).receives.values()
        return len(receives) == 2 and set(receives) <= {"polls", "yields"}

    wait_for(known, "how it receives")
    found = coscheduling(client, job_id)
    assert (found.mode, found.rows, found.raises) == ("none", 0, 0)
    assert not levers(shared)
