"""The agent's end of the channel to malleable programs, over real sockets: what ranks are told, who is hung up on."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from kit.waiting import BOUND_S

from node_agent.core.attempt import Key
from node_agent.service.complaints import Complaints
from node_agent.service.entrance import Entrance
from node_agent.service.job_channel import MAX_LINE_BYTES, JobChannel
from node_agent.service.job_lookup import JobLookup

JOB = (7, 1)
HELLO = "adaptive 1 0 4\n"


class Lookup(JobLookup):
    """All callers are of one job, or of none."""

    def __init__(self) -> None:
        self.key: Key | None = JOB

    def by_cgroup(self, pid: int) -> Key | None:
        return self.key

    async def attempt_of(self, pid: int) -> Key | None:
        return self.key


class Agent:
    """The channel of node a, and what it told the agent."""

    def __init__(self, directory: Path) -> None:
        self.path = str(directory / "job.sock")
        self.lookup, self.complaints = Lookup(), Complaints()
        self.owner: int | None = os.getuid()
        self.adapted: list[tuple[Key, int]] = []
        self.asked: list[tuple[Key, int]] = []
        self.channel = JobChannel(
            "a", self.lookup, lambda _: self.owner, self.complaints,
            lambda key, number: self.adapted.append((key, number)),
            lambda key, more: self.asked.append((key, more)),
        )  # fmt: skip
        self.entrance: Entrance = self.channel.listen(self.path)


class Rank:
    """A rank's connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, text: str | bytes) -> None:
        self.writer.write(text if isinstance(text, bytes) else text.encode())

    async def line(self) -> str:
        """The next line; empty where the agent has hung up."""
        async with asyncio.timeout(BOUND_S):
            try:
                return (await self.reader.readline()).decode()
            except ConnectionError:
                return ""


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    made = Agent(tmp_path)
    yield made
    made.entrance.close()
    made.channel.forget(JOB)
    await until(lambda: not len(made.entrance))


async def until(condition: object) -> None:
    async with asyncio.timeout(BOUND_S):
        while not condition():  # type: ignore[operator]
            await asyncio.sleep(0.005)


async def rank(agent: Agent, hello: str | bytes = HELLO) -> Rank:
    made = Rank(*await asyncio.open_unix_connection(agent.path))
    made.say(hello)
    return made


async def joined(agent: Agent) -> Rank:
    made = await rank(agent)
    assert await made.line() == "node a\n"
    return made


async def test_a_rank_is_told_its_node_and_the_newest_map_when_it_comes_and_each_newer_one(agent: Agent) -> None:
    first = await joined(agent)
    agent.channel.offer(JOB, 3, {"a": 2, "b": 1})
    assert await first.line() == "map 3 a=2 b=1\n"
    agent.channel.offer(JOB, 2, {"a": 1})
    agent.channel.offer(JOB, 3, {"a": 1})
    agent.channel.offer(JOB, 5, {"a": 0, "b": 1})
    second = await joined(agent)
    assert await first.line() == await second.line() == "map 5 a=0 b=1\n"
    first.writer.close()
    second.writer.close()


async def test_what_ranks_say_reaches_the_agent_and_an_answer_the_one_that_asked(agent: Agent) -> None:
    leader, other = await joined(agent), await joined(agent)
    leader.say("adapted 4\nask +2\n")
    await until(lambda: agent.asked)
    assert (agent.adapted, agent.asked) == ([(JOB, 4)], [(JOB, 2)])
    agent.channel.answer(JOB, 1, waits=True)
    agent.channel.answer(JOB, 9, waits=False)  # nobody has asked for that
    agent.channel.offer(JOB, 5, {"a": 3})
    assert [await leader.line(), await leader.line(), await other.line()] == ["answer 1 1\n", *2 * ["map 5 a=3\n"]]
    leader.say("ask -3\n")
    await until(lambda: len(agent.asked) == 2)
    assert agent.asked[1] == (JOB, -3)
    leader.writer.close()
    other.writer.close()


async def test_an_agent_knows_whether_any_rank_is_there_and_a_job_that_is_forgotten_is_hung_up_on(agent: Agent) -> None:
    assert not agent.channel.joined(JOB)
    agent.channel.offer(JOB, 1, {"a": 1})
    first, second = await joined(agent), await joined(agent)
    assert agent.channel.joined(JOB)
    assert await first.line() == "map 1 a=1\n"
    first.writer.close()
    await until(lambda: len(agent.entrance) == 1)
    assert agent.channel.joined(JOB)
    agent.channel.forget(JOB)
    assert [await second.line(), await second.line()] == ["map 1 a=1\n", ""]
    second.writer.close()
    await until(lambda: not agent.channel.joined(JOB))
    agent.channel.offer(JOB, 1, {"a": 2})  # its numbers begin anew
    third = await joined(agent)
    assert await third.line() == "map 1 a=2\n"
    third.writer.close()


@pytest.mark.parametrize(
    "words",
    [
        "adaptive 2 0 4\n", "adaptive 1 4 4\n", "adaptive 1 -1 4\n", "adaptive 1 0\n", "GET / HTTP/1.0\n", "\n",
        b"\xff\xfe\n", b"adaptive 1 0 4\0\n", "a" * MAX_LINE_BYTES + "\n", "a" * 5 * MAX_LINE_BYTES,
    ],
)  # fmt: skip
async def test_what_is_no_first_line_is_hung_up_on_and_counted(agent: Agent, words: str | bytes) -> None:
    stranger = await rank(agent, words)
    assert await stranger.line() == ""
    assert agent.complaints.counts["channel"] == 1
    assert not agent.channel.joined(JOB)
    stranger.writer.close()


@pytest.mark.parametrize(
    "words",
    [
        "ask 0\n", "ask +0\n", "ask\n", "ask 1 2\n", "ask 99999999999\n", "ask ٣\n", "adapted -1\n", "adapted x\n",
        "adapted 1" + "0" * 30 + "\n", "adaptive 1 0 4\n", "map 9 a=1\n", "x" * (MAX_LINE_BYTES + 1) + "\n",
    ],
)  # fmt: skip
async def test_a_rank_that_says_something_else_is_hung_up_on_and_nothing_comes_of_it(agent: Agent, words: str) -> None:
    liar, honest = await joined(agent), await joined(agent)
    liar.say(words)
    assert await liar.line() == ""
    assert (agent.adapted, agent.asked, agent.complaints.counts["channel"]) == ([], [], 1)
    agent.channel.offer(JOB, 1, {"a": 1})
    assert await honest.line() == "map 1 a=1\n"
    honest.writer.close()
    liar.writer.close()


@pytest.mark.parametrize("who", ["no job", "another user", "a job that ends"])
async def test_who_is_not_the_jobs_is_hung_up_on(agent: Agent, who: str) -> None:
    if who == "no job":
        agent.lookup.key = None
    else:
        agent.owner = os.getuid() + 1 if who == "another user" else None
    stranger = await rank(agent)
    assert await stranger.line() == ""
    assert agent.complaints.counts["channel"] == 1
    stranger.writer.close()


async def test_who_does_not_read_is_cut_and_the_others_are_told_everything(agent: Agent) -> None:
    deaf = socket.socket(socket.AF_UNIX)
    deaf.connect(agent.path)
    deaf.send(HELLO.encode())
    await until(lambda: agent.channel.joined(JOB))
    reader = await joined(agent)
    nodes = {f"node-{number:03}": 1 for number in range(400)}
    for number in range(1, 200):
        agent.channel.offer(JOB, number, nodes)
        assert (await reader.line()).startswith(f"map {number} ")
        if agent.complaints.counts["channel"]:
            break
    assert agent.complaints.counts["channel"] == 1
    await until(lambda: len(agent.entrance) == 1)
    deaf.close()
    reader.writer.close()


async def test_a_job_that_talks_without_end_is_hung_up_on(agent: Agent) -> None:
    talker, quiet = await joined(agent), await joined(agent)
    talker.say("ask 1\n" * 4000)
    assert await talker.line() == ""
    assert 100 <= len(agent.asked) < 1000
    assert agent.complaints.counts["channel"] == 1
    agent.channel.offer(JOB, 1, {"a": 1})
    assert await quiet.line() == "map 1 a=1\n"
    talker.writer.close()
    quiet.writer.close()


async def test_a_job_has_its_places_and_no_more(agent: Agent) -> None:
    waiting = []
    for _ in range(200):
        waiting.append(socket.socket(socket.AF_UNIX))
        waiting[-1].setblocking(False)
        waiting[-1].connect(agent.path)
        await asyncio.sleep(0)
    await until(lambda: agent.complaints.counts["channel"] >= 1)
    assert len(agent.entrance) <= 128
    for each in waiting:
        each.close()
    await until(lambda: not len(agent.entrance))
    honest = await joined(agent)
    honest.writer.close()


async def test_a_map_that_no_line_can_hold_is_refused_and_the_last_one_counts(agent: Agent) -> None:
    agent.channel.offer(JOB, 1, {"a": 1})
    with pytest.raises(ValueError, match="a map of 9"):
        agent.channel.offer(JOB, 2, {f"n{number:05}": 1 for number in range(1000)})
    first = await joined(agent)
    assert await first.line() == "map 1 a=1\n"
    first.writer.close()
