"""What the scheduler tells each node of its jobs' neighbours: mode, fair share, turns, and the cluster's time.

Every heartbeat is answered. So nodes hear of each other's owners, and of how jobs receive, within two heartbeats and
without talking to each other: the scheduler alone knows all the nodes of a job and its neighbours', and has one clock.
Without it, agents go on as they were told for a few seconds, and then as plain Linux does: coscheduling is worth no
second network among the nodes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from cosched.config.cluster import ClusterConfig
from cosched.config.units import duration_us
from cosched.model.coscheduling import Mode, fair_rates
from cosched.model.time import US_PER_S
from cosched.wire import messages as wire
from cosched.wire.api import CoschedulingDoc
from space_scheduler.machine.instructions import Turn
from space_scheduler.machine.turns import NEEDS_TURNS
from space_scheduler.service.launch.attempt import LaunchAttempt
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry

#: For how long a plan is told to further nodes, as a share of the heartbeat.
_KEPT: Final = 0.5
#: The row and the number of rows of a job that takes no turns.
_NONE: Final = (0, 0)
UNSEEN: Final = "not visible"


class Shares(NamedTuple):
    """What is due to all jobs that hold nodes, at one moment. ``contended``: nodes with more tasks than processors.

    ``there``: the jobs on each node, so that an answer costs what its node has.
    """

    rates: Mapping[int, float]
    contended: frozenset[str]
    there: Mapping[str, Sequence[int]]


class Coscheduling:
    """Answers heartbeats. ``attempts`` are the jobs that hold nodes; who takes turns is the core's decision."""

    def __init__(
        self,
        config: ClusterConfig,
        book: NodeBook,
        attempts: Mapping[int, LaunchAttempt],
    ) -> None:
        self._mode = config.coscheduling.mode
        self._slot_us = duration_us(config.coscheduling.slot, "coscheduling.slot")
        self._keep_s = _KEPT * config.time_us("heartbeat") / US_PER_S
        self._book = book
        self._attempts = attempts
        self._turns: dict[int, tuple[int, int]] = {}  # by job that takes turns: its row, and how many there are
        self._plan = Shares({}, frozenset(), {})
        self._until_s = 0.0

    def follow(self, turns: Iterable[Turn]) -> None:
        """These are the turns that the core has decided on."""
        self._turns = {turn.job_id: (turn.row, turn.rows) for turn in turns}

    def answer(self, entry: NodeEntry, beat: wire.Heartbeat) -> wire.Turns:
        """For the node that has just said this."""
        plan, now_us = self.plan(), int(self._book.now_s() * US_PER_S)
        here = [each for job_id in plan.there.get(entry.name, ()) if (each := self._attempts.get(job_id)) is not None]
        turns = tuple(
            wire.Turn(
                *each.key, self.mode(each).value, plan.rates[each.job_id] * tasks, *self._turns.get(each.job_id, _NONE)
            )
            for each in here
            if (tasks := each.tasks.get(entry.name, 0))
        )
        return wire.Turns(beat.asked_us, now_us, self._slot_us, entry.name in plan.contended, turns)

    def mode(self, launch: LaunchAttempt) -> Mode:
        """The job's, or the cluster's."""
        return Mode(launch.record.submission.coscheduling or self._mode)

    def plan(self) -> Shares:
        """By what the nodes said last; made anew when the last one is half a heartbeat old."""
        now_s = self._book.now_s()
        if now_s >= self._until_s:
            self._plan, self._until_s = self._planned(), now_s + self._keep_s
        return self._plan

    def document(self, job_id: int) -> CoschedulingDoc | None:
        """For a job that holds nodes."""
        if (launch := self._attempts.get(job_id)) is None:
            return None
        signs = {node: sign for node in launch.tasks if (sign := self._signs(node, launch.key)) is not None}
        row, count = self._turns.get(job_id, _NONE)
        transports = sorted({each for sign in signs.values() for each in sign.transports})
        return CoschedulingDoc(
            self.mode(launch).value,
            {node: sign.receives for node, sign in signs.items()},
            sum(sign.raises for sign in signs.values()),
            round(self._planned().rates.get(job_id, 1.0), 4),
            row,
            count,
            self._slot_us / US_PER_S if count else 0.0,
            [each for each in transports if UNSEEN not in each],
            [each for each in transports if UNSEEN in each],
            None if launch.work is None else round(launch.work.done_us / US_PER_S, 3),
            launch.work is not None and any(sign.receives in NEEDS_TURNS for sign in signs.values()),
        )

    def _planned(self) -> Shares:
        tasks = {launch.job_id: launch.tasks for launch in self._attempts.values()}
        there: dict[str, list[int]] = {}
        for job_id, on in tasks.items():
            for node in on:
                there.setdefault(node, []).append(job_id)
        cpus, contended = dict[str, float](), set[str]()
        for node, jobs in there.items():
            entry = self._book.get(node)
            hello, beat = (entry.hello, entry.beat) if entry is not None else (None, None)
            procs = hello.procs if hello is not None else 1
            cpus[node] = procs if beat is None or beat.limited_cpus is None else beat.limited_cpus
            if sum(tasks[job_id][node] for job_id in jobs) > procs:
                contended.add(node)
        return Shares(fair_rates(cpus, tasks), frozenset(contended), there)

    def _signs(self, node: str, key: tuple[int, int]) -> wire.JobSigns | None:
        entry = self._book.get(node)
        signs = entry.beat.jobs if entry is not None and entry.beat is not None else ()
        return next((sign for sign in signs if (sign.job_id, sign.attempt) == key), None)
