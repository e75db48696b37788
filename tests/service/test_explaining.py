"""``explain`` for every state a job can be in: the reason is the one that the decision itself recorded."""

from collections.abc import Awaitable, Callable

import pytest
from kit.service import ME, Agent, Cluster, Running, running

from cosched.model.job import JobState
from cosched.wire import messages as wire

Bring = Callable[[Running, Agent], Awaitable[int]]


async def queued(service: Running, agent: Agent) -> int:
    await service.runs(tasks=2)
    return await service.submit(tasks=2)


async def behind(service: Running, agent: Agent) -> int:
    await service.runs(tasks=1)
    await service.submit(tasks=2, time_limit_s=60)
    waits = await service.submit(tasks=1, time_limit_s=86_000)
    await service.until(lambda: len(service.service.host.view().queue) == 2, "queued")
    return waits


async def held(service: Running, agent: Agent) -> int:
    return await service.submit(hold=True)


async def starting(service: Running, agent: Agent) -> int:
    agent.answers = False
    return await service.submit()


async def running_(service: Running, agent: Agent) -> int:
    return await service.submit()


async def ending(service: Running, agent: Agent) -> int:
    job_id = await service.runs()
    agent.answers = False
    await service.post(f"/v1/jobs/{job_id}/cancel")
    return job_id


async def ended(service: Running, agent: Agent, how: wire.Exit) -> int:
    job_id = await service.runs()
    await agent.ends(job_id, how, b"the last line\n")
    return job_id


async def completed(service: Running, agent: Agent) -> int:
    return await ended(service, agent, wire.Exit(status=0))


async def failed(service: Running, agent: Agent) -> int:
    return await ended(service, agent, wire.Exit(status=3))


async def timed_out(service: Running, agent: Agent) -> int:
    return await ended(service, agent, wire.Exit(signal=15, cause="limit"))


async def cancelled(service: Running, agent: Agent) -> int:
    job_id = await held(service, agent)
    await service.post(f"/v1/jobs/{job_id}/cancel")
    return job_id


async def launch_failed(service: Running, agent: Agent) -> int:
    agent.answers = False
    job_id = await service.submit()
    order = (await agent.heard(wire.Prepare)).order
    await agent.say(wire.Refused(order, "directory", "no directory /data"))
    kill = await agent.heard(wire.Kill)
    await agent.say(wire.Refused(kill.order, "unknown", "no such job"))
    return job_id


async def node_lost(service: Running, agent: Agent) -> int:
    job_id = await service.runs()
    await agent.connection.close()
    await service.passes(61)
    return job_id


#: What brings a job there -> its state, the reason's name, words that its text has, words that its cause has.
CASES: dict[Bring, tuple[str, str, str, str]] = {
    queued: ("queued", "not_enough_free", "procs=2, free_procs=0", ""),
    behind: ("queued", "would_delay_reservation", "head=2, promised=20", ""),
    held: ("waiting", "held", "", "JobHeld"),
    starting: ("starting", "fits", "", "JobSubmitted"),
    running_: ("running", "fits", "", "JobSubmitted"),
    ending: ("ending", "cancelled", "", f"by {ME}"),
    completed: ("completed", "completed", "", ""),
    failed: ("failed", "failed", "status 3", ""),
    timed_out: ("timed out", "timed_out", "it ran past its time limit", ""),
    cancelled: ("cancelled", "cancelled", "", f"by {ME}"),
    launch_failed: ("launch failed", "launch_failed", "n1 refused: no directory /data", ""),
    node_lost: ("node lost", "node_lost", "(node=n1)", "n1 was not heard for 1 min"),
}


def test_no_state_is_left_out() -> None:
    assert {case[0] for case in CASES.values()} == {state.value for state in JobState}


@pytest.mark.parametrize("bring", CASES, ids=lambda bring: bring.__name__)
async def test_explain(bring: Bring, make_cluster: Callable[..., Cluster]) -> None:
    state, why, text, cause = CASES[bring]
    async with running(make_cluster()) as service, service.agent("n1") as agent:
        job_id = await bring(service, agent)
        await service.job_in(job_id, state)
        explained = await service.get(f"/v1/jobs/{job_id}/explain")
        assert (explained["job_id"], explained["state"]) == (job_id, state)
        assert explained["reason"]["why"] == why
        assert text in explained["reason"]["text"]
        assert cause in explained.get("cause", "")
        assert explained["decided"].startswith("20")
