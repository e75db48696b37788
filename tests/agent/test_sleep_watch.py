"""The machine's sleep, by logind's word on a bus of the test's own: told before it sleeps, held back no longer."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from kit.agents import Cluster, until
from kit.buses import LOGIND, LOGIND_PATH, MANAGER, caller, logind, private_bus

from cosched.model.desk import ContractReason
from node_agent.service import sleep_watch
from node_agent.service.desk_watch import Desk
from node_agent.service.sleep_watch import NOT_INSTALLED, SleepWatch

pytest.importorskip("dbus_fast", reason="needs the extra desktop")
pytestmark = pytest.mark.system("dbus", "python3-dbusmock")
MOCK = "org.freedesktop.DBus.Mock"


class Told:
    """Who is told, as the agent's desk is."""

    def __init__(self) -> None:
        self.asleep = False
        self.looked = 0
        self.words: list[bool] = []
        self.slow = asyncio.Event()
        self.slow.set()

    def again(self) -> None:
        self.looked += 1

    async def say_now(self) -> None:
        self.words.append(self.asleep)
        await self.slow.wait()


@pytest.fixture
def bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    with private_bus(tmp_path) as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        yield environment


@asynccontextmanager
async def watching(told: Told, watch: SleepWatch | None = None) -> AsyncIterator[SleepWatch]:
    watch = watch or SleepWatch(cast(Desk, told), told.say_now)
    keeps = asyncio.create_task(watch.keep())
    try:
        yield watch
    finally:
        keeps.cancel()
        await asyncio.gather(keeps, return_exceptions=True)


async def inhibitors(ask: Callable[..., Any]) -> list[list[object]]:
    reply = await ask(LOGIND, LOGIND_PATH, MANAGER, "ListInhibitors")
    found: list[list[object]] = reply.body[0] if reply.signature.startswith("a(") else []
    return found


async def locked(ask: Callable[..., Any], count: int) -> None:
    """Until so many locks are held."""
    for _ in range(1000):
        if len(await inhibitors(ask)) == count:
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"{count} locks; found {await inhibitors(ask)}")


async def signalled(ask: Callable[..., Any], sleeps: bool) -> None:
    """Logind says that the machine sleeps, or that it is awake."""
    from dbus_fast import Variant  # noqa: PLC0415 (an extra)

    values = [Variant("b", sleeps)]
    await ask(LOGIND, LOGIND_PATH, MOCK, "EmitSignal", "sssav", MANAGER, "PrepareForSleep", "b", values)


async def test_the_word_is_out_before_the_machine_sleeps_and_the_lock_is_back_when_it_is_awake(
    bus: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleep_watch, "_WORD_S", 60.0)  # else it sleeps without the word where this machine stands still
    told = Told()
    with logind(bus):
        async with caller(bus) as ask:
            await until_there(ask)
            async with watching(told):
                await locked(ask, 1)
                ((what, who, why, mode, *_),) = await inhibitors(ask)
                assert (what, who, mode) == ("sleep", "cosched", "delay")
                assert why == "The scheduler is told that this machine sleeps."
                told.slow.clear()
                await signalled(ask, True)
                await until(lambda: told.words, "the word")
                assert len(await inhibitors(ask)) == 1, "the machine waits until the word is out"
                told.slow.set()
                await locked(ask, 0)
                assert told.asleep
                assert told.words == [True]
                await signalled(ask, False)
                await until(lambda: not told.asleep, "it to be awake")
                await locked(ask, 1)
                assert told.looked == 1
            await locked(ask, 0)


async def until_there(ask: Callable[..., Any]) -> None:
    for _ in range(1000):
        reply = await ask("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "NameHasOwner", "s",
                          LOGIND)  # fmt: skip
        if reply.body[0] and (await ask(LOGIND, LOGIND_PATH, MANAGER, "ListInhibitors")).body[0] is not None:
            return
        await asyncio.sleep(0.01)
    raise AssertionError("logind is not there")


async def test_who_cannot_be_told_keeps_nobody_awake(bus: dict[str, str]) -> None:
    told = Told()
    with logind(bus):
        async with caller(bus) as ask:
            await until_there(ask)
            async with watching(told):
                await locked(ask, 1)
                told.slow.clear()  # the scheduler takes no word
                await signalled(ask, True)
                await locked(ask, 0)
                assert told.asleep


async def strangers(ask: Any) -> list[str]:
    """The names of all connections to the bus but the caller's own; among them is the watch's."""
    names = (await ask("org.freedesktop.DBus", "/org/freedesktop/DBus", "org.freedesktop.DBus", "ListNames")).body[0]
    return [name for name in names if name.startswith(":") and name != ask.bus.unique_name]


async def test_a_stranger_who_says_that_the_machine_sleeps_is_not_believed(bus: dict[str, str]) -> None:
    """Any process may send the agent a signal that looks like logind's."""
    from dbus_fast import Message, MessageType  # noqa: PLC0415 (an extra)

    told = Told()
    with logind(bus):
        async with caller(bus) as ask:
            await until_there(ask)
            async with watching(told):
                await locked(ask, 1)
                names = await strangers(ask)
                for number in range(40):  # more than it keeps
                    for name in names:
                        forged = Message(
                            name, LOGIND_PATH, MANAGER, "PrepareForSleep",
                            message_type=MessageType.SIGNAL, signature="s" if number % 2 else "b",
                            body=["true"] if number % 2 else [True],
                        )  # fmt: skip
                        await ask.bus.send(forged)
                await signalled(ask, False)  # it still listens
                await locked(ask, 1)
                await asyncio.sleep(0.2)
                assert told.words == []
                assert not told.asleep


async def test_descriptors_that_strangers_send_are_closed(bus: dict[str, str]) -> None:
    """Any process may send the agent messages with descriptors; each that is kept is one less for the agent."""
    from dbus_fast import Message, MessageFlag, MessageType  # noqa: PLC0415 (an extra)

    told = Told()
    with logind(bus):
        async with caller(bus, descriptors=True) as ask:
            await until_there(ask)
            async with watching(told):
                await locked(ask, 1)
                before = len(os.listdir("/proc/self/fd"))
                sent = os.open(os.devnull, os.O_RDONLY)
                for name in await strangers(ask):
                    for kind in [MessageType.SIGNAL, MessageType.METHOD_CALL] * 20:
                        forged = Message(
                            name, LOGIND_PATH, MANAGER, "PrepareForSleep", message_type=kind,
                            flags=MessageFlag.NO_REPLY_EXPECTED, signature="h", body=[0], unix_fds=[sent],
                        )  # fmt: skip
                        await ask.bus.send(forged)
                os.close(sent)
                await strangers(ask)  # the bus has passed them on
                await signalled(ask, True)
                await until(lambda: told.asleep, "logind's word, which came after them")
                await signalled(ask, False)
                await locked(ask, 1)
                assert len(os.listdir("/proc/self/fd")) == before


async def test_a_bus_that_goes_leaves_nobody_asleep(bus: dict[str, str], tmp_path: Path) -> None:
    told = Told()
    other = tmp_path / "other"
    other.mkdir()
    with private_bus(other) as environment, logind(environment), pytest.MonkeyPatch.context() as patch:
        patch.setenv("DBUS_SYSTEM_BUS_ADDRESS", environment["DBUS_SYSTEM_BUS_ADDRESS"])
        watch = SleepWatch(cast(Desk, told), told.say_now)
        async with caller(environment) as ask:
            await until_there(ask)
            keeps = asyncio.create_task(watch.keep())
            await locked(ask, 1)
            await signalled(ask, True)
            await until(lambda: told.asleep, "sleep")
    await until(lambda: not told.asleep, "the end of the bus to be seen")
    assert watch.problem
    keeps.cancel()
    await asyncio.gather(keeps, return_exceptions=True)


async def test_without_a_bus_and_without_the_package_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/none")
    told = Told()
    async with watching(told) as watch:
        await until(lambda: "No such file" in watch.problem, "the problem")
    monkeypatch.setitem(sys.modules, "dbus_fast", None)
    bare = SleepWatch(cast(Desk, told), told.say_now)
    await bare.keep()
    assert bare.problem == NOT_INSTALLED


@pytest.mark.parametrize(
    "says",
    [["REJECTED EXTERNAL"], ["OK 0123", "AGREE_UNIX_FD", "nothing that is a message of any kind"], []],
    ids=["rejects", "says no message", "ends"],
)
async def test_what_no_bus_says_is_a_problem_and_not_the_agents_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: list[str]
) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", f"unix:path={tmp_path}/rejecting")

    async def answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for line in says:
            await reader.readline()
            writer.write(f"{line}\r\n".encode())
        await reader.readline()
        writer.close()

    told = Told()
    async with await asyncio.start_unix_server(answers, tmp_path / "rejecting"), watching(told) as watch:
        await until(lambda: watch.problem != "just started", "the problem")


async def test_a_logind_that_gives_no_lock_is_a_problem_and_not_the_agents_end(bus: dict[str, str]) -> None:
    told = Told()
    with logind(bus):
        async with caller(bus) as ask:
            await until_there(ask)
            await ask(LOGIND, LOGIND_PATH, MOCK, "AddMethod", "sssss", MANAGER, "Inhibit", "ssss", "u", "ret = 0")
            async with watching(told) as watch:
                await until(lambda: watch.problem != "just started", "the problem")
                assert watch.problem == "logind has answered without a lock"


async def test_an_agent_tells_its_scheduler_before_the_machine_sleeps(cluster: Cluster, bus: dict[str, str]) -> None:
    with logind(bus):
        async with caller(bus) as ask:
            await until_there(ask)
            cluster.node("a")
            async with cluster.scheduler() as scheduler:
                scheduler.heartbeat_us = 3_600_000_000  # what comes now comes because of the word
                await locked(ask, 1)
                await until(lambda: "a" in scheduler.beats, "the agent to join")
                scheduler.beats.clear()
                await signalled(ask, True)
                await until(lambda: "a" in scheduler.beats, "a heartbeat")
                assert scheduler.reports["a"].reason is ContractReason.ASLEEP, "said before the heartbeat"
                await locked(ask, 0)
