"""The model of the guard, with which the agent's core is tested, promises what the guard does: both are asked alike."""

from typing import Any

import pytest
from kit.agent_world import prepare
from kit.desk_socket import desk
from kit.guards import RealGuard
from kit.waiting import wait_for

from cosched.wire import messages as wire
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.guard_model import GuardModel
from node_agent.core.replies import Done
from node_agent.guard.base.client import GuardRefused

KEY = (1, 1)
ORDER = prepare(wire.Fence("c", 1, "i"), wire.OrderId(*KEY, 1))
#: What is asked, or happens, and what both are to say: a reply's code, or the events that follow.
STEPS: list[tuple[str, Any]] = [
    ("spawn 0", "unknown"),
    ("kill", "unknown"),
    ("forget", "unknown"),
    ("resize 3", "unknown"),
    ("prepare", "done"),
    ("prepare", "done"),
    ("spawn 0", "done"),
    ("spawn 0", "busy"),
    ("prepare", "busy"),
    ("forget", "busy"),
    ("resize 3", "done"),
    ("resize 3", "done"),
    ("resize 2", "stale"),
    ("resize 4", "done"),
    ("report", [True, 0]),
    ("0 ends", [("exited", 0, 3), ("empty",)]),
    ("report", [False, 0]),
    ("spawn 0", "busy"),
    ("spawn 1", "done"),
    ("kill", "done"),
    ("dies", [("exited", 1, None), ("empty",)]),
    ("spawn 2", "stale"),
    ("resize 5", "stale"),
    ("prepare", "busy"),
    ("kill", "done"),
    ("dies", [("empty",)]),
    ("report", [False, 0, 1]),
    ("forget", "done"),
    ("forget", "unknown"),
    ("report", []),
    ("pause", "done"),
    ("prepare", "paused"),
    ("resume", "done"),
    ("prepare", "done"),
    ("pause", "done"),
    ("prepare", "done"),
    ("spawn 0", "paused"),
    ("kill", "done"),
    ("dies", [("empty",)]),
    ("spawn 0", "stale"),
    ("forget", "done"),
    ("resume", "done"),
]


class Model:
    def __init__(self) -> None:
        self.guard = GuardModel()

    def ask(self, request: fx.GuardRequest) -> str:
        reply = self.guard.ask(request)
        return "done" if isinstance(reply, Done) else reply.code  # type: ignore[union-attr]

    def pause(self, why: str) -> str:
        self.guard.paused = why
        return "done"

    def end(self) -> None:
        self.guard.end(KEY, wire.Exit(3))

    def events(self, count: int) -> list[Any]:
        self.guard.carry_out_kills()
        found: list[Any] = []
        for event in self.guard.events():
            ended = isinstance(event, happened.CommandEnded)
            found.append(("exited", event.n, event.exit.status) if ended else ("empty",))  # type: ignore[union-attr]
        return found

    def report(self) -> list[Any]:
        return [each for group in self.guard.report().groups for each in (group.alive, *(c.n for c in group.commands))]


class Real:
    def __init__(self, guard: RealGuard) -> None:
        self.guard = guard

    def ask(self, request: fx.GuardRequest) -> str:
        job = {"job": KEY[0], "attempt": KEY[1]}
        guard = self.guard
        try:
            if isinstance(request, fx.PrepareGroup):
                guard.prepare(*KEY)
            elif isinstance(request, fx.Spawn):
                go = guard.work / "go"
                guard.shell(f"until [ -e {go} ]; do sleep 0.02; done; rm {go}; exit 3", n=request.n)
            elif isinstance(request, fx.ResizeGroup):
                share = {"n": request.n, "tasks": request.tasks, "cpus": request.cpus, "asleep": False}
                guard.ask({"do": "resize", **job, **share})
            elif isinstance(request, fx.KillGroup):
                guard.ask({"do": "kill", **job, "grace_us": request.grace_us})
            else:
                guard.ask({"do": "forget", **job})
        except GuardRefused as error:
            return error.code
        return "done"

    def pause(self, why: str) -> str:
        return "done" if bool(desk(self.guard, "pause" if why else "resume")["paused"]) == bool(why) else "not done"

    def end(self) -> None:
        (self.guard.work / "go").touch()

    def events(self, count: int) -> list[Any]:
        found: list[Any] = []
        client = self.guard._clients[-1]

        def enough() -> bool:
            while (message := client.receive()) is not None:
                kind = message.get("event")
                if kind in {"exited", "empty"}:
                    found.append((kind, message["n"], message["status"]) if kind == "exited" else (kind,))
            return len(found) >= count

        wait_for(enough, f"{count} events")
        return found

    def report(self) -> list[Any]:
        alive = {"preparing", "running", "ending"}
        return [
            each
            for group in self.guard.ask({"do": "list"})["groups"]
            for each in (group["state"] in alive, *sorted(command["n"] for command in group["commands"]))
        ]


def said(guard: Model | Real) -> list[Any]:
    found: list[Any] = []
    for step, expected in STEPS:
        word, _, number = step.partition(" ")
        if word == "report":
            found.append(guard.report())
        elif isinstance(expected, list):
            if step == "0 ends":
                guard.end()
            found.append(guard.events(len(expected)))
        elif word in {"pause", "resume"}:
            found.append(guard.pause("ann has paused" if word == "pause" else ""))
        elif word == "prepare":
            found.append(guard.ask(fx.PrepareGroup(KEY, ORDER)))
        elif word == "spawn":
            found.append(guard.ask(fx.Spawn(KEY, int(number), ORDER, ("sh",))))
        elif word == "resize":
            found.append(guard.ask(fx.ResizeGroup(KEY, int(number), 1, 1)))
        else:
            found.append(guard.ask(fx.KillGroup(KEY, 0) if word == "kill" else fx.ForgetGroup(KEY)))
    return found


@pytest.fixture(name="wanted")
def _wanted() -> list[Any]:
    return [expected for _, expected in STEPS]


def test_the_model(wanted: list[Any]) -> None:
    assert said(Model()) == wanted


def test_the_guard(guard: RealGuard, wanted: list[Any]) -> None:
    assert said(Real(guard)) == wanted
