"""Who is at a desk is told to operators alone: no document, page or log line says it to anybody else."""

import asyncio
import json
import re
from collections.abc import Callable
from typing import Any

import msgspec
from kit.service import DEADLINE_S, ME, Cluster, Running, running

from cosched.model.contract import SocialContract
from cosched.model.desk import ContractReason, DeskReport
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from space_scheduler.service.launch.owners import BY_ITS_OWNER, PAUSED

USAGE = Usage(0.5, 1.25, 0.125, 1 << 20, 3 << 20, 1 << 21, 1 << 28, 2.5)
REPORTED = wire.DeskReported(DeskReport(ContractReason.PRESSURE, 1.0))
BEAT = wire.Heartbeat(
    USAGE, Presence.PRESENT, "input of ada", 0.25, blind=("terminals: /dev/pts/7: closed by ada",)
)  # fmt: skip
PRIVATE = ("present", "away", "ada", "input", "terminals", "pressure")


async def asked(service: Running, user: str, path: str) -> Any:
    """What a user without any office is told."""
    status, text = await service.answer_to(user, path)
    assert status == 200, text
    return json.loads(text)


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


async def test_what_owners_use_of_nodes_is_measured_for_operators_alone(service: Running) -> None:
    async with service.agent("n1") as agent:
        await agent.say(BEAT)
        await service.beaten("n1", Presence.PRESENT)
        sides = []
        sides.append(set(re.findall('side="([a-z]+)"', await service.text("/metrics"))))
        status, text = await service.answer_to("bob", "/metrics")
        assert (status, "cosched_node_owner_wakeup_seconds" in text) == (200, True)
        sides.append(set(re.findall('side="([a-z]+)"', text)))
        assert sides == [{"parallel", "local", "system"}, {"parallel"}]
        status, text = await service.answer_to("n1", "/metrics", kind="node")
        assert (status, "certificate of node 'n1'" in text) == (403, True)


async def test_a_pause_is_told_without_whose_word_it_is(service: Running) -> None:
    async with service.agent("n1") as agent:
        job_id = await service.runs()
        await agent.beat(paused="ada has paused parallel work at this desk")
        await service.until(lambda: service.service.book.entry("n1").drained, "the drain")
        for path in ("/v1/nodes", f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/explain"):
            assert told(await asked(service, "bob", path)) == set(), path
            assert "ada" in told(await service.get(path)), path
        assert (await asked(service, "bob", "/v1/nodes"))["nodes"][0]["reason"] == PAUSED + BY_ITS_OWNER
        (paused,) = (await asked(service, "bob", f"/v1/jobs/{job_id}"))["paused"]
        assert (paused["node"], paused["reason"]) == ("n1", BY_ITS_OWNER)


async def test_own_running_job_is_told_its_nodes_limit_and_others_that_it_is_slowed(service: Running) -> None:
    async with service.agent("n1") as agent:
        job_id = await service.runs(tasks=2)
        assert (await service.job(job_id)).slowed is False
        await agent.say(REPORTED)
        await agent.say(BEAT)
        await service.beaten("n1", Presence.PRESENT)
        own = await service.job(job_id)
        explained = await service.get(f"/v1/jobs/{job_id}/explain")
        listed = (await service.get("/v1/jobs"))["jobs"][0]
        (others,) = (await asked(service, "bob", "/v1/jobs"))["jobs"]
        of_others = await asked(service, "bob", f"/v1/jobs/{job_id}/explain")
        (limit,) = own.limited
        assert (limit.node, limit.cpus) == ("n1", 1.0), "not the quarter that says that somebody is there and waits"
        assert limit.since is not None
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d[+-]\d\d:\d\d", limit.since), "to the minute"
        assert explained["limited"] == listed["limited"] == [msgspec.to_builtins(limit)]
        assert (others["slowed"], others["limited"], of_others["limited"]) == (True, [], [])
        assert told(others) == told(of_others) == set()
        await agent.beat(limited_cpus=2.0)
        await service.until(lambda: service.service.book.entry("n1").public_limit_cpus == 2.0, "as many as jobs have")
        assert (await service.job(job_id)).slowed is False


async def test_neither_the_log_nor_a_job_says_at_which_desk_somebody_came(
    make_cluster: Callable[..., Cluster],
) -> None:
    """Where the policy looks at owners, it is in the journal, which a replay needs."""
    contract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=4)
    async with running(make_cluster(policy="3dbf-light", contract=contract, operators=[ME])) as service:
        async with service.agent("n1", owner=contract) as agent:
            entry = service.service.book.entry("n1")
            for presence in (Presence.PRESENT, Presence.AWAY, Presence.PRESENT):
                await agent.beat(presence)
                there = presence is Presence.PRESENT
                await service.until(lambda: (entry.owner is not None) is there, f"owned {there}")  # noqa: B023
        assert "owner came" not in service.log.getvalue()
        assert "owner left" not in service.log.getvalue()


async def test_what_a_node_is_for_a_waiting_job_says_nothing_of_who_is_there(
    make_cluster: Callable[..., Cluster],
) -> None:
    contract = SocialContract(cpu_ratio=0.5, memory_ratio=0.5, mpl=4)
    made = make_cluster(policy="3dbf-light", contract=contract, operators=[ME])
    async with running(made) as service, service.agent("n1", owner=contract) as agent:
        await agent.say(msgspec.structs.replace(BEAT, presence=Presence.AWAY))
        await service.beaten("n1")
        await service.runs(tasks=1)
        path = f"/v1/jobs/{await service.submit(tasks=8, time_limit_s=60)}/explain"
        before, own_before = await asked(service, "bob", path), await service.get(path)
        assert before["nodes"] == own_before["nodes"]
        assert [each["name"] for each in before["nodes"]] == ["n1"]
        await agent.say(BEAT)
        async with asyncio.timeout(DEADLINE_S):
            while (own := await service.get(path))["nodes"] == own_before["nodes"]:
                await asyncio.sleep(0.01)
        assert own["nodes"][0]["used_cpus"] == 2.25
        assert (await asked(service, "bob", path))["nodes"] == before["nodes"]


async def test_how_a_job_ended_is_told_to_its_user_and_operators(service: Running) -> None:
    """To others its state alone: neither who ended it nor what it wrote last, by none of the ways to ask."""
    async with service.agent("n1") as agent:
        failed = await service.runs()
        await agent.ends(failed, wire.Exit(status=3), b"the last line\n")
        await service.job_in(failed, "failed")
        cancelled = await service.submit(hold=True)
        await service.post(f"/v1/jobs/{cancelled}/cancel")
        for job_id, words in ((failed, "status 3"), (cancelled, f"by {ME}")):
            for path in (f"/v1/jobs/{job_id}", f"/v1/jobs/{job_id}/explain"):
                assert words in json.dumps(await service.get(path)), path
                assert words not in json.dumps(await asked(service, "bob", path)), path
        assert (await asked(service, "bob", f"/v1/jobs/{failed}"))["failure"] is None
