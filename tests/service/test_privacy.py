"""Who is at a desk is told to operators alone: no document, page or log line says it to anybody else."""

import json
from collections.abc import Callable
from typing import Any

import aiohttp
from kit.service import ME, Cluster, Running, running

from cosched.model.contract import SocialContract
from cosched.model.desk import ContractReason, DeskReport
from cosched.model.node import Presence
from cosched.wire import messages as wire
from space_scheduler.service.api.privacy import BY_ITS_OWNER
from space_scheduler.service.launch.owners import PAUSED

USAGE = wire.Usage(0.5, 1.25, 0.125, 1 << 20, 3 << 20, 1 << 21, 1 << 28, 2.5)
REPORTED = wire.DeskReported(DeskReport(ContractReason.PRESSURE, 1.0))
BEAT = wire.Heartbeat(
    USAGE, Presence.PRESENT, "input of ada", 0.25, blind=("terminals: /dev/pts/7: closed by ada",)
)  # fmt: skip
PRIVATE = ("present", "away", "ada", "input", "terminals", "pressure")


async def asked(service: Running, user: str, path: str) -> Any:
    """What a user without any office is told, over TLS."""
    secured = service.cluster.certificate("user", user)
    url = f"https://127.0.0.1:{service.service.port}{path}"
    async with (
        aiohttp.ClientSession() as session,
        session.get(url, ssl=secured, server_hostname="scheduler") as answer,
    ):
        assert answer.status == 200, await answer.text()
        return await answer.json()


def told(document: Any) -> set[str]:
    """The values of a document that would say something of a person; the keys are everybody's."""

    def values(found: Any) -> list[str]:
        if isinstance(found, dict):
            return [text for value in found.values() for text in values(value)]
        if isinstance(found, list):
            return [text for value in found for text in values(value)]
        return [json.dumps(found)]

    return {word for word in PRIVATE for text in values(document) if word in text}


async def test_other_users_see_what_is_free_and_operators_who_is_there(service: Running) -> None:
    async with service.agent("n1") as agent:
        await service.until(lambda: service.service.book.entry("n1").size is not None, "up")
        await agent.say(REPORTED)
        await agent.say(BEAT)
        await service.beaten("n1", Presence.PRESENT)
        others = (await asked(service, "bob", "/v1/nodes"))["nodes"]
        own = (await service.get("/v1/nodes"))["nodes"]
    assert told(others) == set()
    assert (others[0]["availability"], others[0]["presence"]) == ("limited", None)
    assert others[1]["availability"] == "not_available"
    assert others[0]["limited_cpus"] == 1.0, "not the quarter that says that somebody is there and waits"
    usage = others[0]["usage"]
    assert (usage["cpu_parallel"], usage["cpu_local"], usage["cpu_system"], usage["load_1min"]) == (0.5, -1, -1, -1)
    assert (own[0]["presence"], own[0]["presence_source"]) == ("present", "input of ada")
    assert (own[0]["usage"]["cpu_local"], own[0]["limited_cpus"]) == (1.25, 0.25)


async def test_a_pause_is_told_without_whose_word_it_is(service: Running) -> None:
    async with service.agent("n1") as agent:
        await service.until(lambda: service.service.book.entry("n1").size is not None, "up")
        job_id = await service.submit()
        await service.job_in(job_id, "running")
        await agent.beat(paused="ada has paused parallel work at this desk")
        await service.until(lambda: service.service.book.entry("n1").drained, "the drain")
        for path in ("/v1/nodes", f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/explain"):
            assert told(await asked(service, "bob", path)) == set(), path
            assert "ada" in told(await service.get(path)), path
        assert (await asked(service, "bob", "/v1/nodes"))["nodes"][0]["reason"] == PAUSED + BY_ITS_OWNER
        (paused,) = (await asked(service, "bob", f"/v1/jobs/{job_id}"))["paused"]
        assert (paused["node"], paused["reason"]) == ("n1", BY_ITS_OWNER)


async def test_neither_the_log_nor_a_job_says_at_which_desk_somebody_came(
    make_cluster: Callable[..., Cluster],
) -> None:
    """Where the policy looks at owners, it is in the journal, which a replay needs."""
    contract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=4)
    async with running(make_cluster(policy="3dbf-light", contract=contract, operators=[ME])) as service:
        async with service.agent("n1", owner=contract) as agent:
            await service.until(lambda: service.service.book.entry("n1").size is not None, "up")
            entry = service.service.book.entry("n1")
            for presence in (Presence.PRESENT, Presence.AWAY, Presence.PRESENT):
                await agent.beat(presence)
                there = presence is Presence.PRESENT
                await service.until(lambda there=there: (entry.owner is not None) is there, f"owned {there}")
        assert "owner came" not in service.log.getvalue()
        assert "owner left" not in service.log.getvalue()
