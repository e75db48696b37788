"""How much may wait, and how fast one user may submit: refused with 429 and when to ask again, exact under a rush."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest
from kit.service import ME, Cluster, Running, running

from space_scheduler.service.api import api
from space_scheduler.service.api.rates import Rates

JOB = {"script": "#!/bin/sh\ntrue\n", "directory": "/tmp"}


async def rush(service: Running, count: int) -> list[int]:
    """So many submissions at once; the status of each."""

    async def one() -> int:
        async with service.http.post("/v1/jobs", data=msgspec.json.encode(JOB)) as answer:
            return answer.status

    return sorted(await asyncio.gather(*(one() for _ in range(count))))


async def refused(service: Running) -> tuple[str, int]:
    """What a submission that is refused is told, and when it may be tried again."""
    async with service.http.post("/v1/jobs", data=msgspec.json.encode(JOB)) as answer:
        assert answer.status == 429
        return msgspec.json.decode(await answer.read())["message"], int(answer.headers["Retry-After"])


async def test_not_one_more_than_may_wait(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(max_queued=20)) as service:
        assert await rush(service, 60) == [201] * 20 + [429] * 40
        assert len(service.service.host.view().jobs) == 20
        message, _ = await refused(service)
        assert message == "20 jobs wait already, as many as may (max_queued); submit again when some have run"
        await service.post("/v1/jobs/3/cancel")
        await service.post("/v1/jobs/4/hold")
        assert await rush(service, 3) == [201, 429, 429], "a held one waits too"


async def test_nor_of_one_user_also_after_a_restart(make_cluster: Callable[..., Cluster]) -> None:
    cluster = make_cluster(max_queued_per_user=5)
    async with running(cluster) as service:
        assert await rush(service, 9) == [201] * 5 + [429] * 4
    async with running(cluster) as service:
        message, _ = await refused(service)
        assert message.startswith(f"5 jobs of {ME} wait already, as many as may (max_queued_per_user)")


async def test_what_runs_does_not_count(make_cluster: Callable[..., Cluster]) -> None:
    async with running(make_cluster(max_queued_per_user=2)) as service, service.agent("n1", procs=2):
        for _ in range(2):
            await service.runs()
        assert await rush(service, 3) == [201, 201, 429]


async def test_as_many_a_minute_as_may(make_cluster: Callable[..., Cluster], monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    monkeypatch.setattr(api, "Rates", lambda per_minute: Rates(per_minute, lambda: now_s))
    async with running(make_cluster(max_submissions_per_minute=10)) as service:
        assert await rush(service, 30) == [201] * 10 + [429] * 20
        message, again_s = await refused(service)
        assert message == f"{ME} submits faster than 10 jobs a minute (max_submissions_per_minute); again in 6 s"
        assert again_s == 6
        now_s = 6.0
        assert await rush(service, 3) == [201, 429, 429], "a new one every six seconds"


def test_a_bucket_fills_with_time_and_is_forgotten_when_full() -> None:
    now_s = 0.0
    rates = Rates(60, lambda: now_s)
    assert [rates.wait_s("ada") for _ in range(60)] == [0.0] * 60
    assert rates.wait_s("ada") == 1.0
    assert rates.wait_s("bob") == 0.0, "everybody has his own"
    now_s = 0.5
    assert rates.wait_s("ada") == 0.5
    now_s = 1.0
    assert rates.wait_s("ada") == 0.0
    rates.give_back("ada")
    assert rates.wait_s("ada") == 0.0
    assert rates.wait_s("ada") == 1.0
    now_s = 1000.0
    for user in ("eve", "fay"):
        assert rates.wait_s(user) == 0.0
    assert set(rates._left) == {"eve", "fay"}
    assert Rates(0).wait_s("ada") == 0.0
