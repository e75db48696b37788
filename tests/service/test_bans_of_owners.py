"""Owners ban users by their names: what becomes of that where names are looked up slowly, in vain, or not at all."""

import pwd
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from kit.service import Agent, Cluster, Running, running

from cosched.wire import messages as wire
from space_scheduler.service.link import bans as link_bans

NUMBERS = {"bob": 1002, "eve": 1003, "zoe": 1004}


class Directory:
    """A directory service: it answers, is away, or keeps whoever asks waiting."""

    def __init__(self) -> None:
        self.numbers = dict(NUMBERS)
        self.away = False
        self.asked: list[str] = []
        self.threads: set[threading.Thread] = set()
        self.answers = threading.Event()
        self.answers.set()

    def by_name(self, name: str) -> pwd.struct_passwd:
        self.asked.append(name)
        self.threads.add(threading.current_thread())
        self.answers.wait()
        return self._entry(name, self.numbers.get(name))

    def by_number(self, number: int) -> pwd.struct_passwd:
        names = [name for name, each in self.numbers.items() if each == number]
        return self._entry(names[0] if names else "", number)

    def _entry(self, name: str, number: int | None) -> pwd.struct_passwd:
        if self.away or not name or number is None:
            raise KeyError(name)
        return pwd.struct_passwd((name, "x", number, number, "", "/", "/bin/sh"))


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Directory]:
    made = Directory()
    monkeypatch.setattr(pwd, "getpwnam", made.by_name)
    monkeypatch.setattr(pwd, "getpwuid", made.by_number)
    yield made
    made.answers.set()


@asynccontextmanager
async def at_desk(service: Running, *banned: str) -> AsyncIterator[Agent]:
    """The agent of a node whose owner has said that before."""
    async with service.agent("n1", agrees=False) as agent:
        await agent.say(wire.OwnersWord(bans=banned))
        await agent.beat()
        yield agent


async def bans(service: Running, *wanted: int) -> None:
    entry = service.service.book.entry("n1")
    await service.until(lambda: entry.size is not None and entry.size.bans == wanted, f"bans of {wanted}")


async def test_a_directory_that_is_away_takes_no_ban_back(cluster: Cluster, directory: Directory) -> None:
    """Not after a restart of the scheduler either, which knows numbers alone."""
    async with running(cluster) as service, at_desk(service, "bob"):
        await bans(service, 1002)
    directory.away = True
    async with running(cluster) as service:
        async with at_desk(service, "bob") as agent:
            await service.beaten("n1")
            await bans(service, 1002)
            await agent.say(wire.OwnersWord(bans=("bob", "eve")))
            await agent.say(wire.OwnersWord())
            await bans(service)
        async with at_desk(service, "bob"):
            await bans(service)


async def test_who_is_not_found_is_looked_for_again(
    cluster: Cluster, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_bans, "_LASTS_S", 0.0)
    monkeypatch.setattr(link_bans, "_APART_S", 0.0)
    directory.away = True
    async with running(cluster) as service, at_desk(service, "bob"):
        await bans(service)
        directory.away = False
        await bans(service, 1002)


async def test_who_is_unknown_here_keeps_nobody_banned(cluster: Cluster, directory: Directory) -> None:
    async with running(cluster) as service, at_desk(service, "bob", "stranger") as agent:
        await bans(service, 1002)
        await agent.say(wire.OwnersWord(bans=("eve", "stranger")))
        await bans(service, 1003)


async def test_a_slow_directory_keeps_nobody_waiting_but_the_word(
    cluster: Cluster, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_bans, "_WAIT_S", 0.0)
    directory.answers.clear()
    async with running(cluster) as service, at_desk(service, "bob", "eve"):
        await bans(service)  # the event loop goes on, and the link
        directory.answers.set()
        await bans(service, 1002, 1003)
    assert threading.main_thread() not in directory.threads


async def test_the_same_names_are_looked_up_once_and_others_not_at_once(
    cluster: Cluster, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_bans, "_APART_S", 3600.0)
    async with running(cluster) as service, at_desk(service, "bob") as agent:
        await bans(service, 1002)
        for other in range(50):
            await agent.say(wire.OwnersWord(bans=("bob", f"nobody-{other}")))
        await agent.say(wire.OwnersWord(0.25, bans=("bob",)))
        entry = service.service.book.entry("n1")
        await service.until(lambda: entry.word.cpu_ratio == 0.25, "heard")
        assert directory.asked == ["bob"]
