"""Jobs of several sizes in the live service: one size each, the largest that could ever start, and that is said."""

from collections.abc import Callable
from typing import Any

import pytest
from kit.service import Cluster, Running, running

from cosched.config.cluster import ClusterConfig
from cosched.model.job import Job
from cosched.model.width import Range
from cosched.wire import messages as wire
from cosched.wire.api import Submission
from space_scheduler.machine.events import NodesJoined
from space_scheduler.machine.state import SchedulerState
from space_scheduler.reasons import Reason, Why
from space_scheduler.service.core.sizing import NOT_RESHAPED, sized
from space_scheduler.service.launch.sharing import policy_of

LARGEST = f"of its sizes it has {{}}, the largest that could ever start here, and keeps it: {NOT_RESHAPED}"
#: What is submitted on two nodes of two processors -> tasks, minimum, maximum, sizes, malleable.
SIZED: list[tuple[dict[str, Any], tuple[int, int, int, list[int], bool]]] = [
    ({"sizes": "3"}, (3, 3, 3, [3], False)),
    ({"sizes": "1-3"}, (3, 1, 3, [], False)),
    ({"sizes": "2-64"}, (4, 2, 4, [], False)),
    ({"sizes": "pow2"}, (4, 1, 4, [1, 2, 4], False)),
    ({"sizes": "square"}, (4, 1, 4, [1, 4], False)),
    ({"sizes": "8;3;2"}, (3, 2, 3, [2, 3], False)),
    ({"min_tasks": 2}, (4, 2, 4, [], True)),
    ({"max_tasks": 3}, (3, 1, 3, [], True)),
    ({"min_tasks": 2, "max_tasks": 64}, (4, 2, 4, [], True)),
    ({"tasks": 2, "evolve_tasks": 3}, (2, 2, 2, [], True)),
    ({"sizes": "1-4", "memory_bytes": 1 << 30}, (4, 1, 4, [], False)),
    ({"sizes": "1-4", "memory_bytes": (1 << 30) + 1}, (2, 1, 4, [], False)),
    ({"sizes": "1;4", "memory_bytes": (1 << 30) + 1}, (1, 1, 4, [1, 4], False)),
]


async def test_a_job_has_the_largest_of_its_sizes_that_could_ever_start(service: Running) -> None:
    async with service.agent("n1"), service.agent("n2"):
        for given, (tasks, least, most, sizes, malleable) in SIZED:
            asked = {"script": "#!/bin/sh\n", "directory": "/tmp", "hold": True} | given
            job = await service.post("/v1/jobs", asked, 201)
            assert job["tasks"] == tasks, given
            assert job["shape"] == {
                "min_tasks": least,
                "max_tasks": most,
                "evolve": asked.get("evolve_tasks", 0),
                "sizes": sizes,
                "malleable": malleable,
                "fold": None,
                "job_class": None,
                "note": LARGEST.format(tasks),
                "components": [],
                "most_components": 0,
            }
            record = await service.service.host.job(job["job_id"])
            more = given.get("evolve_tasks", 0)
            asks = {"ask_more": more, "ask_fewer": min(more, least - 1)}
            assert record.job.shape == Range(least, most, tuple(sizes), malleable=malleable, resident=malleable, **asks)
            assert (record.job.procs, record.submission.tasks) == (tasks, tasks)


async def test_one_node_for_a_job_is_a_limit_of_its_size(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(max_nodes_per_job=1)) as service, service.agent("n1"), service.agent("n2"):
        assert (await service.job(await service.submit(sizes="pow2", hold=True))).tasks == 2
        problem = await service.post("/v1/jobs", {"script": "#!/bin/sh\n", "directory": "/", "min_tasks": 3}, 422)
        assert problem["found"] == "spans_nodes"


async def test_a_job_none_of_whose_sizes_could_ever_start(service: Running) -> None:
    """Its smallest one says by which limit."""
    never: list[tuple[dict[str, Any], str, str]] = [
        ({"sizes": "8;16"}, "wider_than_machine", "(procs=8, machine_procs=4)"),
        ({"min_tasks": 5, "max_tasks": 9}, "wider_than_machine", "(procs=5, machine_procs=4)"),
        ({"sizes": "pow2", "memory_bytes": 1 << 40}, "task_too_large", "needs more memory than any node has"),
        ({"sizes": "3-9", "memory_bytes": 2 << 30}, "more_memory_than_machine", "procs=3, fitting_procs=2"),
    ]
    async with service.agent("n1"), service.agent("n2"):
        for given, found, words in never:
            problem = await service.post("/v1/jobs", {"script": "#!/bin/sh\n", "directory": "/tmp"} | given, 422)
            assert (problem["found"], words in problem["message"]) == (found, True), given
        assert (await service.get("/v1/jobs"))["jobs"] == []


async def test_before_the_first_node_has_joined_nothing_is_known_of_sizes(service: Running) -> None:
    asked = {"script": "#!/bin/sh\n", "directory": "/tmp", "sizes": "pow2"}
    problem = await service.post("/v1/jobs", asked, 503)
    assert problem["message"].startswith("no node has joined yet: how large a job of several sizes can be here")
    assert (await service.get("/v1/jobs"))["jobs"] == []
    async with service.agent("n1"):
        assert (await service.post("/v1/jobs", asked, 201))["tasks"] == 2


async def test_it_runs_so_and_is_shown_so_also_after_a_restart(cluster: Cluster) -> None:
    async with running(cluster) as service, service.agent("n1") as agent, service.agent("n2") as other:
        await agent.beat()
        await other.beat()
        job_id = await service.submit(sizes="1-3", fold=False, job_class="long")
        started = await service.job_in(job_id, "running")
        assert sum(share.tasks for share in started.nodes) == started.tasks == 3
        assert started.shape is not None
        assert (started.shape.fold, started.shape.job_class) == (False, "long")
        explained = await service.get(f"/v1/jobs/{job_id}/explain")
        assert explained["shape"]["note"] == LARGEST.format(3)
        (prepare,) = [each for each in agent.received if isinstance(each, wire.Prepare)]
        assert prepare.environment["COSCHED_TASKS"] == "3"
        assert prepare.limit_us == round(started.time_limit_s * 1_000_000), "it keeps its size, and so its limit"
    async with running(cluster) as service:
        again = await service.job(job_id)
        assert (again.tasks, again.shape) == (3, started.shape)
        record = await service.service.host.job(job_id)
        assert (record.job.long, record.job.foldable) == (True, False)


async def test_what_a_rigid_job_says_of_folding_is_kept(service: Running) -> None:
    async with service.agent("n1"):
        job = await service.job(await service.submit(tasks=2, fold=True, hold=True))
        assert job.shape is not None
        assert (job.shape.min_tasks, job.shape.max_tasks, job.shape.fold, job.shape.note) == (2, 2, True, NOT_RESHAPED)
        assert (await service.job(await service.submit(tasks=2, hold=True))).shape is None


def test_so_many_sizes_are_looked_at_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A place with a rule of its own may refuse each of a million sizes, and the scheduler has other things to do."""
    state = SchedulerState(policy_of(ClusterConfig(name="sizes")))
    state.handle(NodesJoined(1_000_000), 0)
    asked: list[int] = []

    def refused(job: Job) -> Reason | None:
        asked.append(job.procs)
        return Reason(Why.NEVER_UNIFORM) if job.procs > 3 else None

    monkeypatch.setattr(state, "refusal", refused)
    submission = Submission(script="#!/bin/sh\n", directory="/", sizes="1-1000000")
    job, _ = sized(Job(1, 1, 1_000_000, 0), submission, state)
    assert asked[:3] == [1_000_000, 999_999, 999_998]
    assert len(asked) < 200
    assert 1 <= job.procs <= 3
