"""Scripts: any numbers become a legal life of a machine, so that the same life can be lived twice."""

from collections.abc import Iterator
from random import Random

from msgspec import structs

from cosched.model.coscheduling import Receives
from cosched.model.job import Job, JobState
from cosched.model.node import Node
from space_scheduler.machine import events as ev
from space_scheduler.machine.instructions import Instruction
from space_scheduler.machine.programs import KINDS
from space_scheduler.machine.rules import MachineRules
from space_scheduler.machine.state import SchedulerState
from space_scheduler.policy.interface import Policy

Step = tuple[int, ev.Event]

HOLDING = (JobState.STARTING, JobState.RUNNING, JobState.ENDING)
OUTCOMES = (JobState.COMPLETED, JobState.FAILED, JobState.TIMED_OUT, JobState.NODE_LOST)
SIZES = ((1, 4), (2, 4), (2, 8), (3, 8), (4, 16))


class Author:
    """Writes a script as it is lived: each event is legal in the state it meets."""

    def __init__(self, seed: int, *, named: bool) -> None:
        self.random = Random(seed)
        self.named = named
        self.now_us = 0
        self.next_job = 1
        self.timer_us: int | None = None

    def begin(self) -> Iterator[Step]:
        if self.named:
            for number in range(self.random.randint(1, 4)):
                yield self.now_us, ev.NodeJoined(Node(f"n{number}", *self.random.choice(SIZES)))
        else:
            yield self.now_us, ev.NodesJoined(self.random.randint(2, 6))
        yield self.now_us, ev.Boundary()

    def next(self, state: SchedulerState) -> Step:
        self.now_us += self.random.choice((0, 0, 0, 1, 5, 10, 30, 70_000_000))
        if self.timer_us is not None and self.timer_us <= self.now_us and self.random.random() < 0.7:
            self.timer_us = None
            return self.now_us, ev.TimerDue()
        for _ in range(20):
            if (event := self._about(state, self.random.random())) is not None:
                return self.now_us, event
        return self.now_us, ev.Boundary()

    def _about(self, state: SchedulerState, dice: float) -> ev.Event | None:
        if dice < 0.3:
            return ev.Boundary()
        if dice < 0.5:
            return self._job(state)
        if dice < 0.6:
            return self._about_nodes(state)
        kinds: dict[type[ev.JobEvent], tuple[JobState, ...]] = {
            ev.JobHeld: (JobState.QUEUED, JobState.WAITING),
            ev.JobReleased: (JobState.WAITING,),
            ev.JobCancelled: (JobState.QUEUED, JobState.WAITING, JobState.STARTING, JobState.RUNNING),
            ev.JobLaunched: (JobState.STARTING, JobState.ENDING),
            ev.JobEnded: (JobState.RUNNING, JobState.ENDING),
        }
        held_or_cancelled, of_running = list(kinds)[:3], list(kinds)[3:]
        kind = self.random.choice((*held_or_cancelled, *of_running * 3))
        jobs = [job_id for job_id, record in state.records.items() if record.state in kinds[kind]]
        held = state.machine.jobs.chain.hold.jobs
        if kind is ev.JobReleased or kind is ev.JobHeld:
            jobs = [job_id for job_id in jobs if (job_id in held) is (kind is ev.JobReleased)]
        if not jobs:
            return None
        job_id = self.random.choice(jobs)
        return ev.JobEnded(job_id, self.random.choice(OUTCOMES)) if kind is ev.JobEnded else kind(job_id)

    def _job(self, state: SchedulerState) -> ev.Event | None:
        memory = self.random.choice((0, 0, 1, 2, 4)) if self.named else 0
        procs, estimate_us = self.random.randint(1, 5), self.random.choice((10, 20, 30, 50))
        job = Job(self.next_job, procs, estimate_us, self.now_us, memory_bytes=memory)
        if state.refusal(job):
            return None
        self.next_job += 1
        return ev.JobSubmitted(job)

    def _about_nodes(self, state: SchedulerState) -> ev.Event | None:
        if not self.named:
            procs = self.random.randint(0, 2)
            return ev.NodesJoined(procs) if state.machine.capacity.procs_total < 6 else ev.NodesDrained(procs)
        node = self.random.choice(state.nodes())
        name = node.node.name
        if node.lost or self.random.random() < 0.2:
            size = self.random.choice(SIZES) if self.random.random() < 0.2 else None
            return ev.NodeJoined(Node(name, *size) if size else node.node)
        if node.drained:
            return ev.NodeResumed(name)
        return ev.NodeDrained(name, "why not") if self.random.random() < 0.5 else ev.NodeLost(name)

    def hear(self, instructions: list[Instruction]) -> None:
        for instruction in instructions:
            self.timer_us = getattr(instruction, "at_us", self.timer_us)


class Measuring(Author):
    """One whose nodes have fewer CPUs than places, and measure what runs there."""

    def begin(self) -> Iterator[Step]:
        for at_us, event in super().begin():
            yield at_us, self._fewer_cpus(event)

    def next(self, state: SchedulerState) -> Step:
        if self.random.random() < 0.25 and (event := self._measured(state)) is not None:
            return self.now_us, event
        at_us, event = super().next(state)
        if isinstance(event, ev.JobSubmitted):
            event = ev.JobSubmitted(structs.replace(event.job, program=self.random.choice(("", "p", "q"))))
        return at_us, self._fewer_cpus(event)

    @staticmethod
    def _fewer_cpus(event: ev.Event) -> ev.Event:
        return ev.NodeJoined(structs.replace(event.node, cpus=1)) if isinstance(event, ev.NodeJoined) else event

    def _measured(self, state: SchedulerState) -> ev.Event | None:
        running = [record.job for record in state.running() if record.state is JobState.RUNNING]
        if self.named and self.random.random() < 0.4:
            return ev.ClockSeen(self.random.choice(state.nodes()).node.name, self.random.random() < 0.8)
        if not running:
            return None
        job = self.random.choice(running)
        how = (Receives.POLLS,), (Receives.YIELDS,), (Receives.BLOCKS, Receives.POLLS), ()
        return self.random.choice(
            (
                ev.JobProgress(job.id, self.random.randint(0, job.estimate_us + 5)),
                ev.ProgramMeasured(job.program, self.random.choice(KINDS), self.random.randint(1, 1000)),
                ev.ReceivesSeen(job.id, self.random.choice(how)),
            )
        )


def live(
    policy: Policy, seed: int, steps: int, *, named: bool, rules: MachineRules | None = None
) -> Iterator[tuple[SchedulerState, Step, list[Instruction]]]:
    """Live a life: the machine after each event, the event with its time, and what was instructed.

    Under rules with a mode of coscheduling, its nodes measure what runs there.
    """
    state = SchedulerState(policy, rules)
    author = (Author if rules is None or rules.coscheduling is None else Measuring)(seed, named=named)
    for at_us, event in author.begin():
        yield state, (at_us, event), state.handle(event, at_us)
    for _ in range(steps):
        at_us, event = author.next(state)
        instructions = state.handle(event, at_us)
        author.hear(instructions)
        yield state, (at_us, event), instructions
