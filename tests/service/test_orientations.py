"""A program's orientation: measured by agents, kept with the job, remembered for its user's next one."""

import pytest
from kit.service import Cluster, Running, running

from cosched.errors import BadInput
from cosched.model.effort import Effort
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire

TALKS = Effort(ran_us=3_000_000, kernel_us=600_000, asleep_us=1_000_000, arrivals=8_000, received_bytes=4_000_000)
COMPUTES = Effort(ran_us=3_000_000)


async def ran(service: Running, agent: object, effort: Effort, script: str, **given: object) -> int:
    """A job of that script that has ended, with what the node saw of it."""
    job_id = await service.runs(script=script, **given)
    sign = wire.JobSigns(job_id, 1, "polls", 0, (), effort)
    await agent.say(wire.Heartbeat(Usage(), Presence.UNKNOWN, "tty", 1.5, True, jobs=(sign,)))  # type: ignore[attr-defined]
    await agent.ends(job_id, wire.Exit(status=0))  # type: ignore[attr-defined]
    await service.job_in(job_id, "completed")
    return job_id


def test_kernel_and_sleep_are_communication_and_too_little_says_nothing() -> None:
    assert TALKS.communication == 0.4
    assert (TALKS.orientation, COMPUTES.orientation, Effort().orientation) == ("comm", "cpu", "")
    assert Effort(1_000_000, 900_000).orientation == ""
    assert TALKS.plus(COMPUTES) == Effort(6_000_000, 600_000, 1_000_000, 8_000, 4_000_000)


async def test_what_was_measured_is_the_kind_of_the_next_job_of_the_program_also_after_a_restart(
    cluster: Cluster,
) -> None:
    talks, computes = "#!/bin/sh\nmpirun talks\n", "#!/bin/sh\ncomputes\n"
    async with running(cluster) as service, service.agent("n1") as agent:
        first = await service.job(await ran(service, agent, TALKS, talks))
        assert (first.kind, first.kind_from) == (None, "")
        assert first.effort is not None
        assert (first.effort.orientation, first.effort.communication, first.effort.arrivals_per_s) == (
            "comm",
            0.4,
            2000,
        )
        await ran(service, agent, COMPUTES, computes)
        again = await service.job(await service.submit(script=talks, hold=True))
        assert (again.kind, again.kind_from, again.effort) == ("comm", "measured", None)
        declared = await service.job(await service.submit(script=talks, kind="cpu", hold=True))
        assert (declared.kind, declared.kind_from) == ("cpu", "declared")
        other = await service.job(await service.submit(script=talks, arguments=["x"], hold=True))
        assert other.kind is None
        # a second look at the program counts more than the first
        await ran(service, agent, COMPUTES, talks)
        assert (await service.job(await service.submit(script=talks, hold=True))).kind == "cpu"
        await ran(service, agent, Effort(1), talks)  # too short to say anything
    async with running(cluster) as service:
        assert (await service.job(await service.submit(script=talks, hold=True))).kind == "cpu"
        assert (await service.job(await service.submit(script=computes, hold=True))).kind == "cpu"
        wide = await service.job(await service.submit(script=talks, tasks=2, hold=True))
        assert wide.kind is None, "alone it has nobody to talk to"


def test_an_effort_below_nothing_is_none() -> None:
    sign = wire.JobSigns(1, 1, "polls", 0, (), Effort(5, 0, -5))
    frame = wire.encode(wire.Heartbeat(Usage(), Presence.UNKNOWN, "tty", 1.5, True, jobs=(sign,)))
    with pytest.raises(BadInput, match="asleep_us"):
        wire.from_agent(frame)
