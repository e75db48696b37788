"""The authority is replaced while an MPI job runs over two nodes: its processes stay, another job starts after it."""

import os
import sys
from pathlib import Path

import pytest
from campaigns.faults import until
from kit.command import run_here
from live.conftest import Jobs, groups_of

from cosched.apps.lab.lab import Lab
from cosched.identity.authority import addresses_of, serials_of

pytestmark = [
    pytest.mark.xdist_group("restarts"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: keys are given to the agents' account"),
]


def cosched(*arguments: object, given: str = "") -> str:
    ended = run_here(*arguments, given=given)
    assert ended.status == 0, (arguments, ended.err)
    return ended.out


def directory(lab: Lab, node: str) -> Path:
    return Path(next(each["directory"] for each in lab.state["nodes"] if each["name"] == node))


def renew_all(lab: Lab, cluster: Path) -> None:
    """The scheduler and all nodes: keys made where they are used, signed, accepted; until all are linked with them."""
    own = lab.directory / "identity"
    request = cosched("identity", "request", "scheduler", "--into", own, "--again")
    here = ("--address", addresses_of(own / "scheduler.pem")[0])
    answer = cosched("identity", "sign", "scheduler", "--authority", own, *here, given=request)
    cosched("identity", "accept", "--kind", "scheduler", "--into", own, given=answer)
    for name in lab.nodes:
        etc = directory(lab, name)
        address = addresses_of(etc / "identity" / "node.pem")[-1]
        request = cosched("node", "request", name, "--etc", etc, "--again")
        answer = cosched("node", "sign", name, "--cluster", cluster, "--address", address, given=request)
        cosched("node", "accept", "--etc", etc, "--account", "root", given=answer)
    newest = {name: serials_of(own, "node", name)[-1] for name in lab.nodes}
    with lab.client() as client:

        def shown() -> dict[str, str]:
            found = [each for each in client.certificates().certificates if each.kind == "node"]
            return {each.name: each.serial for each in found}

        until(lambda: shown() == newest, "all nodes to come with their new certificates")
        until(lambda: all(node.state == "up" for node in client.nodes()), "all nodes to be up")


@pytest.mark.slow
def test_a_running_mpi_job_survives_the_whole_rotation(tmp_path_factory: pytest.TempPathFactory) -> None:
    shared = tmp_path_factory.mktemp("rotation")
    with Lab.up(nodes=2, cpus=1, name=f"rotation-{os.getpid()}", keep=[shared]) as lab, lab.client() as client:
        if lab.tier == 3:
            pytest.skip("needs a lab in which jobs run across nodes")
        cluster = shared / "cluster"
        cluster.mkdir()
        (cluster / "authority").symlink_to(lab.directory / "identity")
        authority = cluster / "authority"
        jobs = Jobs(client, {"PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"})
        gate = shared / "gate"
        os.mkfifo(gate)
        held = os.open(gate, os.O_RDWR | os.O_CLOEXEC)
        script = f"mpirun sh -c 'echo up; read go <{gate}; echo down' || exit 9"
        job_id = jobs.submit(script, tasks=2, time_limit_s=900.0)
        jobs.becomes(job_id, "running")
        until(lambda: jobs.output(job_id).count("up") == 2, "both ranks")
        before = groups_of(lab, job_id) if lab.tier == 1 else {}

        first = (authority / "ca.pem").read_text()
        cosched("identity", "rotate", authority, "--begin")
        renew_all(lab, cluster)
        cosched("identity", "rotate", authority, "--switch")
        renew_all(lab, cluster)
        cosched("identity", "rotate", authority, "--finish")
        renew_all(lab, cluster)
        trusted = {(directory(lab, name) / "identity" / "ca.pem").read_text() for name in lab.nodes}
        assert trusted == {(authority / "ca.pem").read_text()}
        assert first not in trusted

        assert (groups_of(lab, job_id) if lab.tier == 1 else {}) == before
        os.write(held, b"\n\n")
        job = jobs.ended(job_id)
        assert job.state == "completed", (job, jobs.error(job_id))
        assert jobs.output(job_id).count("down") == 2
        assert [step.state for step in job.history].count("running") == 1
        after = jobs.ended(jobs.submit("mpirun sh -c 'echo hello'", tasks=2))
        assert after.state == "completed", after
        os.close(held)
