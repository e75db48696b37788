"""Jobs of components over two labs of three nodes: each launcher, cancelled as one, and the link cut at each moment."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit.needs import need_root
from kit.waiting import BOUND_S, wait_for
from live.conftest import ENDED, Jobs, groups_of
from live.test_launchers import SYSTEMS, Systems, has_ranks_on, residue, wait_until_clean

from cosched.apps.lab import tiers
from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.wire.api import JobDoc
from space_scheduler.replay import replay

pytestmark = [pytest.mark.xdist_group("two labs")]

DELAY_US = 2_000
#: Each message library is launched across labs in every run of the tests; one job is cancelled there.
CANCELLED = [
    pytest.param(*each.values, marks=each.marks if each.values[0] == "pvm" else (*each.marks, pytest.mark.long))
    for each in SYSTEMS
]
THREE_AND_THREE = {"tasks": 6, "components": (3, 3)}


@pytest.fixture(scope="module")
def two_labs(programs: Path) -> Iterator[Lab]:
    need_root()
    if (possible := tiers.best(1)).tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {possible.why}")
    name = f"labs-{os.getpid()}"
    with Lab.up(nodes=6, name=name, clusters="3,3", delay_us=DELAY_US, keep=[programs]) as lab:
        yield lab


@pytest.fixture
def client(two_labs: Lab) -> Iterator[Client]:
    with two_labs.client() as connected:
        yield connected
        mend(two_labs)
        Jobs(connected, {}).end_all()


@pytest.fixture(scope="module")
def systems(programs: Path) -> Systems:
    programs.chmod(0o755)
    return Systems(programs)


@pytest.mark.parametrize("system", SYSTEMS)
def test_six_ranks_over_two_labs_give_the_verified_answer_and_leave_nothing(
    two_labs: Lab, jobs: Jobs, systems: Systems, system: str
) -> None:
    before = residue(two_labs)
    job_id = jobs.submit(systems.cg(system, 3000, 1), **THREE_AND_THREE)
    job = jobs.ended(job_id)
    assert job.state == "completed", (job, jobs.error(job_id))
    assert sorted(share.name for share in job.nodes) == sorted(two_labs.nodes)
    result = json.loads(jobs.output(job_id).splitlines()[-1])
    assert (result["verified"], result["ranks"]) == (True, 6)
    assert sorted(result["hosts"]) == sorted(two_labs.nodes)
    wait_until_clean(two_labs, before)


@pytest.mark.parametrize("system", CANCELLED)
def test_a_gang_across_labs_is_cancelled_as_one(two_labs: Lab, jobs: Jobs, systems: Systems, system: str) -> None:
    before = residue(two_labs)
    job_id = jobs.submit(systems.staying(system), **THREE_AND_THREE)
    jobs.becomes(job_id, "running")
    wait_for(lambda: nodes_of(two_labs, job_id) == 6, "the job on all nodes")
    jobs.client.cancel(job_id)
    assert jobs.ended(job_id).state == "cancelled"
    assert not any(groups_of(two_labs, job_id).values())
    wait_until_clean(two_labs, before)


def cut(lab: Lab) -> None:
    assert lab.link("cut", ("c1", "c2"))["cut"] == [["c1", "c2"]]


def mend(lab: Lab) -> None:
    assert lab.link("mend", ("c1", "c2"))["cut"] == []
    with lab.client() as client:
        wait_for(lambda: all(node.state == "up" for node in client.nodes()), "all nodes to be back", 60)


def nodes_of(lab: Lab, job_id: int) -> int:
    """On how many nodes the job has processes."""
    return sum(map(bool, groups_of(lab, job_id).values()))


def nothing_left(lab: Lab, job_id: int) -> None:
    wait_for(lambda: not groups_of(lab, job_id), f"nothing to be left of job {job_id}", 60)


def told(lab: Lab, *arguments: object) -> str:
    """The output of ``cosched …``, as it is on a terminal of some width."""
    argv = [sys.executable, "-m", "cosched.apps.cli.main", *map(str, arguments), "--lab", lab.name]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=BOUND_S, check=True)
    return ended.stdout


def test_users_are_told_where_components_lie(two_labs: Lab, jobs: Jobs) -> None:
    job_id = jobs.submit("exec sleep 300", tasks=3, components=(2, 1))
    jobs.becomes(job_id, "running")
    waits = jobs.submit("exec true", **THREE_AND_THREE)
    shown = told(two_labs, "show", job_id)
    assert "asked for     3 tasks, components 2+1, at most" in shown
    assert re.search(r"nodes +(c1: node\d, node\d; c2: node\d|c2: node\d, node\d; c1: node\d)\n", shown), shown
    assert "3 (2+1)" in told(two_labs, "queue")
    explained = told(two_labs, "explain", waits)
    assert "fewer processors are free than the job needs" in explained
    assert "  components 3+3\n" in explained
    nodes = told(two_labs, "nodes", "--wide")
    assert re.search(r"node1\s+c1\s+up", nodes), nodes
    assert re.search(r"node6\s+c2\s+up", nodes), nodes


#: When the link is cut, and what holds of a job then.
OTHERS = (("prepare", False), ("launch", False), ("launch", True), ("run", True))


def _waits_for_nodes(job: JobDoc) -> bool:
    return job.state == "queued" and job.reason is not None and job.reason.why == "nodes_away"


def _starting_across_a_link_that_is_cut(two_labs: Lab, jobs: Jobs, script: str, wishes: dict[str, Any]) -> int:
    """A job that the scheduler starts before it knows of the cut; on a busy machine it may have known already."""
    for _ in range(5):
        cut(two_labs)
        job_id = jobs.submit(script, **wishes)
        job = jobs.until(job_id, lambda job: job.state == "starting" or _waits_for_nodes(job), 60)
        if job.state == "starting":
            return job_id
        jobs.client.cancel(job_id)
        mend(two_labs)
    raise AssertionError("the cut was known before each submission")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("moment", "requeue"),
    [("prepare", True), ("run", False), *(pytest.param(*each, marks=pytest.mark.long) for each in OTHERS)],
)
def test_a_link_cut_at_any_moment_leaves_one_end_no_half_gang_and_nothing(
    two_labs: Lab, jobs: Jobs, systems: Systems, moment: str, requeue: bool
) -> None:
    before = residue(two_labs)
    script = systems.staying("open_mpi_5")
    wishes = {**THREE_AND_THREE, "requeue": requeue, "time_limit_s": 600.0}
    if moment == "prepare":  # agents of c2 cannot hear of it, and the scheduler does not know that yet
        job_id = _starting_across_a_link_that_is_cut(two_labs, jobs, script, wishes)
    else:
        job_id = jobs.submit(script, **wishes)
        jobs.becomes(job_id, "running")
        ranks = 6 if moment == "run" else 1
        wait_for(lambda: nodes_of(two_labs, job_id) >= ranks, "the job on its nodes")
        cut(two_labs)
    # mpirun may fail by itself when it does not reach a node, before the lease is over: that is the script's own end
    # and while nodes prepare, a lost one fails the launch, which there are no other nodes to try again on
    ends = {"node lost", "failed", *(["launch failed"] if moment == "prepare" else [])}
    over = {"queued", *(["failed"] if moment == "launch" else [])} if requeue else ends
    job = jobs.until(job_id, lambda job: job.state in over, 90)
    near = two_labs.clusters["c1"]
    wait_for(lambda: not groups_of(two_labs, job_id).keys() & near, "the half beside the scheduler to end", 30)
    mend(two_labs)
    if job.state == "queued":
        jobs.becomes(job_id, "running")
        assert len(jobs.client.job(job_id).nodes) == 6
        jobs.client.cancel(job_id)
        job = jobs.ended(job_id)
        assert job.state == "cancelled"
    assert [step.state for step in job.history if step.state in ENDED] == [job.state]
    nothing_left(two_labs, job_id)
    wait_until_clean(two_labs, before)


@pytest.mark.slow
def test_a_scheduler_cut_off_from_a_lab_adopts_what_ran_wholly_there_and_starts_nothing_there(
    two_labs: Lab, jobs: Jobs, systems: Systems
) -> None:
    before = residue(two_labs)
    far = two_labs.clusters["c2"]
    # both labs are as free: the first job lies on the first, the next on the other
    near_id = jobs.submit("exec sleep 300", tasks=3, time_limit_s=600.0)
    jobs.becomes(near_id, "running")
    far_id = jobs.submit(systems.staying("open_mpi_5"), tasks=2, time_limit_s=600.0)
    far_nodes = {share.name for share in jobs.becomes(far_id, "running").nodes}
    assert far_nodes < set(far)
    jobs.client.cancel(near_id)
    jobs.ended(near_id)
    both_id = jobs.submit("exec sleep 300", tasks=2, components=(1, 1), time_limit_s=600.0)
    assert len(jobs.becomes(both_id, "running").nodes) == 2
    wait_for(lambda: has_ranks_on(two_labs, far_id, far_nodes), "a rank on both nodes")
    pids = groups_of(two_labs, far_id)
    cut(two_labs)
    assert jobs.until(both_id, lambda job: job.state == "node lost", 60).state == "node lost"
    wait_for(lambda: {node.state for node in jobs.client.nodes() if node.name in far} == {"lost"}, "lost nodes", 60)
    waits_id = jobs.submit("exec true", tasks=6, components=(3, 3))
    own = jobs.ended(jobs.submit("exec hostname", tasks=1))
    assert (own.state, own.nodes[0].name in two_labs.clusters["c1"]) == ("completed", True)
    assert jobs.client.job(far_id).state == "running"
    assert jobs.client.job(waits_id).state == "queued"
    mend(two_labs)
    assert jobs.client.job(far_id).state == "running"
    still = groups_of(two_labs, far_id)
    assert all(pids[node] & still.get(node, set()) for node in far_nodes), "its processes are others"
    jobs.client.cancel(far_id)
    assert [step.state for step in jobs.ended(far_id).history] == [
        "queued", "starting", "running", "ending", "cancelled"
    ]  # fmt: skip
    assert jobs.ended(waits_id).state == "completed"
    for job_id in (far_id, both_id, near_id):
        nothing_left(two_labs, job_id)
    wait_until_clean(two_labs, before)


def test_the_journal_of_two_labs_replays(two_labs: Lab, jobs: Jobs) -> None:
    """The last of this file: of all that the others did, too."""
    for wishes in ({"tasks": 1}, {"tasks": 2, "components": (1, 1)}):
        assert jobs.ended(jobs.submit("exec true", **wishes)).state == "completed"
    again = replay(two_labs.journal)
    assert again.difference is None, str(again.difference)
    assert again.instructions >= 2
