"""Owners ban users by their names: what becomes of that where names are looked up slowly, in vain, or not at all."""

import asyncio
import math
import pwd
import threading
from collections.abc import AsyncIterator, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import pytest_asyncio
from kit.service import Cluster, Running, running
from kit.waiting import BOUND_S

from cosched.wire import messages as wire
from space_scheduler.service.launch.nodes import NodeBook
from space_scheduler.service.launch.values import AnyInput, OwnerSaid
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


class Desk:
    """What n1's owner says, with the numbers of users that are handed on; a look at what is due is a test's."""

    def __init__(self) -> None:
        self.told: list[tuple[int, ...]] = []
        self.book = NodeBook(["n1"], lambda: 0.0)
        session: Any = SimpleNamespace(name="n1", word=None, banned=(), looked_up_s=-math.inf)
        self.session = session
        self.bans = link_bans.Bans(self.book, self.hands_on, {"n1": session})

    def hands_on(self, said: AnyInput) -> None:
        assert isinstance(said, OwnerSaid)
        self.told.append(said.banned)

    async def says(self, *banned: str) -> tuple[int, ...]:
        await self.bans.said(self.session, wire.OwnersWord(bans=banned))
        return self.told[-1]

    async def until(self, *banned: int) -> None:
        async with asyncio.timeout(BOUND_S):
            while self.told[-1] != banned:
                self.bans.look_again()
                await asyncio.sleep(0.01)


@pytest_asyncio.fixture
async def desk() -> AsyncIterator[Desk]:
    made = Desk()
    yield made
    made.bans.close()


async def test_a_directory_that_is_away_takes_no_ban_back(cluster: Cluster, directory: Directory) -> None:
    """Not after a restart of the scheduler either, which knows numbers alone."""

    async def banned(service: Running, *wanted: int) -> None:
        entry = service.service.book.entry("n1")
        await service.until(lambda: entry.size is not None and entry.size.bans == wanted, f"bans of {wanted}")

    async with running(cluster) as service, service.agent("n1") as agent:
        await agent.say(wire.OwnersWord(bans=("bob",)))
        await banned(service, 1002)
    directory.away = True
    async with running(cluster) as service, service.agent("n1", agrees=False) as agent:
        for word, wanted in ((("bob",), (1002,)), (("bob", "eve"), (1002,)), ((), ()), (("bob",), ())):
            await agent.say(wire.OwnersWord(bans=word))
            await agent.beat()
            await banned(service, *wanted)


async def test_who_is_not_found_is_looked_for_again(
    desk: Desk, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_bans, "_APART_S", 0.0)
    desk.bans._numbers._lasts_s = 0.0
    directory.away = True
    assert await desk.says("bob") == ()
    directory.away = False
    await desk.until(1002)


async def test_who_is_unknown_here_keeps_nobody_banned(
    desk: Desk, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_bans, "_APART_S", 0.0)
    assert await desk.says("bob", "stranger") == (1002,)
    desk.book.entry("n1").recorded_bans = (1002,)
    assert await desk.says("eve", "stranger") == (1003,)


async def test_a_slow_directory_keeps_nobody_waiting_but_the_word(
    desk: Desk, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_bans, "_WAIT_S", 0.0)
    directory.answers.clear()
    assert await desk.says("bob", "eve") == (), "the event loop goes on, and the link"
    directory.answers.set()
    await desk.until(1002, 1003)
    assert threading.main_thread() not in directory.threads


async def test_the_same_names_are_looked_up_once_and_others_not_at_once(desk: Desk, directory: Directory) -> None:
    assert await desk.says("bob") == (1002,)
    for other in range(50):
        await desk.says("bob", f"nobody-{other}")
    assert await desk.says("bob") == (1002,)
    assert directory.asked == ["bob"]
