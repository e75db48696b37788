"""The person at a desk, what an agent sees of him, and what the guard makes the kernel hold: the contract's CPU limit.

Real: who counts as present (``policy.contract.judged``), whether the limit may be relaxed (``decided``), and the
guard's ``Limiter`` with its ends. Made: signs of presence, and the kernel, which keeps what was written though agent
and guard die.
Sites: ``owner`` (comes or goes), ``owner storm`` (comes and goes many times a second, and pauses), ``presence unknown``
(every source fails), ``paused`` (desk pause, at the node alone: no scheduler is asked).
"""

from collections.abc import Callable
from functools import partial

from cosched.linux.presence_reading import Reading
from cosched.model.node import Presence
from cosched.model.presets import Habit
from faults.guarding import Guard
from faults.violation import Violation
from faults.world import MS, S, Sleeper, World
from node_agent.guard.base.requests import Refusal
from node_agent.guard.base.settings import Contract
from node_agent.guard.desk.limiter import Limiter
from node_agent.policy.contract import Arm, Relax, Watched, decided, judged, unwatched

_LOOK_US = S
_KEEP_US = 3 * _LOOK_US
_HABIT = Habit(away_after_s=4.0)
#: How much later than promised the limit may hold: looks, answers and ticks of this simulation.
_SLACK_US = 1200 * MS


class Kernel:
    """Takes what the limiter writes, and keeps it."""

    kernel_groups = True

    def __init__(self) -> None:
        self.cpus: float | None = 1.0

    def cpus_above(self) -> float:
        """What the groups around the parallel side leave."""
        return float("inf")

    def set_limits(self, cpus: float | None, _idle: bool, _memory_bytes: int) -> list[str]:
        """All goes well."""
        self.cpus = cpus
        return []


class Desk:
    """One desk. ``heard_us`` says when its agent heard the scheduler last, and for how long its silence is borne."""

    limiter_type: type[Limiter] = Limiter

    def __init__(self, world: World, name: str, guard: Guard, machine: Sleeper) -> None:
        self.world = world
        self.name = name
        self.kernel = Kernel()
        self.watched = unwatched(0)
        self.paused_until_us = 0
        self.lease: Callable[[], tuple[int | None, int]] = lambda: (None, 0)
        self._guard = guard
        self._machine = machine
        self._guard_up_us = -1
        self._limiter = self._limited()
        self._agent_since_us: int | None = None  # since when it looks; None: it does not
        self._stopped_us = 0
        self._there_us: int | None = None  # since when somebody is there
        self._last_sign_us = -(1 << 40)
        self._blind_until_us = 0
        self._blind_us: int | None = None

    # what happens at it

    @property
    def somebody_is_there(self) -> bool:
        """Whether it is so, whatever is seen."""
        return self._there_us is not None

    @property
    def holds(self) -> bool:
        """Whether a pause has begun, and not ended."""
        return bool(self._guard.model.paused)

    def start(self) -> None:
        """The machine is on."""
        self._tick()

    def _tick(self) -> None:
        world = self.world
        if world.fault("owner"):
            self._move()
        if world.fault("presence unknown"):
            for_us = world.draw_us(2 * S, 10 * S)
            if world.now_us >= self._blind_until_us:
                self._blind_us = world.now_us
            self._blind_until_us = world.now_us + for_us
        if world.fault("paused"):
            self.pause(world.draw_us(2 * S, 20 * S))
        if world.fault("owner storm"):
            for at_us in range(0, world.draw_us(2 * S, 6 * S), 130 * MS):
                world.after(at_us, self._storm)
        if self.somebody_is_there:
            self._last_sign_us = world.now_us
        self._machine.do(self._guard_ticks)
        self._judge()
        world.after(_LOOK_US, self._tick)

    def _move(self) -> None:
        """The owner comes, and is seen at once, or goes."""
        if self.somebody_is_there:
            self._last_sign_us = self.world.now_us
            self._there_us = None
        else:
            self._there_us = self._last_sign_us = self.world.now_us
            self._machine.do(self.look)

    def _storm(self) -> None:
        self._move()
        if self.world.random.random() < 0.2:
            self.pause(self.world.draw_us(50 * MS, S))

    def pause(self, for_us: int) -> None:
        """Its owner wants no parallel work for so long; the guard alone is asked."""
        self._machine.do(partial(self._pause, self.world.now_us + for_us))

    def _pause(self, until_us: int) -> None:
        if self._guard.does_nothing or until_us <= self.world.now_us:
            return
        self.paused_until_us = until_us
        self._guard.pause("ann has paused parallel work at this desk")
        self.world.at(until_us, partial(self._machine.do, self._resume))

    def _resume(self) -> None:
        if self.world.now_us < self.paused_until_us:
            return  # another pause has taken its place
        if self._guard.does_nothing:  # it ends the pause when it is there
            self.world.after(S, partial(self._machine.do, self._resume))
            return
        self._guard.resume()

    # the agent

    def agent_starts(self) -> None:
        """It knows nothing yet."""
        self._agent_since_us = self.world.now_us
        self.watched = unwatched(self.world.now_us)

    def agent_stops(self) -> None:
        """It was killed, or stands still."""
        if self._agent_since_us is not None:
            self._agent_since_us, self._stopped_us = None, self.world.now_us

    def agent_goes_on(self) -> None:
        """It looks again, and knows what it knew."""
        self._agent_since_us = self.world.now_us

    def look(self) -> None:
        """The agent looks who is there, and tells the guard."""
        now_us = self.world.now_us
        if self._agent_since_us is None:
            return
        self.watched = self.seen(self.watched, self._readings(), now_us)
        if not self._guard.there or self._guard.does_nothing or now_us < self._guard.well_since_us:
            return
        heard_us, lease_us = self.lease()
        wanted = decided(self.watched.presence, heard_us, lease_us, now_us, _KEEP_US)
        self.world.after(2 * MS, partial(self._machine.do, partial(self._ask, wanted, self._guard.up_since_us)))

    def seen(self, before: Watched, readings: list[Reading], now_us: int) -> Watched:
        """Who is there, as the agent judges it."""
        return judged(before, readings, now_us, _HABIT)

    def _readings(self) -> list[Reading]:
        now_us = self.world.now_us
        if now_us < self._blind_until_us:
            return [Reading("terminals", None, "they cannot be read")]
        return [Reading("terminals", (now_us - self._last_sign_us) / S)]

    def _ask(self, wanted: Arm | Relax, guard: int) -> None:
        if self._guard.does_nothing or self._guard.up_since_us != guard:
            return
        now_us = self.world.now_us
        if isinstance(wanted, Arm):
            self._limiter.arm(now_us)
            return
        try:
            self._limiter.relax(wanted.until_us, self._limiter.epoch, now_us)
        except Refusal as refusal:
            self.world.say(f"{self.name}'s guard does not relax: {refusal}")

    # the guard

    def _limited(self) -> Limiter:
        return self.limiter_type(self.kernel, Contract(0.5, 0.5, 1), 2, 4 << 30, 1)  # type: ignore[arg-type]

    def _guard_ticks(self) -> None:
        if self._guard.does_nothing:
            return
        if self._guard.up_since_us != self._guard_up_us:  # another one: it begins with the contract armed
            self._guard_up_us = self._guard.up_since_us
            self._limiter = self._limited()
        self._limiter.tick(self.world.now_us)

    @property
    def presence(self) -> Presence:
        """What the scheduler is told."""
        return self.watched.presence

    # the judge

    def _judge(self) -> None:
        """D1, D2, D3: with a guard that is well, the limit holds where it has to."""
        now_us = self.world.now_us
        if self.kernel.cpus is not None or self._machine.stands_still or self._guard.does_nothing:
            return
        well_us = now_us - max(self._guard.well_since_us, self._machine.until_us)
        if well_us < _SLACK_US:
            return
        looks_us = -1 if self._agent_since_us is None else min(well_us, now_us - self._agent_since_us)
        there_us = -1 if self._there_us is None else now_us - self._there_us
        if there_us > _SLACK_US and looks_us > 2 * _SLACK_US:
            raise Violation(f"D1: {self.name} is not limited, and somebody is there for {there_us / S:.1f} s")
        blind_us = now_us - self._blind_us if self._blind_us is not None and now_us < self._blind_until_us else -1
        if blind_us > _SLACK_US and looks_us > 2 * _SLACK_US:
            raise Violation(f"D2: {self.name} is not limited, and nobody knows for {blind_us / S:.1f} s who is there")
        stopped_us = now_us - self._stopped_us if self._agent_since_us is None else -1
        if min(stopped_us, well_us) > _KEEP_US + _SLACK_US:
            raise Violation(f"D3: {self.name} is not limited, and its agent is dead or hangs")
        heard_us, lease_us = self.lease()
        if heard_us is not None and now_us > heard_us + lease_us + _KEEP_US + _SLACK_US and well_us > _KEEP_US:
            raise Violation(f"D3: {self.name} is not limited, and its agent is cut off")
