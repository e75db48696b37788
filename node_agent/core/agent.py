"""The agent's side of the launch protocol, without input or output: what happens goes in, effects come out.

A shell hands in what happens, one input at a time, and carries the effects out in order (``effects``). What the guard
says, answers and events, it hands in in the order in which the guard said it. Times are in microseconds since boot.
"""

from collections.abc import Iterable

import msgspec

from cosched.model.coscheduling import Receives
from cosched.wire.messages import Fence, GroupReport, JobsHeld, JobSigns
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.attempt import Attempt, key_name
from node_agent.core.fence import welcome_problem
from node_agent.core.groups import GroupRules
from node_agent.core.maps import adapted, ranks_asked, shown
from node_agent.core.memory import Memory
from node_agent.core.orders import obey, order_key
from node_agent.core.replies import AWAY, Declined, Done, Reply
from node_agent.core.reshaping import opened
from node_agent.core.takeover import TakeOver
from node_agent.core.works import GuardWait, Refusal, Steps, Works


class AgentCore:
    """All rules of one node's agent about attempts at jobs, the guard that holds them, and who gives orders."""

    def __init__(self, node: str, boot_id: str, fence: Fence | None = None, attempts: Iterable[Attempt] = ()) -> None:
        """``fence`` and ``attempts`` are what was kept by the agent before, if there was one."""
        self._memory = Memory(node, boot_id, fence, attempts)
        self.attempts: Iterable[Attempt] = self._memory  # all that are known, as they are whenever it is iterated
        self.lease = self._memory.lease  # how long the scheduler has been silent
        self._works = Works(self._memory)
        self._groups = GroupRules(self._memory)
        self._take_over = TakeOver(self._memory, self._groups, self._works)
        self._lease_us = 0  # what the scheduler that was welcomed last says

    # --- what can be asked of it --------------------------------------------------------------------------------------

    def get(self, job_id: int, attempt: int) -> Attempt | None:
        """An attempt, if it is known."""
        return self._memory.get((job_id, attempt))

    @property
    def fence(self) -> Fence | None:
        """Whom this node obeys; None before the first welcome."""
        return self._memory.fence

    def reports(self) -> tuple[GroupReport, ...]:
        """What a scheduler is told of each attempt when the agent joins.

        One that is being prepared counts, though nothing of it may be there yet: its answer may be said while nobody
        listens, and a scheduler that wants it no more has to have it ended.
        """
        memory = self._memory
        known = tuple(each.report(memory.boot_id) for each in memory if not each.forgotten)
        begun = sorted(key for key in memory.making_ready if memory.get(key) is None)
        return (*known, *(GroupReport(*key, "found", 0) for key in begun))

    def signed(self, signs: Iterable[JobSigns], now_us: int) -> tuple[JobSigns, ...]:
        """What a heartbeat says of jobs, with what of them cannot be ended; of such an attempt always."""
        stalls = {
            key: msgspec.structs.replace(stall, for_us=max(0, now_us - since_us))
            for key, (since_us, stall) in self._memory.stalls.items()
        }
        found = [
            msgspec.structs.replace(each, stall=stalls.pop((each.job_id, each.attempt), msgspec.UNSET))
            for each in signs
        ]
        return (*found, *(JobSigns(*key, Receives.UNKNOWN.value, 0, stall=stall) for key, stall in stalls.items()))

    def held(self) -> JobsHeld:
        """What a scheduler is told with each heartbeat: what this node was told of what may run here."""
        open_here = (each for each in self._memory if each.asked_kill_us is None and not each.forgotten)
        return JobsHeld(tuple(each.held() for each in open_here))

    # --- what happens -------------------------------------------------------------------------------------------------

    def handle(self, event: happened.Input, now_us: int) -> list[fx.Effect]:
        """Take in one thing that happened; what is to be done about it, in order."""
        match event:
            case happened.Replied(number, reply):
                self._works.replied(number, reply)
            case happened.TimerDue(number):
                self._works.due(number)
            case happened.Ordered(order):
                self._works.begin(obey(self._memory, self._groups, order), ("orders", order_key(order)))
            case happened.CommandWanted():
                self._works.begin(self._command(event))
            case happened.CommandEnded(key):
                self._works.begin(self._groups.command_ended(event), ("events", key))
            case happened.GroupEmpty(key):
                self._works.begin(self._groups.group_empty(event), ("events", key))
            case happened.GroupStalled(key, since_us, stall):
                self._memory.stalls[key] = since_us, stall
            case happened.GuardReports(groups):
                self._works.begin(self._agree(groups))
            case happened.RanksAdapted():
                adapted(self._memory, event)
            case happened.RanksAsked():
                ranks_asked(self._memory, event)
            case happened.GuardLost(problem):
                self._memory.guard_there, self._memory.guard_problem = False, problem
                self._works.reply_to_all(fx.GuardRequest, Declined(AWAY, problem))
            case _:
                self._take_from_scheduler(event, now_us)
        effects, self._memory.effects = self._memory.effects, []
        return effects

    def _take_from_scheduler(self, event: happened.Input, now_us: int) -> None:
        memory = self._memory
        match event:
            case happened.Heard():
                memory.lease.heard_us = now_us
            case happened.LeaseLooked():
                if memory.lease.over(now_us):
                    memory.effects.append(fx.HangUp(f"nothing heard for {memory.lease.lease_us / 1e6:g} s"))
            case happened.Welcomed(fence, lease_us):
                self._welcomed(fence, lease_us, now_us)
            case happened.FenceKept(fence):
                self._obeyed(fence, now_us)
            case happened.Joined():
                memory.effects += [fx.Tell(told) for attempt in memory for told in attempt.events()]
            case happened.Removed(by):
                obeyed = memory.fence
                if obeyed and by.cluster_id == obeyed.cluster_id and by.epoch >= obeyed.epoch:
                    self._take_over.begin("")

    def _welcomed(self, fence: Fence, lease_us: int, now_us: int) -> None:
        if problem := welcome_problem(self._memory.fence, fence):
            self._memory.effects.append(fx.HangUp(problem))
            return
        self._lease_us = lease_us
        if fence == self._memory.fence:
            self._obeyed(fence, now_us)
        else:
            self._memory.effects.append(fx.KeepFence(fence))

    def _obeyed(self, fence: Fence, now_us: int) -> None:
        self._memory.fence = fence
        self.lease.lease_us, self.lease.heard_us = self._lease_us, now_us
        self._take_over.begin(fence.cluster_id)

    def _agree(self, reports: tuple[happened.Group, ...]) -> Steps[None]:
        yield from self._groups.agree(reports)
        self._memory.guard_there = True
        self._works.reply_to_all(GuardWait, Done())
        alive = {each.key for each in reports if each.alive}
        for attempt in self._memory:
            self._works.begin(self._groups.end_again(attempt, alive))
            if attempt.open and attempt.map is not None:
                self._works.begin(shown(attempt, attempt.map))

    def _command(self, wanted: happened.CommandWanted) -> Steps[None]:
        """A command beside the script; what became of it is its caller's business."""
        memory = self._memory
        try:
            attempt, prepare = opened(memory.get(wanted.key), f"job {key_name(*wanted.key)}")
            attempt = memory.keep(attempt, commands=attempt.commands + 1, empty=None)
            reply: Reply = yield fx.Spawn(wanted.key, attempt.commands, prepare, wanted.argv, stream=wanted.stream)
        except Refusal as error:
            reply = Declined(error.code, str(error))
        memory.effects.append(fx.AnswerCommand(wanted.number, reply))
