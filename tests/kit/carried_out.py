"""A machine under a policy whose decisions are carried out at once: nodes launch, resize and end what they are told."""

from typing import Any

from cosched.model.job import Job, JobState
from cosched.model.node import Node
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Instruction, Kill, Resize, Start
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.plugins import resolve
from space_scheduler.policy.interface import Policy

S = 1_000_000


class Machine:
    """Named nodes of so many processors, or counted ones, under a policy; whatever it decides is carried out."""

    def __init__(
        self,
        *nodes: int,
        policy: str | Policy = "equipartition",
        memory: int = 100,
        procs: int = 0,
        clusters: str = "",
        ends_killed: bool = False,
        **rules: object,
    ) -> None:
        """``clusters``: the cluster of each node, a letter each; none given: all are of one."""
        self.ends_killed = ends_killed
        self.state = SchedulerState(
            resolve(policy) if isinstance(policy, str) else policy,
            MachineRules(**rules),  # type: ignore[arg-type]
        )
        self.told: list[Instruction] = []
        labs = clusters or "-" * len(nodes)
        joined: list[ev.Event] = [
            ev.NodeJoined(Node(name, n, memory, cluster=lab))
            for name, n, lab in zip("abcdef", nodes, labs, strict=False)
        ]
        self.happen(0, *(joined or [ev.NodesJoined(procs)]))

    def happen(self, at_s: int, *events: ev.Event) -> None:
        todo: list[Any] = [*events, ev.Boundary()]
        while todo:
            instructions = self.state.handle(todo.pop(0), at_s * S)
            self.told += instructions
            for each in instructions:
                if isinstance(each, Start):
                    todo.append(ev.JobLaunched(each.job.id))
                elif isinstance(each, Resize):
                    todo += [ev.JobResized(each.job_id), ev.Boundary()]
                elif isinstance(each, Kill) and self.ends_killed:
                    todo += [ev.JobEnded(each.job_id, JobState.CANCELLED), ev.Boundary()]
        self.state.validate()

    def submit(self, at_s: int, *jobs: Job) -> None:
        self.happen(at_s, *(ev.JobSubmitted(job) for job in jobs))

    def holds(self, job_id: int) -> list[tuple[str, int, int]]:
        """(node, processes, those that are enabled) of a job."""
        held = self.state.records[job_id].allocation
        assert held is not None
        return [(share.node, share.tasks, share.procs) for share in held.nodes]
