"""Whoever keeps the desk's socket busy: the switch of those who decide answers, and it costs next to nothing."""

import json
import os
import pwd
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from kit.floods import STRANGERS, asking, cpu_s, holding, strangers
from kit.guards import RealGuard
from kit.waiting import BOUND_S, wait_for

from node_agent.guard.base.budget import Budget
from node_agent.guard.base.loop import Loop
from node_agent.guard.desk.doors import DeskDoors

PACKETS = socket.SOCK_SEQPACKET


def desk(guard: RealGuard, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"COSCHED_DESK_SOCKET": f"{guard.directory}/run/desk.sock"}
    command = [sys.executable, "-m", "cosched.apps.cli.main", "desk", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BOUND_S, check=False)


def own_door(guard: RealGuard, uid: int) -> Path:
    return guard.directory / f"run/desk/{uid}.sock"


def test_guests_of_strangers_keep_nobody_from_the_switch(guard: RealGuard) -> None:
    """60 connections that say nothing, renewed as they are closed: more than there are places."""
    path = f"{guard.directory}/run/desk.sock"
    with strangers(holding(path, PACKETS, 20)):
        paused = desk(guard, "pause", "--json")
        assert paused.returncode == 0, paused.stderr
        assert json.loads(paused.stdout)["paused"] == "root has paused parallel work at this desk"
        assert desk(guard, "resume").returncode == 0


def test_who_decides_has_a_door_that_no_stranger_can_knock_at(make_guard: Any) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: a desk user who is somebody else")
    guard = make_guard(start=False)
    guard.config["security"]["desk_users"] = ["daemon", "no-such-user"]
    guard.start()
    daemon = pwd.getpwnam("daemon").pw_uid
    for uid in (0, daemon):
        status = wait_for(lambda: own_door(guard, uid).exists() and own_door(guard, uid).stat(), "the door")  # noqa: B023
        assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (uid, 0o600)
    with socket.socket(socket.AF_UNIX, PACKETS) as connection:
        os.seteuid(STRANGERS[0])
        try:
            with pytest.raises(PermissionError):
                connection.connect(str(own_door(guard, daemon)))
        finally:
            os.seteuid(0)
    assert guard.stop() == 0
    assert not own_door(guard, 0).parent.exists()
    guard.start()


def test_asking_at_full_speed_costs_the_guard_a_hundredth_of_a_cpu(guard: RealGuard) -> None:
    assert guard.process is not None
    wait_for(own_door(guard, os.geteuid()).exists, "the guard to be there")
    before_s, began_s = cpu_s(guard.process.pid), time.monotonic()
    with strangers(asking(f"{guard.directory}/run/desk.sock", PACKETS, b'{"do": "status"}')):
        wait_for(lambda: time.monotonic() > began_s + 2.0, "two seconds of it")
        paused = desk(guard, "pause")
        assert paused.returncode == 0, paused.stderr
    used_s, took_s = cpu_s(guard.process.pid) - before_s, time.monotonic() - began_s
    # everybody's socket, root's own, what each may use at once, two ticks of the kernel's account
    assert used_s <= 2 * (0.01 * took_s + 0.05) + 0.02, f"{used_s:.2f} s of CPU in {took_s:.1f} s"
    assert guard.errors() == ""


def test_a_budget_is_a_share_of_the_time_that_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = [0]
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns[0])
    budget = Budget(0.01, 50_000)
    assert budget.rest_us() == 0
    spent_us = 0
    while now_ns[0] < 60 * 10**9:
        if rest_us := budget.rest_us():
            now_ns[0] += rest_us * 1000
        else:
            budget.spend(700_000)
            spent_us += 700
    assert 600_000 <= spent_us <= 600_000 + 50_000 + 2_700
    now_ns[0] += 3600 * 10**9
    budget.spend(49_000_000)  # an hour of silence is worth no more than was there at first
    assert budget.rest_us() == 0
    budget.spend(2_000_000)
    assert budget.rest_us() == pytest.approx(300_000, rel=0.01)


class Turns:
    """In place of the guard's loop: callbacks by descriptor, called when a test says so."""

    def __init__(self) -> None:
        self.callbacks: dict[int, Callable[[], object]] = {}

    def watch(self, fd: int, callback: Callable[[], object], **_: object) -> None:
        self.callbacks[fd] = callback

    def unwatch(self, fd: int) -> None:
        self.callbacks.pop(fd, None)


class DeskSockets:
    """The desk's sockets in this process, and connections to them."""

    def __init__(self, run: Path, deciders: set[int]) -> None:
        self.run, self.loop = run, Turns()
        self.doors = DeskDoors(cast(Loop, self.loop), str(run), lambda packet, peer: b"answer to " + packet)
        (self.public,) = self.loop.callbacks
        self.doors.open_for(deciders)
        self.listening = {*self.loop.callbacks}
        self.connected: list[socket.socket] = []

    def connect(self, name: str = "desk.sock", uid: int = 0) -> socket.socket:
        """A connection of that user's, not accepted yet."""
        made = socket.socket(socket.AF_UNIX, PACKETS)
        self.connected.append(made)
        before = os.geteuid()
        os.seteuid(uid or before)
        try:
            made.connect(str(self.run / name))
        finally:
            os.seteuid(before)
        made.setblocking(False)
        return made

    def accepted(self, *uids: int) -> list[socket.socket]:
        """A connection of each of these users at everybody's socket, accepted in this order."""
        made = []
        for uid in uids:
            made.append(self.connect(uid=uid))
            self.loop.callbacks[self.public]()
        return made

    def hear(self) -> None:
        """A turn of the loop for all connections that were accepted."""
        for fd in self.loop.callbacks.keys() - self.listening:
            self.loop.callbacks[fd]()


def is_open(connection: socket.socket) -> bool:
    try:
        return bool(connection.recv(64))
    except BlockingIOError:
        return True


@contextmanager
def sockets_for(deciders: set[int]) -> Iterator[DeskSockets]:
    """The desk's sockets, in a directory that all users reach."""
    with TemporaryDirectory(prefix="cosched-desk-") as run:
        Path(run).chmod(0o711)
        made = DeskSockets(Path(run), deciders)
        yield made
        made.doors.close()
        for each in made.connected:
            each.close()


def test_uid_has_two_places_and_full_desk_evicts_no_decider() -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root: connections of several users")
    with sockets_for({0}) as desk:
        mine = desk.accepted(*[STRANGERS[0]] * 3)
        assert [is_open(each) for each in mine] == [True, True, False]
        (root,) = desk.accepted(0)
        others = desk.accepted(*[uid for uid in range(61010, 61017) for _ in range(2)])
        (last,) = desk.accepted(61017)
        assert [is_open(each) for each in (mine[0], mine[1], *others, root, last)] == [False] + [True] * 17


def test_deciders_flood_of_the_public_socket_evicts_nothing_at_its_own() -> None:
    uid = os.geteuid()
    with sockets_for({uid}) as desk:
        asking = desk.connect(f"desk/{uid}.sock")
        (own,) = desk.listening - {desk.public}
        desk.loop.callbacks[own]()
        desk.accepted(*[uid] * 8)
        asking.send(b"pause")
        desk.hear()
        assert asking.recv(64) == b"answer to pause"


def test_silent_connection_is_closed_after_its_timeout() -> None:
    with sockets_for(set()) as desk:
        (silent,) = desk.accepted(os.geteuid())
        due_us = desk.doors.due_us()
        assert due_us is not None
        desk.doors.tick(due_us - 1)
        assert is_open(silent)
        desk.doors.tick(due_us)
        assert not is_open(silent)
        assert desk.doors.due_us() is None
        assert all(is_open(each) for each in desk.accepted(*[os.geteuid()] * 2)), "its place is free again"
