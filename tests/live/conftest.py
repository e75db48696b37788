"""One lab for all live tests of a run: four workstations in the best tier that this machine has."""

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kit.groups import pids
from kit.waiting import BOUND_S, wait_for

from cosched.apps.lab.lab import Lab
from cosched.client.client import Client
from cosched.errors import Failed
from cosched.wire.api import JobDoc, Submission

ENDED = {"completed", "failed", "cancelled", "timed out", "launch failed", "node lost"}


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests put programs that the lab's nodes are to see."""
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="session")
def lab(programs: Path) -> Iterator[Lab]:
    with Lab.up(nodes=4, name=f"live-{os.getpid()}", keep=[programs]) as up:
        yield up


@pytest.fixture
def needs_tier_1(lab: Lab) -> None:
    if lab.tier != 1:
        pytest.skip(f"needs a lab of tier 1, with control groups: {lab.why}")


@pytest.fixture
def client(lab: Lab) -> Iterator[Client]:
    with lab.client() as connected:
        yield connected


class Jobs:
    """Submits to the lab and waits for what happens; every wait has an end."""

    def __init__(self, client: Client, environment: dict[str, str]) -> None:
        self.client = client
        self.environment = environment

    def submit(self, script: str, **wishes: object) -> int:
        wanted = {"tasks": 4, "time_limit_s": 60.0, "directory": "/", **wishes}
        environment = {**self.environment, **wanted.pop("environment", {})}  # type: ignore[dict-item]
        text = script if script.startswith("#!") else f"#!/bin/sh\n{script}\n"
        return self.client.submit(Submission(script=text, environment=environment, **wanted)).job_id  # type: ignore[arg-type]

    def becomes(self, job_id: int, state: str, within_s: float = BOUND_S) -> JobDoc:
        return self.until(job_id, lambda job: job.state == state, within_s)

    def ended(self, job_id: int, within_s: float = BOUND_S) -> JobDoc:
        return self.until(job_id, lambda job: job.state in ENDED, within_s)

    def until(self, job_id: int, holds: Callable[[JobDoc], bool], within_s: float) -> JobDoc:
        def there() -> JobDoc | None:
            job = self.client.job(job_id)
            if holds(job):
                return job
            assert job.state not in ENDED, f"job {job_id} is {job.state}: {job}\n{self.error(job_id)}"
            return None

        return wait_for(there, f"job {job_id}", within_s)

    def end_all(self) -> None:
        """Cancel what there is and see it end; first what waits, which would start when others go."""
        for job in reversed(self.client.jobs()):
            with contextlib.suppress(Failed):  # it has ended meanwhile
                self.client.cancel(job.job_id)
        for job in self.client.jobs():
            self.ended(job.job_id)

    def output(self, job_id: int) -> str:
        return self.client.output(job_id, "stdout").data.decode()

    def error(self, job_id: int) -> str:
        try:
            return self.client.output(job_id, "stderr").data.decode()
        except Failed as error:
            return str(error)


@pytest.fixture
def jobs(client: Client) -> Jobs:
    return Jobs(client, {"PATH": f"{Path(os.sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"})  # type: ignore[attr-defined]


def groups_of(lab: Lab, job_id: int) -> dict[str, set[int]]:
    """The processes in a job's control groups: node -> process ids as this machine numbers them."""
    found: dict[str, set[int]] = {}
    for mount in (Path("/sys/fs/cgroup/freezer"), Path("/sys/fs/cgroup")):
        for node in lab.nodes:
            group = mount / "cosched-lab" / lab.name / node
            if inside := pids(f"**/job-{job_id}.*/cgroup.procs", group):
                found[node] = inside
        if found:
            break
    return found


def carrying(job_id: int) -> set[int]:
    """All processes of this machine whose environment says that they are of a job of the lab under test."""
    marked = set()
    for environ in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"COSCHED_JOB_ID={job_id}\0".encode() in environ.read_bytes() + b"\0":
                marked.add(int(environ.parent.name))
        except OSError:
            continue
    return marked
