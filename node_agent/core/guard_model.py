"""The guard as the agent's core sees it, without processes: what it promises, for tests and measurements.

Its promises: groups outlive the agent and the guard; a command is started once by its number, and never after a kill;
a kill is followed by the word that nothing is left, once its processes hear it; a start that a file system holds up is
refused after a while, and what was refused so never begins; a group has the share of the newest order that was obeyed,
also when agent and guard have been started anew; what happens while no agent listens is in the next report; while
somebody at the desk has paused parallel work, nothing is prepared and nothing started; nothing is prepared for a user
who has another uid here than on the scheduler's host.
"""

from collections import Counter, deque

from cosched.wire.messages import Exit, Prepare
from node_agent.core import effects as fx
from node_agent.core import inputs as happened
from node_agent.core.attempt import Key
from node_agent.core.groups import SCRIPT
from node_agent.core.replies import Declined, Done, Reply
from node_agent.policy.cases import first_true
from node_agent.policy.processors import Claim, chosen, crowded

FIRST_PID = 4711
KILLED = Exit(signal=9, cause="killed")
_MANY_PROCS = 64


class ModelGroup:
    """An attempt: the commands that were started in it, and how each has ended (None: it runs)."""

    def __init__(self, prepare: Prepare, *, asleep: bool = False) -> None:
        self.prepare = prepare
        self.tasks = prepare.tasks
        self.cpus, self.asleep = prepare.cpus, asleep
        self.processors: tuple[int, ...] = ()  # its own; none where it has no ``cpus``
        self.resize_order = 0
        self.commands: dict[int, Exit | None] = {}
        self.held_up: dict[int, fx.Spawn] = {}  # commands whose start waits for a file system
        self.deaf = False  # its processes hear no signal
        self.ending = False
        self.told_empty = True

    @property
    def running(self) -> set[int]:
        """The commands that run."""
        return {n for n, how in self.commands.items() if how is None}

    @property
    def starting(self) -> bool:
        """Whether its first command is still to be started, or a start waits for a file system."""
        return bool(self.held_up) or (not self.commands and not self.ending)


class GuardModel:
    """All groups of one node. ``started`` counts how often each command was started, for ever."""

    def __init__(
        self, cpu_us: int = 0, memory_peak_bytes: int = 0, killed: Exit = KILLED, procs: int = _MANY_PROCS
    ) -> None:
        """``cpu_us`` and ``memory_peak_bytes`` are what every group has used when it is empty.

        ``killed`` is how a command ends that is killed; ``procs``: how many processors the node has.
        """
        self.groups: dict[Key, ModelGroup] = {}
        self.started: Counter[tuple[Key, int]] = Counter()
        self.paused = ""  # why nothing may start here now; empty where it may
        self.uids: dict[str, int] = {}  # of users here who have another one on the scheduler's host
        self._killed = killed
        self._procs = procs
        self._used = cpu_us, memory_peak_bytes
        self._events: deque[happened.CommandEnded | happened.GroupEmpty] = deque()

    # --- what is asked of it ------------------------------------------------------------------------------------------

    def ask(self, request: fx.GuardRequest) -> Reply:
        """The reply to a request."""
        group = self.groups.get(request.key)
        match request:
            case fx.PrepareGroup():
                return self._prepare(request, group)
            case _ if group is None:
                return Declined("unknown", f"attempt {request.key[1]} at job {request.key[0]} is not known here")
            case fx.Spawn():
                return self._spawn(request, group)
            case fx.ResizeGroup():
                return self._resize(request, group)
            case fx.ForgetGroup():
                return self._forget(request, group)
        group.ending, group.told_empty = True, False
        return Done()

    def _forget(self, request: fx.ForgetGroup, group: ModelGroup) -> Reply:
        if group.running or group.held_up or not group.told_empty:
            return Declined("busy", f"attempt {request.key[1]} at job {request.key[0]} is alive; kill it first")
        del self.groups[request.key]
        return Done()

    def _prepare(self, request: fx.PrepareGroup, group: ModelGroup | None) -> Reply:
        if group is not None and (group.prepare != request.prepare or group.commands or group.ending):
            return Declined("busy", f"attempt {request.key[1]} at job {request.key[0]} is here already")
        if group is None and self.paused:
            return Declined("paused", self.paused)
        user, submitter = request.prepare.user, request.prepare.uid
        here = self.uids.get(user, submitter)
        if group is None and submitter is not None and here != submitter:
            return Declined("user", f"{user} has uid {here} here and uid {submitter} on the scheduler's host")
        if group is None:
            group = self.groups[request.key] = ModelGroup(request.prepare, asleep=request.asleep)
            self._give(group)
        return Done()

    def _spawn(self, request: fx.Spawn, group: ModelGroup) -> Reply:
        if (refusal := self.refusal(request, group)) is not None:
            return refusal
        self.started[request.key, request.n] += 1
        group.commands[request.n] = None
        group.told_empty = False
        self._separate()
        return Done(FIRST_PID + request.n)

    def _resize(self, request: fx.ResizeGroup, group: ModelGroup) -> Reply:
        if group.ending:
            return Declined("stale", f"attempt {request.key[1]} at job {request.key[0]} is ending")
        if request.n < group.resize_order:
            return Declined("stale", f"order {request.n}; order {group.resize_order} was obeyed already")
        if request.n != group.resize_order or not request.n:  # else it was obeyed already
            group.tasks, group.cpus, group.resize_order = request.tasks, request.cpus, request.n
            group.asleep = request.asleep
            self._give(group)
            self._separate()
        return Done(cpus=group.processors)

    def _give(self, group: ModelGroup) -> None:
        """Give a group as many processors as it has CPUs."""
        others = [claim for other in self.groups.values() if other is not group for claim in self.claims(other)]
        group.processors = chosen(group.cpus or 0, group.processors, others, self._procs, self._procs)

    def claims(self, group: ModelGroup) -> list[Claim]:
        """What a group has of the node's processors as it counts for others."""
        if group.running or group.starting:
            return [Claim(group.processors, used=not group.asleep)]
        return [] if group.ending else [Claim(group.processors, used=False)]

    def _separate(self) -> None:
        """Move groups that share a processor while another is idle."""
        groups = [group for group in self.groups.values() if self.claims(group)]
        while (index := crowded([self.claims(group)[0] for group in groups], self._procs)) is not None:
            self._give(groups[index])

    def refusal(self, request: fx.Spawn, group: ModelGroup) -> Declined | None:
        """Why a command is not started; None where it is."""
        known = request.n in group.commands or request.n in group.held_up
        refusals = [
            (Declined("stale", f"attempt {request.key[1]} at job {request.key[0]} is ending"), group.ending),
            (Declined("paused", self.paused), self.paused),
            (Declined("busy", f"command {request.n} has been started already"), known),
        ]
        return first_true(refusals, None)

    # --- what happens -------------------------------------------------------------------------------------------------

    def end(self, key: Key, how: Exit, n: int = SCRIPT) -> None:
        """A command ends, if it runs: with it the group is empty, unless another one runs."""
        group = self.groups.get(key)
        if group is None or n not in group.running:
            return
        group.commands[n] = how
        self._events.append(happened.CommandEnded(key, n, how))
        if not group.running and not group.held_up:
            self._empty(key, group)

    def hold_up(self, request: fx.Spawn) -> None:
        """The start of a command that :meth:`refusal` does not refuse waits for a file system."""
        group = self.groups[request.key]
        group.held_up[request.n] = request
        group.told_empty = False

    def withdraw(self, key: Key) -> Declined:
        """A start takes too long: the command never begins, and all of the attempt is to end."""
        self.groups[key].ending = True
        return Declined("unrun", "the output does not answer")

    def let_go(self, key: Key, n: int = SCRIPT) -> Reply:
        """The file system answers: the command begins, unless its attempt is to end."""
        group = self.groups[key]
        request = group.held_up.pop(n)
        if group.ending:
            return Declined("unrun", "it was ended before the command began")
        return self._spawn(request, group)

    def carry_out_kills(self) -> None:
        """What was to be killed is dead, and nothing of it is left, but for what hears no signal."""
        for key, group in self.groups.items():
            if not group.ending or group.told_empty or group.held_up or group.deaf:
                continue
            for n in sorted(group.running):
                group.commands[n] = self._killed
                self._events.append(happened.CommandEnded(key, n, self._killed))
            self._empty(key, group)

    def _empty(self, key: Key, group: ModelGroup) -> None:
        group.told_empty = True
        self._events.append(happened.GroupEmpty(key, *self._used))
        self._separate()

    def events(self) -> list[happened.CommandEnded | happened.GroupEmpty]:
        """What has happened and was not taken yet, in order."""
        return [self._events.popleft() for _ in range(len(self._events))]

    def report(self) -> happened.GuardReports:
        """All that it has, for an agent that has just connected; what happened before is in it."""
        self._events.clear()
        return happened.GuardReports(
            tuple(
                happened.Group(
                    key,
                    bool(group.running) or not group.told_empty,
                    (
                        *(happened.Command(n, how) for n, how in sorted(group.commands.items())),
                        *(happened.Command(n, begun=False) for n in sorted(group.held_up)),
                    ),
                )
                for key, group in self.groups.items()
            )
        )

    def reboot(self) -> None:
        """The machine is started anew: nothing is left."""
        self.groups.clear()
        self._events.clear()

    def running(self, key: Key) -> set[int]:
        """The commands of an attempt that run."""
        return self.groups[key].running if key in self.groups else set()
