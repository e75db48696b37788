"""A node's guard in virtual time: the model of its promises, and the scripts that it runs. It outlives its agent.

Sites: ``guard dead`` (killed, and started again by whoever keeps it), ``guard slow``, ``guard hung`` (it does nothing
for a while, and does then what it was asked meanwhile, though nobody waits for the answer any more), ``other uid`` (the
user database of the node gives a submitter's name another uid, for a while).
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from cosched.wire.messages import Exit
from faults.scripts import Scripts
from faults.stalling import Stalls
from faults.violation import Violation
from faults.world import MS, S, Sleeper, World
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.attempt import Key
from node_agent.core.replies import AWAY, Declined, Done, Reply

if TYPE_CHECKING:
    from faults.node import Node

#: After so long without a sign of its guard an agent takes it for gone (``node_agent.service.guard``).
_PATIENCE_US = 7 * S
#: None that a submitter has.
_OTHER_UID = 3_000_000_000


class Guard:
    """One node's. ``runs`` says of a job how long its script runs and how it ends."""

    def __init__(self, world: World, agent: "Node", runs: Callable[[int], tuple[int, Exit]]) -> None:
        self.world = world
        self.model = agent.model
        self.there = False  # for the agent
        self.up = True
        self.up_since_us = 0
        self.well_since_us = 0  # up, not slow, not hung
        self.ever_prepared: set[Key] = set()
        self.scripts = Scripts(world, self._script_ends)
        self.stalls = Stalls(world, self, agent.model, agent.machine.do)
        self.other_uids: dict[str, int] = {}  # what the node's user database says of names, where it is another uid
        self._agent = agent
        self._machine = agent.machine
        self._runs = runs
        self._connection = 0  # which one of its agents' it is
        self._process = 1  # which guard it is
        self._does = Sleeper(world)  # hung
        self._free_us = 0  # until when what it was asked is answered in order

    # its life

    def comes(self, life: int) -> None:
        """The agent of that life finds it, when it has done what it was asked before."""
        if self.there or not self.up or self._does.stands_still:
            return
        if self._free_us > self.world.now_us:
            self.world.at(self._free_us, partial(self.comes, life))
            return
        self._connection += 1
        self.there = True
        self._agent.hears_guard(self.model.report(), life)

    def lost(self) -> None:
        """The agent that was connected is gone."""
        self.there = False
        self._connection += 1

    def dies(self) -> None:
        """It is killed, and started again by whoever keeps it; its groups stay."""
        if not self.up:
            return
        self.up = False
        self._process += 1
        self._free_us = 0
        self._does = Sleeper(self.world)
        self._lose("it is away")
        self.world.after(self.world.draw_us(50 * MS, 12 * S), partial(self._machine.do, self._starts))

    def _starts(self) -> None:
        if self.up:
            return  # the machine was started anew meanwhile, and it with that
        self.up = True
        self.up_since_us = self.well_since_us = self.world.now_us
        self.stalls.guard_starts()
        self.comes(self._agent.life)

    def hangs(self, for_us: int) -> None:
        """It does nothing for so long; its agent takes it for gone after a while."""
        self._agent.say(f"its guard hangs for {for_us / S:.1f} s")
        self._does.stand_still(for_us)
        self.unwell(for_us)
        connection, process = self._connection, self._process
        if self.there and for_us > _PATIENCE_US:
            self.world.after(_PATIENCE_US, lambda: self._missed(connection))
        self.world.after(for_us + MS, lambda: self.comes(self._agent.life) if self._process == process else None)

    def unwell(self, for_us: int) -> None:
        """It is slow, or does nothing, for so long."""
        self.well_since_us = max(self.well_since_us, self.world.now_us + for_us)

    @property
    def does_nothing(self) -> bool:
        """Whether it hangs, or is not there."""
        return not self.up or self._does.stands_still

    def _missed(self, connection: int) -> None:
        if self._connection == connection and self._does.stands_still:
            self._lose("it has not answered")

    def _lose(self, why: str) -> None:
        if self.there:
            self.lost()
            self._agent.hears_guard(happened.GuardLost(why), self._agent.life)

    def reboot(self) -> None:
        """The machine goes down: nothing that ran is left. It comes back with the machine."""
        self.lost()
        self._process += 1
        self._free_us = 0
        self._does = Sleeper(self.world)
        self.up = False
        self.scripts.clear()
        self.stalls.clear()
        self.model.reboot()

    def booted(self) -> None:
        """The machine is up again."""
        self.up = True
        self.up_since_us = self.well_since_us = self.world.now_us

    # what it is asked

    def ask(self, number: int, request: fx.GuardRequest) -> None:
        """The agent of now asks; the reply comes later."""
        world, life = self.world, self._agent.life
        if not self.there:
            world.after(
                0, lambda: self._agent.hears_guard(happened.Replied(number, Declined(AWAY, "it is away")), life)
            )
            return
        delay_us = world.draw_us(100, 2 * MS)
        if world.fault("guard slow"):
            slow_us = world.draw_us(100 * MS, 6 * S)
            delay_us += slow_us
            self.unwell(slow_us)
        # asked and answered in order, as one socket does
        self._free_us = max(self._free_us, world.now_us, self._does.until_us) + delay_us
        obey = partial(self._obey, life, self._connection, self._process, number, request)
        world.at(self._free_us, lambda: self._machine.do(lambda: self._does.do(obey)))

    def _obey(self, life: int, connection: int, process: int, number: int, request: fx.GuardRequest) -> None:
        if self._process != process:
            return  # it was not heard
        if self.world.fault("guard dead"):
            self.dies()
            return
        if isinstance(request, fx.PrepareGroup) and self.world.fault("other uid"):
            self._changes_uid(request.prepare.user)
        answer = partial(self._answer, life, connection, process, number)
        if isinstance(request, fx.Spawn) and self.stalls.holds_up(request, answer):
            self._agent.say(f"asks its guard: {type(request).__name__} {request.key}: held up")
            return
        reply = self.model.ask(request)
        self._agent.say(f"asks its guard: {type(request).__name__} {request.key}: {reply}")
        if isinstance(reply, Done):
            self._done(request)
        if self.world.fault("guard dead"):  # it has obeyed, and nobody is told
            self.dies()
        elif self._connection == connection:
            self._reply(life, number, reply)

    def _changes_uid(self, user: str) -> None:
        self.other_uids[user] = self.model.uids[user] = _OTHER_UID
        self.world.after(self.world.draw_us(S, 20 * S), partial(self._restores_uid, user))

    def _restores_uid(self, user: str) -> None:
        self.other_uids.pop(user, None)
        self.model.uids.pop(user, None)

    def _done(self, request: fx.GuardRequest) -> None:
        if isinstance(request, fx.PrepareGroup):
            if request.key not in self.ever_prepared and request.prepare.user in self.other_uids:
                raise Violation(f"O16: {request.key} is prepared on {self._agent.name} for another uid of that name")
            self.ever_prepared.add(request.key)
        elif isinstance(request, fx.Spawn):
            self.began(request)
        elif isinstance(request, fx.KillGroup):
            self.world.after(self.world.draw_us(MS, 1500 * MS), lambda: self._machine.do(self.killed))

    def began(self, request: fx.Spawn) -> None:
        """A script runs."""
        self._agent.say(f"runs the script of {request.key}")
        self._agent.script_started(request.key)
        work_us, how = self._runs(request.key[0])
        self.scripts.start(request.key, work_us, how, request.prepare.limit_us)
        self.stalls.begins(request.key)

    def _answer(self, life: int, connection: int, process: int, number: int, reply: Reply) -> None:
        """What the guard that was asked over that connection answers later."""
        if self._process == process and self._connection == connection:
            self._reply(life, number, reply)

    def do(self, happens: Callable[[], None]) -> None:
        """Have the guard that there is then do something, when it does anything."""
        self._machine.do(lambda: self._does.do(lambda: happens() if self.up else None))

    def tells(self, event: happened.Input) -> None:
        """Tell the agent, if one listens."""
        if self.there:
            self._agent.hears_guard(event, self._agent.life)

    def say(self, what: str) -> None:
        """A line of the history."""
        self._agent.say(what)

    def _reply(self, life: int, number: int, reply: Reply) -> None:
        self._agent.hears_guard(happened.Replied(number, reply), life)

    # what happens to what runs

    def _script_ends(self, key: Key, how: Exit) -> None:
        self._agent.judge.ended(self._agent, key)
        self.model.end(key, how)
        self._pass_on()

    def killed(self) -> None:
        """What was to be killed is dead, if it hears that."""
        self.model.carry_out_kills()
        for key, group in self.model.groups.items():
            if not group.running:
                self.scripts.end(key)
        self._pass_on()

    def _pass_on(self) -> None:
        """What the guard has to tell, if anybody listens; if not, it is in its next report."""
        if self.there and not self._does.stands_still:
            for event in self.model.events():
                self._agent.hears_guard(event, self._agent.life)
        elif self.there:
            self.world.at(self._does.until_us, self._pass_on)

    def pause(self, why: str) -> None:
        """Somebody at the desk wants no parallel work: all that runs stops, nothing new starts."""
        self.model.paused = why
        self.scripts.hold()

    def resume(self) -> None:
        """Parallel work goes on; time limits did not run meanwhile."""
        self.model.paused = ""
        self.scripts.go_on(time_counts=False)
