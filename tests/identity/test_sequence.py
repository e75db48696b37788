"""Replayed, reordered and foreign messages: on the agents' link from either side, and at an agent's door."""

import asyncio
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit.agents import Cluster as Nodes
from kit.agents import until
from kit.service import Cluster, running

from cosched.errors import BadInput
from cosched.model.node import Presence, Usage
from cosched.wire import messages as wire
from cosched.wire.sequence import Numbering, OutOfTurn, Turn, new_session


@given(st.lists(st.integers(0, 6), max_size=12))
def test_only_what_comes_next_is_taken(order: list[int]) -> None:
    session = new_session()
    numbering, turn = Numbering(session), Turn(session)
    frames = [numbering.frame(bytes([n])) for n in range(7)]
    taken: list[int] = []
    kinds: list[tuple[str, str]] = []
    for n in order:
        try:
            taken.append(turn.payload(frames[n])[0])
        except OutOfTurn as error:
            kinds.append((error.kind, "replayed" if n < len(taken) else "out of order"))
    assert all(found == expected for found, expected in kinds)
    assert taken == list(range(len(taken)))


def test_what_is_of_another_connection_or_no_frame_is_refused() -> None:
    turn = Turn(new_session())
    with pytest.raises(OutOfTurn, match="another connection"):
        turn.payload(Numbering(new_session()).frame(b"x"))
    with pytest.raises(BadInput, match="a header of 16 bytes"):
        turn.payload(b"x" * 15)


async def test_the_scheduler_obeys_nothing_that_is_replayed(files: Cluster) -> None:
    async with running(files) as service, service.agent("n1") as agent:
        assert agent.numbering is not None
        present = agent.numbering.frame(wire.encode(wire.Heartbeat(Usage(), Presence.PRESENT)))
        await agent.connection.send(present)
        await service.beaten("n1", Presence.PRESENT)
        await agent.beat(Presence.AWAY)
        await service.beaten("n1", Presence.AWAY)
        for _ in range(3):
            await agent.connection.send(present)
        stranger = Numbering(new_session()).frame(wire.encode(wire.Heartbeat(Usage(), Presence.PRESENT)))
        await agent.connection.send(stranger)
        await service.until(lambda: service.service.link.refused["foreign"] == 1, "refused")
        assert service.service.link.refused["replayed"] == 3
        entry = service.service.book.entry("n1")
        assert entry.beat is not None
        assert entry.beat.presence is Presence.AWAY
        lines = [line for line in service.log.getvalue().splitlines() if "message refused: replayed" in line]
        assert len(lines) == 1
        assert '"peer":"n1"' in lines[0]


async def test_the_scheduler_ends_a_link_on_which_a_message_is_missing(files: Cluster) -> None:
    async with running(files) as service, service.agent("n1") as agent:
        assert agent.numbering is not None
        first, second = (
            agent.numbering.frame(wire.encode(wire.Heartbeat(Usage(), presence)))
            for presence in (Presence.AWAY, Presence.PRESENT)
        )
        await agent.connection.send(second)
        await agent.connection.send(first)
        await service.logged("agent disconnected", "n1")
        assert service.service.link.refused["out of order"] == 1
        entry = service.service.book.entry("n1")
        assert entry.beat is None or entry.beat.presence is Presence.UNKNOWN


async def test_a_hello_that_is_replayed_brings_no_node(files: Cluster) -> None:
    """Hello is what one can record before there is a session; by itself it is worth nothing."""
    async with running(files) as service:
        async with service.agent("n1") as agent:
            recorded = wire.encode(agent.hello())
            assert agent.numbering is not None
            beat = agent.numbering.frame(wire.encode(wire.Heartbeat(Usage(), Presence.AWAY)))
            await agent.connection.send(beat)
            await service.until(lambda: service.service.book.entry("n1").size is not None, "up")
        await service.until(lambda: not service.service.book.entry("n1").connected, "gone")
        service.service.book.entry("n1").beat = None
        async with service.dial("node", "n1") as connection:
            for frame in (recorded, beat, beat):
                await connection.send(frame)
            await service.until(lambda: service.service.link.refused["foreign"] == 2, "refused")
            entry = service.service.book.entry("n1")
            assert entry.connected
            assert not entry.agreed
            assert entry.beat is None


async def test_an_agent_obeys_nothing_that_is_replayed_or_reordered(nodes: Nodes) -> None:
    node = nodes.node("a")
    mark = node.base / "ran"
    async with nodes.scheduler() as scheduler:
        await scheduler.tell("a", nodes.prepare(scheduler.fence, 5, "a"))
        await scheduler.next("a", wire.Prepared)
        run = wire.Run(scheduler.fence, wire.OrderId(5, 1, 2), b"#!/bin/sh\necho >> " + os.fsencode(mark), ())
        numbering, link = scheduler.numberings["a"], scheduler.links["a"]
        frame = numbering.frame(wire.encode(run))
        for _ in range(4):
            await link.send(frame)
        await scheduler.next("a", wire.ProgramEnded)
        assert mark.read_text() == "\n"
        assert [kind for _, kind in scheduler.got if isinstance(kind, wire.Refused)] == []
        await until(lambda: node.log.read_text().count("refused, replayed, from the scheduler") == 1, "its log")
        # the same order in a new frame is not obeyed twice either: it is answered again
        await scheduler.tell("a", run)
        assert (await scheduler.next("a", wire.Started)).order == run.order
        assert mark.read_text() == "\n"
        # and out of order: nothing of it, and the link begins anew
        skipped, kill = (
            numbering.frame(wire.encode(wire.Kill(scheduler.fence, wire.OrderId(5, 1, 3), 0))) for _ in "ab"
        )
        await link.send(kill)
        await link.send(skipped)
        await until(lambda: len(scheduler.hellos) == 2, "the agent to come back")
        await asyncio.sleep(0.1)  # for what must not come
        assert not [1 for _, message in scheduler.got if isinstance(message, wire.GroupEnded)]
        assert "a message is missing" in node.log.read_text()
