"""Jobs of components in the live service: as they say, or as the cluster's settings divide the wide ones."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from kit.service import Cluster, Running, running

from cosched.config.cluster import ComponentSettings
from cosched.model.components import Partition
from cosched.model.width import Components, Flexible
from cosched.wire import messages as wire

SCRIPT = {"script": "#!/bin/sh\n", "directory": "/tmp"}


@asynccontextmanager
async def two_labs(cluster: Cluster) -> AsyncIterator[Running]:
    """A service with two nodes of two processors in lab a, one in lab b."""
    async with running(cluster) as service, AsyncExitStack() as agents:
        for name, lab in (("n1", "a"), ("n2", "a"), ("n3", "b")):
            await agents.enter_async_context(service.agent(name, cluster=lab))
        yield service


async def test_each_component_lies_on_a_cluster_of_its_own(cluster: Cluster) -> None:
    async with two_labs(cluster) as service:
        job_id = await service.submit(tasks=4, components=[1, 3])
        job = await service.job_in(job_id, "running")
        held = {share.name: share.tasks for share in job.nodes}
        assert (held.pop("n3"), sum(held.values())) == (1, 3)
        assert set(held) == {"n1", "n2"}
        assert job.shape is not None
        assert (job.shape.components, job.shape.most_components, job.shape.note) == ([1, 3], 2, "")
        assert (await service.service.host.job(job_id)).job.shape == Components((1, 3))
        waits = await service.submit(tasks=2, components=[2])  # one is free on each
        explained = await service.get(f"/v1/jobs/{waits}/explain")
        assert (explained["state"], explained["shape"]["components"]) == ("queued", [2])
        assert explained["reason"]["why"] == "no_clusters", explained


async def test_what_could_never_lie_on_these_clusters_is_refused_with_the_reason(cluster: Cluster) -> None:
    async with two_labs(cluster) as service:
        problem = await service.post("/v1/jobs", {**SCRIPT, "tasks": 5, "components": [5]}, 422)
        assert problem["found"] == "wider_than_cluster"
        problem = await service.post("/v1/jobs", {**SCRIPT, "tasks": 3, "components": [1, 1, 1]}, 422)
        assert problem["found"] == "more_than_clusters"
        problem = await service.post("/v1/jobs", {**SCRIPT, "tasks": 6}, 422)
        assert problem["found"] == "wider_than_cluster"


async def test_wide_jobs_are_divided_by_the_settings_and_the_draw_is_journalled(
    make_cluster: Callable[..., Cluster],
) -> None:
    settings = ComponentSettings(threshold=2, partition=Partition.RANDOM, most_components=4)
    cluster = make_cluster(components=settings)
    async with two_labs(cluster) as service:
        narrow, wide = await service.submit(tasks=2, hold=True), await service.submit(tasks=4, hold=True)
        assert (await service.job(narrow)).shape is None
        job = await service.job(wide)
        assert job.shape is not None
        # two at most, as there are two clusters
        assert (job.shape.components, job.shape.most_components) == ([2, 2], 2)
        own = await service.submit(tasks=4, components=[3, 1], hold=True)
        assert (await service.service.host.job(own)).job.shape == Components((3, 1))
    async with running(cluster) as service:
        assert (await service.service.host.job(wide)).job.shape == Components((2, 2))


async def test_a_division_may_be_chosen_when_the_job_starts(make_cluster: Callable[..., Cluster]) -> None:
    settings = ComponentSettings(threshold=2, partition=Partition.ADAPTIVE)
    async with two_labs(make_cluster(components=settings)) as service:
        job_id = await service.submit(tasks=5)
        job = await service.job_in(job_id, "running")
        assert {share.name: share.tasks for share in job.nodes} == {"n1": 2, "n2": 1, "n3": 2}
        assert job.shape is not None
        assert (job.shape.components, job.shape.most_components) == ([], 2)
        assert (await service.service.host.job(job_id)).job.shape == Flexible(5, 2)


async def test_where_there_is_one_cluster_nothing_is_divided(make_cluster: Callable[..., Cluster]) -> None:
    settings = ComponentSettings(threshold=1)
    async with running(make_cluster(components=settings)) as service, service.agent("n1"), service.agent("n2"):
        assert (await service.job(await service.runs(tasks=4))).shape is None


async def test_a_job_across_the_link_has_the_time_that_the_link_costs_it(
    make_cluster: Callable[..., Cluster], tmp_path: Path
) -> None:
    costs = tmp_path / "costs.json"
    costs.write_text('{"ppm": {"comm": 1000000, "": 500000}}')
    cluster = make_cluster(components=ComponentSettings(costs=str(costs)))
    asked: dict[str, dict[str, Any]] = {
        "comm": {"kind": "comm"},
        "any": {},
        "its own": {"kind": "comm", "crossing": 0.25},
        "inside": {"components": [1], "tasks": 1, "crossing": 0.25},
    }
    limits_us = {}
    async with running(cluster) as service, service.agent("n1", cluster="a") as first, service.agent("n3", cluster="b"):
        for name, given in asked.items():
            job_id = await service.runs(**{"tasks": 2, "components": [1, 1], "time_limit_s": 100, **given})
            prepared = first.heard_already(wire.Prepare)
            limits_us[name] = prepared[-1].limit_us
            await service.post(f"/v1/jobs/{job_id}/cancel")
            await service.job_in(job_id, "cancelled")
    assert limits_us == {"comm": 200_000_000, "any": 150_000_000, "its own": 125_000_000, "inside": 100_000_000}
