"""The desk, live: a key on a real terminal, the guard's limits, the lease."""

import json
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from kit.agents import Cluster, Node, until
from kit.groups import ceiling

from cosched.linux import slices
from cosched.model.node import Presence
from cosched.wire import messages as wire

QUICK = {"presence": "away_after_s = 1.0\npoll_s = 0.2\nbusy_cpus = 1e6"}


@pytest.fixture
def desk(cluster: Cluster) -> Iterator[tuple[Node, Callable[[], None]]]:
    """A node with terminals of its own, and a function that presses a key at one."""
    node = cluster.node("a", start=False, **QUICK)
    with node.at_keyboard() as press:
        yield node, press


def ceiling_of(node: Node) -> float | None:
    """CPUs that parallel work may use, as the kernel has it."""
    return ceiling(f"{node.group}/cosched")


async def test_the_limits_follow_the_person_at_the_desk(
    cluster: Cluster, desk: tuple[Node, Callable[[], None]]
) -> None:
    """On a terminal of the node's own: from an absent owner to a key, by the number that the kernel gives."""
    node, press = desk
    async with cluster.scheduler() as scheduler:
        for _ in range(2):
            await until(lambda: away(scheduler.beats.get("a")), "nobody to be there")
            assert scheduler.beats["a"].limited_cpus is None
            await until(lambda: ceiling_of(node) is None, "no ceiling")
            press()
            await until(lambda: ceiling_of(node) == 1.0, "the ceiling")
            await until(lambda: scheduler.beats["a"].presence is Presence.PRESENT, "the key to be seen")
            assert scheduler.beats["a"].presence_source == "terminals"
            await until(lambda: scheduler.beats["a"].armed, "the limits")
            assert scheduler.beats["a"].limited_cpus == 1.0


def away(beat: wire.Heartbeat | None) -> bool:
    return beat is not None and beat.presence is Presence.AWAY and not beat.armed


@pytest.mark.slow
async def test_a_jobs_own_terminal_is_nobody(cluster: Cluster, desk: tuple[Node, Callable[[], None]]) -> None:
    node, _ = desk
    async with cluster.scheduler() as scheduler:
        await until(lambda: away(scheduler.beats.get("a")), "nobody to be there")
        typist = node.base / "typist.py"
        typist.write_text(
            "import os, pty, time\n"
            "pid, keys = pty.fork()\n"
            "if pid == 0:\n"
            "    while True: os.read(0, 10)\n"
            f"open('{node.base}/typing', 'w').close()\n"
            "while True:\n"
            "    os.write(keys, b'x\\n')\n"
            "    time.sleep(0.02)\n"
        )
        await cluster.run(scheduler, f"exec {sys.executable} {typist}\n".encode())
        await until((node.base / "typing").exists, "the job to type")
        for _ in range(30):
            scheduler.beats.pop("a", None)
            await until(lambda: "a" in scheduler.beats, "a heartbeat")
            # On a machine that stands still for seconds the guard may arm by itself meanwhile: that says nothing of
            # who is there.
            assert scheduler.beats["a"].presence is Presence.AWAY, scheduler.beats["a"]


PLACES = {"terminals": "/dev/pts", "input": "/dev/input", "sessions": "/run/systemd/sessions"}


@pytest.mark.parametrize("failing", [["input"], list(PLACES)], ids=" ".join)
async def test_sources_that_fail_are_named_and_the_desk_counts_as_occupied(
    cluster: Cluster, failing: Sequence[str]
) -> None:
    """Where a directory should be that a source reads, there is a file. The others are as they are without it."""
    node = cluster.node("a", start=False, presence="poll_s = 0.2\naway_after_s = 0.5\nbusy_cpus = 1e6")
    node.broken(*(PLACES[each] for each in failing))
    node.start_guard()
    node.start_agent()
    async with cluster.scheduler() as scheduler:
        await until(lambda: bool(getattr(scheduler.beats.get("a"), "blind", ())), "a source to fail")
        told = {f"{each}: {PLACES[each]}: Not a directory" for each in failing}
        assert set(scheduler.beats["a"].blind) == told
        await until(lambda: scheduler.beats["a"].presence_source.startswith(failing[0]), "the source to be named")
        assert scheduler.beats["a"].presence is Presence.UNKNOWN
        assert scheduler.beats["a"].armed


async def test_agent_gives_way_to_others_and_tells_the_use_of_each_side(cluster: Cluster) -> None:
    node = cluster.node("a")
    desk = [Path("/sys/fs/cgroup") / tree / node.group / "desk" for tree in ("cpuacct", "memory")]
    async with cluster.scheduler() as scheduler:
        await until(lambda: "a" in scheduler.beats, "a heartbeat")
        assert node.agent is not None
        assert node.guard is not None
        if slices.slice_ns():  # else this kernel has one slice for all
            assert slices.slice_ns(node.agent.pid) == slices.slice_ns(node.guard.pid) == slices.LONGEST_NS
        for group in desk:
            group.mkdir(parents=True, exist_ok=True)
        await cluster.run(scheduler, b"while :; do :; done\n")
        await until(lambda: scheduler.beats["a"].usage.cpu_parallel > 0.05, "the job's use to be seen")
        usage = scheduler.beats["a"].usage
        assert usage.cpu_local == 0
        assert usage.memory_local_bytes == 0
        assert usage.memory_parallel_bytes > 0
        assert usage.memory_free_bytes > 0
        assert usage.load_1min >= 0


def at_desk(node: Node, **request: object) -> dict[str, Any]:
    """What the guard of a node answers at the desk's socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.settimeout(30)
        connection.connect(str(node.run / "desk.sock"))
        connection.send(json.dumps(request).encode())
        answer: dict[str, Any] = json.loads(connection.recv(65536))
        return answer


async def test_the_owners_word_is_told_at_each_change_and_first_of_all_after_a_welcome(cluster: Cluster) -> None:
    node = cluster.node("a")
    async with cluster.scheduler() as scheduler:
        await until(lambda: "a" in scheduler.beats, "a heartbeat")
        assert scheduler.got == [], "nothing was said"
        await cluster.run(scheduler, b"exec sleep 1000\n")
        assert at_desk(node, do="ban", user="bob")["ok"]
        assert at_desk(node, do="share", cpu_ratio=0.25)["ok"]
        await scheduler.next("a", wire.OwnersWord, bans=("bob",), cpu_ratio=0.25)
        scheduler.got.clear()
        assert at_desk(node, do="end", job=5)["ended"] == [5]
        kinds = (wire.OwnersWord, wire.ProgramEnded)  # else the scheduler would take it for the script's own failure
        told = await until(lambda: sum(isinstance(m, kinds) for _, m in scheduler.got) > 1 and scheduler.got, "both")
        assert [type(message) for _, message in told if isinstance(message, kinds)][:2] == list(kinds)
        await scheduler.next("a", wire.OwnersWord, ended=((5, 1),))
        ended = await scheduler.next("a", wire.ProgramEnded)
        assert ended.exit.cause == "owner"
    later = cluster.scheduler(epoch=2)
    async with later:
        await until(lambda: later.got, "a message")
        assert later.got[0] == ("a", wire.OwnersWord(0.25, ("bob",), ((5, 1),)))


async def test_a_film_that_the_helper_in_the_session_tells_of_is_presence(
    cluster: Cluster, desk: tuple[Node, Callable[[], None]]
) -> None:
    node, _ = desk
    async with cluster.scheduler() as scheduler:
        await until(lambda: away(scheduler.beats.get("a")), "nobody to be there")
        assert at_desk(node, do="inhibited", seconds=60) == {"ok": True}
        await until(lambda: scheduler.beats["a"].presence is Presence.PRESENT, "the film to be seen")
        assert scheduler.beats["a"].presence_source == "sessions"
        await until(lambda: scheduler.beats["a"].armed, "the limits")
