"""Drive the machine by hand: events in seconds, instructions as text, every invariant walked after each step."""

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import Job, JobState
from cosched.model.node import Node, Owner
from cosched.model.time import FOREVER_US, plain_seconds
from kit.loads import SECOND
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Instruction, Kill, RateChanged, Resize, SetAside, SetTimer, Start, Tell
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Policy
from space_scheduler.policy.presets import PRESETS, compose
from space_scheduler.progress import Sharing
from space_scheduler.reasons import Reason

#: What a contract leaves to parallel work beside an owner.
OWNED_CPU_PERMILLE = 500
Size = tuple[int] | tuple[int, int] | tuple[int, int, int]  # processors, and memory and CPUs where they matter


def policy_named(name: str) -> Policy:
    """A preset's name, or a selection in order of arrival."""
    preset = PRESETS.get(name)
    return compose(preset.order, preset.select, preset.place, preset.mpl) if preset else compose("fcfs", name)


def happen(state: SchedulerState, at_s: int, *events: ev.Event) -> list[Instruction]:
    """Take in events and the end of their batch; starts are launched, nothing is resized."""
    told: list[Instruction] = []
    for event in (*events, ev.Boundary()):
        told += state.handle(event, at_s * SECOND)
    for each in told:
        if isinstance(each, Start):
            state.handle(ev.JobLaunched(each.job.id), at_s * SECOND)
    state.validate()
    return told


class Drive:
    """A machine and its clock. Each call is one event at the present second; ``decide`` closes the batch."""

    def __init__(
        self,
        policy: Policy | str,
        procs: int = 0,
        rules: MachineRules | None = None,
        nodes: Mapping[str, Size] | None = None,
    ) -> None:
        policy, rules = policy_named(policy) if isinstance(policy, str) else policy, rules or MachineRules()
        if getattr(policy, "place", "") and rules.sharing is None:  # as every host has it
            rules = msgspec.structs.replace(rules, sharing=Sharing(), mpl=getattr(policy, "mpl", None))
        self.state = SchedulerState(policy, rules)
        self.now_s = 0.0
        if nodes is None:
            self.join(procs)
        for name, size in (nodes or {}).items():
            self.node(name, *size)
        assert self.decide() == []

    def at(self, now_s: float) -> Self:
        self.now_s = now_s
        return self

    def handle(self, event: ev.Event) -> list[Instruction]:
        instructions: list[Any] = self.state.handle(event, round(self.now_s * SECOND))
        self.state.validate()
        assert all(instruction.cause == event for instruction in instructions)
        return instructions

    def say(self, event: ev.Event) -> list[str]:
        return said(self.handle(event))

    # events

    def submit(
        self, job_id: int, procs: int, estimate_s: float, memory: int = 0, kind: str = "", cpu_permille: int = 1000
    ) -> list[str]:
        estimate_us, now_us = round(estimate_s * SECOND), round(self.now_s * SECOND)
        job = Job(job_id, procs, estimate_us, now_us, memory_bytes=memory, kind=kind, cpu_permille=cpu_permille)
        return self.say(ev.JobSubmitted(job))

    def with_jobs(self, *asked: int | tuple[int, float]) -> Self:
        """Jobs 1, 2 and so on are submitted: for so many processors, for a minute or for so many seconds."""
        for job_id, each in enumerate(asked, start=1):
            procs, estimate_s = each if isinstance(each, tuple) else (each, 60)
            self.submit(job_id, procs, estimate_s)
        return self

    def planned(self) -> Self:
        """A pass is made, and what starts is launched."""
        self.decide_and_launch()
        return self

    def hold(self, job_id: int) -> list[str]:
        return self.say(ev.JobHeld(job_id))

    def release(self, job_id: int) -> list[str]:
        return self.say(ev.JobReleased(job_id))

    def cancel(self, job_id: int) -> list[str]:
        return self.say(ev.JobCancelled(job_id))

    def launched(self, *job_ids: int) -> list[str]:
        return [text for job_id in job_ids for text in self.say(ev.JobLaunched(job_id))]

    def launch_failed(self, job_id: int, *nodes: str, passing: bool = False) -> list[str]:
        return self.say(ev.LaunchFailed(job_id, nodes, passing))

    def ended(self, job_id: int, outcome: JobState = JobState.COMPLETED) -> list[str]:
        return self.say(ev.JobEnded(job_id, outcome))

    def join(self, procs: int) -> list[str]:
        return self.say(ev.NodesJoined(procs))

    def drain(self, procs: int) -> list[str]:
        return self.say(ev.NodesDrained(procs))

    def lose(self, procs: int, *job_ids: int) -> list[str]:
        return self.say(ev.NodesLost(procs, job_ids))

    def node(self, name: str, procs: int, memory: int = 0, cpus: int = 0) -> list[str]:
        return self.say(ev.NodeJoined(Node(name, procs, memory, cpus, OWNED_CPU_PERMILLE)))

    def owner(self, name: str, cpu_permille: int = 150, memory: int = 0) -> list[str]:
        return self.say(ev.OwnerCame(name, Owner(cpu_permille, memory)))

    def owner_left(self, name: str) -> list[str]:
        return self.say(ev.OwnerLeft(name))

    def drain_node(self, name: str, reason: str = "") -> list[str]:
        return self.say(ev.NodeDrained(name, reason))

    def resume_node(self, name: str) -> list[str]:
        return self.say(ev.NodeResumed(name))

    def lose_node(self, name: str) -> list[str]:
        return self.say(ev.NodeLost(name))

    def timer(self) -> list[str]:
        return self.say(ev.TimerDue())

    def decide(self) -> list[str]:
        return self.say(ev.Boundary())

    # what a host does at once

    def decide_and_launch(self) -> list[str]:
        """Close the batch, and report every started job as running at once."""
        instructions = self.handle(ev.Boundary())
        for instruction in instructions:
            if isinstance(instruction, Start):
                self.launched(instruction.job.id)
        return said(instructions)

    # looking

    def job_state(self, job_id: int) -> JobState:
        return self.state.records[job_id].state

    def why(self, job_id: int) -> str:
        """The explanation of a job, as its instructions would be told."""
        return _why(self.state.explain(job_id))

    def used(self) -> dict[str, tuple[str, int, int]]:
        """What each node says of itself: state, processors and memory in use."""
        return {each.node.name: (each.state, each.used_procs, each.used_memory_bytes) for each in self.state.nodes()}

    def queued(self) -> list[int]:
        return [job.id for job in self.state.queue]

    def promise_s(self, job_id: int) -> float | None:
        promise_us = self.state.records[job_id].promise_us
        return None if promise_us is None else promise_us / SECOND


def said(instructions: Iterable[Instruction]) -> list[str]:
    """Instructions as one line each, times in seconds: ``start 3 on 2 (limit 60 s): FITS, free_procs 4``."""
    return [_line(instruction) for instruction in instructions]


def _line(instruction: Instruction) -> str:
    match instruction:
        case Start(job, allocation, limit_us, _, reason):
            limit = "no limit" if limit_us is None else f"limit {plain_seconds(limit_us)} s"
            return f"start {job.id} on {_where(allocation)} ({limit}): {_why(reason)}"
        case Kill(job_id, _, reason):
            return f"kill {job_id}: {_why(reason)}"
        case SetTimer(at_us, _, reason):
            return f"timer {plain_seconds(at_us)} s: {_why(reason)}"
        case Tell(job_id, promised_us, _, reason):
            when = "nothing promised" if promised_us == FOREVER_US else f"{plain_seconds(promised_us)} s"
            return f"tell {job_id} {when}: {_why(reason)}"
        case RateChanged() | SetAside():
            return _without_reason(instruction)
        case Resize(job_id, old, new, _, reason):
            return f"resize {job_id} from {_where(old)} to {_where(new)}: {_why(reason)}"
    raise AssertionError(f"no text for {instruction}")


def _without_reason(instruction: RateChanged | SetAside) -> str:
    if isinstance(instruction, SetAside):
        return f"set aside {instruction.job_id}: {instruction.problem}"
    return f"pace {instruction.job_id} {float(instruction.rate) / 1_000_000:.3g}"


def _where(allocation: Allocation) -> str:
    """The number of processors, or the nodes, with the tasks on each where they are more than one."""
    shares = allocation.nodes
    names = [share.node if share.tasks == 1 else f"{share.node}×{share.tasks}" for share in shares]
    return " ".join(names) if names else str(allocation.procs)


def _why(reason: Reason) -> str:
    named = [f"node {reason.node}"] if reason.node else []
    return ", ".join([reason.why.name, *named, *(_number(name, value) for name, value in reason.numbers.items())])


def _number(name: str, value: int) -> str:
    return f"{name[:-3]} {plain_seconds(value)} s" if name.endswith("_us") else f"{name} {value}"
