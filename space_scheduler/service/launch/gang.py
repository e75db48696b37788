"""The launch of one job over its nodes, as a pure state machine: happenings in, orders and two reports out.

A gang is whole or not at all. *Preparing*: every node is asked to make ready. *Launching*: all are ready, the first is
asked to run the script. *Running*: it runs. *Ending*: everything of the job is being killed on all nodes, and the first
cause decides the outcome. *Over*: no node has a process of it any more (or is lost), and the outcome has been reported,
once. Refusal, time-out, loss of a node, cancellation and the script's own end all lead through *ending*.

Nothing is remembered of what was sent and not delivered: when an agent comes back it says what it has of the job
(:meth:`Gang.reported`), and the machine asks again for what is missing. The same order has the same number again
(:mod:`~.orders`), so an agent that has obeyed before only answers again.

While a job runs, nodes may join it and leave it (:mod:`~.resizing`): one that joins is asked to make ready, and counts
from then on; one that leaves is asked to kill what is there, and counts until nothing is left.
"""

import signal
from enum import StrEnum
from typing import Final

import msgspec

from cosched.model.job import JobState
from cosched.wire.messages import Exit, GroupReport
from space_scheduler.service.launch.orders import OrderKind

#: What stands for the word of a desk's owner: the cause of an exit, and the code of an end.
BY_OWNER: Final = "owner"
#: The code of a refusal by a node whose user database does not answer.
SLOW_USERS: Final = "slow-users"


class Phase(StrEnum):
    """How far a gang has come."""

    PREPARING = "preparing"
    LAUNCHING = "launching"
    RUNNING = "running"
    ENDING = "ending"
    OVER = "over"


class NodePhase(StrEnum):
    """How one node stands to the gang."""

    ASKED = "asked"
    READY = "ready"
    KILLING = "killing"
    LEAVING = "leaving"
    EMPTY = "empty"
    GONE = "gone"


class Order(msgspec.Struct, frozen=True):
    """To do: send this to a node (if it is not connected, it will be asked for when it reports)."""

    node: str
    kind: OrderKind


class Launched(msgspec.Struct, frozen=True):
    """To report: the job script runs."""


class Left(msgspec.Struct, frozen=True):
    """To report: nothing of the job is left on a node that was to leave it, and it is the job's no more."""

    node: str


class CannotEnd(msgspec.Struct, frozen=True):
    """To report: the job is ending, and what is left of it on its first node cannot be ended."""

    node: str


class Ended(msgspec.Struct, frozen=True):
    """To report: the job holds nothing any more. ``message`` and ``node`` tell why it failed; empty where it did not.

    ``cpu_us`` and ``memory_peak_bytes`` are by node, of those that said so. ``unrun``: the launch failed before the
    script could have run, and it may be launched again. ``blamed`` are the nodes where it failed; ``code`` is the
    refusal's, or ``silent``, ``lost`` or ``owner``. Until a gang is over it keeps the first part of this, its verdict.
    """

    outcome: JobState
    message: str = ""
    node: str | None = None
    exit: Exit | None = None
    error_tail: bytes = b""
    cpu_us: dict[str, int] = {}
    memory_peak_bytes: dict[str, int] = {}
    unrun: bool = False
    blamed: tuple[str, ...] = ()
    code: str = ""


Action = Order | Launched | Left | CannotEnd | Ended


_CAUSES: Final = {
    "limit": (JobState.TIMED_OUT, "it ran past its time limit"),
    "memory": (JobState.FAILED, "it needed more memory than it asked for"),
    BY_OWNER: (JobState.NODE_LOST, "the owner of its first node has ended it there"),
    "unknown": (JobState.FAILED, "how it ended is not known: its record is lost"),
}

_UNKNOWN: Final = Exit(cause="unknown")
#: A Run that is refused so has not run: the script never came as far as its first line.
_NOT_BEGUN: Final = frozenset({"user", SLOW_USERS, "directory", "unknown", "paused", "unrun"})


class Gang:
    """One attempt at a job on ``nodes`` (names, that of the script first).

    Every method takes a happening and returns what is to be done, in order. Whatever comes twice, late or in the wrong
    phase changes nothing.
    """

    def __init__(
        self,
        nodes: tuple[str, ...],
        *,
        adopted: JobState | None = None,
        ending: JobState | None = JobState.CANCELLED,
        begins_anew: bool = False,
    ) -> None:
        """``adopted``: what the journal says of the job when the scheduler has been restarted; None for a new one.

        ``ending``: what a job becomes that is adopted while it is ending (None: what its script's end says);
        ``begins_anew`` as of :meth:`kill`.
        """
        self.first = nodes[0]
        self.phase = Phase.PREPARING
        self.node_phases = dict.fromkeys(nodes, NodePhase.ASKED)
        self.adopted = adopted is not None
        self._verdict: Ended | None = None
        self._asked_to_run = self.adopted  # the scheduler before may have asked
        self._begins_anew = begins_anew
        self._exit: Exit | None = None
        self._tail = b""
        self._cpu_us: dict[str, int] = {}
        self._peak_bytes: dict[str, int] = {}
        if adopted is JobState.RUNNING:
            self._up()
        elif adopted is JobState.ENDING:
            self._verdict = None if ending is None else Ended(ending)
            self._kill_all()

    @property
    def nodes(self) -> tuple[str, ...]:
        """Those that it is on now, that of the script first."""
        return tuple(self.node_phases)

    @property
    def launching(self) -> bool:
        """Whether the launch time-out still counts."""
        return self.phase in (Phase.PREPARING, Phase.LAUNCHING)

    def gone(self, node: str) -> bool:
        """Whether a node is lost to this gang."""
        return self.node_phases[node] is NodePhase.GONE

    def waits_for(self, node: str) -> bool:
        """Whether that node is to end what it has of the job, and has not said yet that it has no process of it."""
        return self.node_phases.get(node) in (NodePhase.KILLING, NodePhase.LEAVING)

    def begin(self) -> list[Action]:
        """The first orders."""
        return [Order(node, OrderKind.PREPARE) for node in self.nodes]

    def prepared(self, node: str) -> list[Action]:
        """A node is ready."""
        if self.phase not in (Phase.PREPARING, Phase.RUNNING) or self.node_phases[node] is not NodePhase.ASKED:
            return []
        self.node_phases[node] = NodePhase.READY
        joined = self.phase is Phase.RUNNING
        if joined or any(phase is not NodePhase.READY for phase in self.node_phases.values()):
            return []
        self.phase = Phase.LAUNCHING
        self._asked_to_run = True
        return [Order(self.first, OrderKind.RUN)]

    def refused(self, node: str, kind: OrderKind, code: str, message: str) -> list[Action]:
        """A node does not do what it was asked. What it cannot kill because it knows nothing of it, is not there."""
        if kind is OrderKind.KILL and code == "unknown":
            return self._knows_nothing(node, self.node_phases[node]) if self.waits_for(node) else []
        to_prepare, to_run = kind is OrderKind.PREPARE, kind is OrderKind.RUN and node == self.first
        if not (to_prepare or to_run):
            return []
        ending = self.phase is Phase.ENDING
        launch_fails = self.phase is (Phase.PREPARING if to_prepare else Phase.LAUNCHING)
        if to_run and code in _NOT_BEGUN and (launch_fails or ending):
            self._asked_to_run = False
        # a Run that fails may be the script's own fault: it does not count against the node
        why, code = f"{node} refused: {message}", code if to_prepare else "run"
        if launch_fails:
            return self._launch_failed(why, (node,), code)
        if ending and self._verdict is not None and self._verdict.code == "silent" and node in self._verdict.blamed:
            self._verdict = msgspec.structs.replace(  # the cause of its silence
                self._verdict, outcome=JobState.LAUNCH_FAILED, message=why, node=node, code=code
            )
        return []

    def timed_out(self, after: str) -> list[Action]:
        """The launch takes longer than it may; ``after`` says how long for people."""
        if self.phase is Phase.PREPARING:
            silent = [node for node, phase in self.node_phases.items() if phase is NodePhase.ASKED]
            return self._launch_failed(f"no answer within {after} from {', '.join(silent)}", tuple(silent), "silent")
        if self.phase is Phase.LAUNCHING:
            return self._launch_failed(f"{self.first} did not start the script within {after}", (self.first,), "silent")
        return []

    def cannot_end(self, node: str) -> list[Action]:
        """What was killed of the job on a node hears no signal. A script that never began may be tried elsewhere: the
        job does not wait for that node; any other job ends when the node has ended what it has.
        """
        if self.phase is Phase.RUNNING and node == self.first:  # at its limit, say: how it ends is known then
            return [*self._kill_all(), CannotEnd(node)]
        if not self.may_leave(node):
            return []
        self.node_phases[node] = NodePhase.GONE
        return self._finished()

    def may_leave(self, node: str) -> bool:
        """Whether the job need not wait for what a node is to end: its script never began."""
        return self.phase is Phase.ENDING and self.node_phases[node] is NodePhase.KILLING and self.never_began

    @property
    def never_began(self) -> bool:
        """Whether the job is being ended, and its script has not begun and never will."""
        return self._verdict is not None and not self._asked_to_run and self._exit in (None, _UNKNOWN)

    def _launch_failed(self, message: str, blamed: tuple[str, ...], code: str) -> list[Action]:
        return self._end(Ended(JobState.LAUNCH_FAILED, message, blamed[0], blamed=blamed, code=code))

    def started(self, node: str) -> list[Action]:
        """The script runs."""
        may_run = self.phase is Phase.LAUNCHING or (self.adopted and self.phase is Phase.PREPARING)
        if node != self.first or not may_run:
            return []
        self._up()
        return [Launched()]

    def program_ended(self, node: str, how: Exit, error_tail: bytes = b"") -> list[Action]:
        """The script has ended on the first node."""
        if node != self.first or self.phase is Phase.OVER:
            return []
        actions = self.started(node)
        if self.phase not in (Phase.RUNNING, Phase.ENDING):
            return []  # it was never asked to run
        self._exit = self._exit or how
        self._tail = self._tail or error_tail
        if self.phase is Phase.RUNNING:
            by_owner = how.cause == BY_OWNER
            return actions + (self.ended_by_owner(node) if by_owner else self._end(judged(how, self.first)))
        if self._verdict is None:  # its group was empty, or an end reported, before its error output was known
            self._verdict = judged(self._exit, self.first)
        return actions + self._finished()

    def emptied(self, node: str, cpu_us: int | None = None, memory_peak_bytes: int = 0) -> list[Action]:
        """No process of the job is on this node.

        While the job runs that means something on the first node only: elsewhere ranks come and go.
        """
        if cpu_us is not None:
            self._cpu_us[node] = max(self._cpu_us.get(node, 0), cpu_us)
            self._peak_bytes[node] = max(self._peak_bytes.get(node, 0), memory_peak_bytes)
        if self.node_phases[node] is NodePhase.LEAVING and self.phase is Phase.RUNNING:
            return self._left(node)
        actions = self._kill_all() if self.phase is Phase.RUNNING and node == self.first else []
        if self.phase is not Phase.ENDING or self.node_phases[node] is not NodePhase.KILLING:
            return []
        self.node_phases[node] = NodePhase.EMPTY
        return actions + self._finished()

    def lost(self, node: str, message: str) -> list[Action]:
        """A node is gone, or has forgotten the job.

        Ranks that vanish make a script fail: what was taken for its own failure, while the job was still being ended on
        this node, is the node's loss.
        """
        if self.phase is Phase.OVER or self.node_phases[node] in (NodePhase.GONE, NodePhase.EMPTY):
            return []
        if self.node_phases[node] is NodePhase.LEAVING and self.phase is Phase.RUNNING:
            return self._left(node)[-1:]
        self.node_phases[node] = NodePhase.GONE
        if self.launching:
            return self._launch_failed(message, (node,), "lost")
        if self.phase is Phase.RUNNING:
            return self._end(Ended(JobState.NODE_LOST, message, node))
        failed_elsewhere = self._verdict is not None and self._verdict.outcome is JobState.FAILED and node != self.first
        if self._begins_anew or failed_elsewhere or (self._verdict is None and node == self.first):
            self._verdict = Ended(JobState.NODE_LOST, message, node)
        return self._finished()

    def ended_by_owner(self, node: str) -> list[Action]:
        """The owner of a node has ended what the job had there, and so all of it.

        Ranks that vanish make a script fail: what was taken for its own failure is the owner's word.
        """
        message = f"the owner of {node} has ended it there"
        if self.phase is Phase.OVER or self.node_phases[node] in (NodePhase.GONE, NodePhase.LEAVING):
            return []
        if self.phase is Phase.PREPARING:
            return self._launch_failed(message, (node,), BY_OWNER)
        by_owner = Ended(JobState.NODE_LOST, message, node, code=BY_OWNER)
        if self.phase is not Phase.ENDING:
            return self._end(by_owner)
        if self._verdict is None or self._verdict.outcome is JobState.FAILED:
            self._verdict = by_owner
        return self._finished()

    def join(self, node: str) -> None:
        """A node joins a job that runs: it counts when it is ready."""
        self.node_phases[node] = NodePhase.ASKED

    def leave(self, node: str) -> list[Action]:
        """A node leaves a job that runs: what is left of it there is killed."""
        self.node_phases[node] = NodePhase.LEAVING
        return [Order(node, OrderKind.KILL)]

    def _left(self, node: str) -> list[Action]:
        del self.node_phases[node]
        return [Order(node, OrderKind.FORGET), Order(node, OrderKind.DISCARD), Left(node)]

    def kill(
        self, outcome: JobState = JobState.CANCELLED, message: str = "", *, begins_anew: bool = False
    ) -> list[Action]:
        """The core wants it ended. A job that is ending already ends as it would have, but for a failed launch: who
        cancels it meanwhile has it cancelled, and it is not tried again.

        ``begins_anew``: it is to wait again and run from its beginning; not where a node is lost that may still have
        it, which is the outcome then.
        """
        if self.phase is Phase.OVER:
            return []
        if self.phase is Phase.ENDING:
            failed = self._verdict or Ended(JobState.LAUNCH_FAILED)
            if failed.outcome is JobState.LAUNCH_FAILED:  # what failed counts for its nodes all the same
                self._verdict = msgspec.structs.replace(failed, outcome=outcome, message=message, node=None)
            return self._finished()
        self._begins_anew = begins_anew
        return self._end(Ended(outcome, message))

    def cancel(self) -> list[Action]:
        """Its user or an operator wants it ended: it does not wait again, as one may that has lost a node or was ended
        by a node's owner.
        """
        self._begins_anew = False
        if self.phase is Phase.ENDING and self._verdict is not None and self._verdict.outcome is JobState.NODE_LOST:
            self._verdict = Ended(JobState.CANCELLED)
        return self.kill()

    def recorded(self) -> list[Action]:
        """The end is in the journal: the nodes may forget the job. A lost one is told when it comes back with it."""
        empty = [node for node, phase in self.node_phases.items() if phase is NodePhase.EMPTY]
        return [Order(node, OrderKind.FORGET) for node in empty if self.phase is Phase.OVER]

    def reported(self, node: str, report: GroupReport | None) -> list[Action]:
        """An agent came (back) and says what it has of the job; None: nothing. Asks again for what is missing."""
        phase = self.node_phases[node]
        if phase is NodePhase.GONE:
            return [] if report is None or report.state == "ended" else [Order(node, OrderKind.KILL)]
        if self.phase is Phase.OVER or phase is NodePhase.EMPTY:
            return []
        if report is None:
            return self._knows_nothing(node, phase)
        if self.phase is Phase.RUNNING and phase is NodePhase.ASKED:
            return []  # it is to join: its resize asks it again
        # a signal may have been the machine's own going down; a status is the script's
        known = node == self.first and report.exit is not None and report.exit.status is not None
        if report.rebooted and not known and self.phase is not Phase.ENDING:
            return self.lost(node, f"{node} was started anew")
        actions = self._first_reported(report) if node == self.first else []
        if self.node_phases[node] in (NodePhase.KILLING, NodePhase.LEAVING):
            if Order(node, OrderKind.KILL) not in actions:
                actions.append(Order(node, OrderKind.KILL))  # what is empty says so again
        elif self.phase is Phase.PREPARING and report.state in ("prepared", "running"):
            actions += self.prepared(node)
        elif self.phase is Phase.PREPARING and report.state == "found" and phase is NodePhase.ASKED:
            actions.append(Order(node, OrderKind.PREPARE))  # what was asked before is answered first
        return actions

    def _knows_nothing(self, node: str, phase: NodePhase) -> list[Action]:
        if phase is NodePhase.ASKED:
            return [Order(node, OrderKind.PREPARE)]
        if phase in (NodePhase.KILLING, NodePhase.LEAVING):
            if node == self.first:
                self._exit = self._exit or _UNKNOWN
            return self.emptied(node)
        return self.lost(node, f"{node} was restarted: it knows nothing of the job any more")

    def _first_reported(self, report: GroupReport) -> list[Action]:
        """What the first node's report says about the script."""
        if report.exit is not None or report.state == "ended":
            return self._over(report.exit or _UNKNOWN)
        if report.state == "running":
            return self.started(self.first)
        if self.phase is Phase.LAUNCHING:
            return [Order(self.first, OrderKind.RUN)]
        if self.phase is Phase.RUNNING:  # only prepared there, yet it was reported as running
            return self._over(_UNKNOWN)
        return []

    def _over(self, how: Exit) -> list[Action]:
        """The script has ended while the link was down. Its error output comes with its own message, if it comes."""
        actions = self.started(self.first)
        if self.phase not in (Phase.RUNNING, Phase.ENDING):
            return []
        self._exit = self._exit or how
        return actions + (self._kill_all() if self.phase is Phase.RUNNING else self._finished())

    def _up(self) -> None:
        self.phase = Phase.RUNNING
        asked = [node for node, phase in self.node_phases.items() if phase is NodePhase.ASKED]
        self.node_phases.update(dict.fromkeys(asked, NodePhase.READY))

    def _end(self, verdict: Ended) -> list[Action]:
        self._verdict = verdict
        return self._kill_all() + self._finished()

    def _kill_all(self) -> list[Action]:
        self.phase = Phase.ENDING
        left = [node for node, phase in self.node_phases.items() if phase is not NodePhase.GONE]
        self.node_phases.update(dict.fromkeys(left, NodePhase.KILLING))
        return [Order(node, OrderKind.KILL) for node in left]

    def _finished(self) -> list[Action]:
        """The end, when all are empty or gone and it is known why."""
        if self._verdict is None and self._exit is not None and self.node_phases[self.first] is not NodePhase.KILLING:
            self._verdict = judged(self._exit, self.first)
        if self._verdict is None or any(
            phase not in (NodePhase.EMPTY, NodePhase.GONE) for phase in self.node_phases.values()
        ):
            return []
        self.phase = Phase.OVER
        return [
            msgspec.structs.replace(
                self._verdict,
                exit=self._exit,
                error_tail=self._tail,
                cpu_us=dict(self._cpu_us),
                memory_peak_bytes=dict(self._peak_bytes),
                unrun=bool(self._verdict.blamed) and self.never_began,
            )
        ]


def judged(how: Exit, node: str) -> Ended:
    """What the end of a job is whose script has ended like this on a node."""
    outcome, message = JobState.FAILED, f"the script ended with status {how.status}"
    if how.cause in _CAUSES:
        outcome, message = _CAUSES[how.cause]
    elif how.signal is not None:
        name = next((f"{how.signal} ({each.name})" for each in signal.Signals if each == how.signal), how.signal)
        message = f"the script was ended by signal {name}"
    elif how.status is None:
        outcome, message = _CAUSES["unknown"]
    elif how.cause == "killed":
        message = "it was killed on its node"
    elif how.status == 0:
        outcome = JobState.COMPLETED
    return Ended(outcome, message, node, code=BY_OWNER if how.cause == BY_OWNER else "")
