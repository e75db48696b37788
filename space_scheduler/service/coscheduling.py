"""What the scheduler tells each node of its jobs' neighbours: mode, fair share, turns, and the cluster's time.

Every heartbeat is answered. So nodes hear of each other's owners, and of how jobs receive, within two heartbeats and
without talking to each other: the scheduler alone knows all the nodes of a job and its neighbours', and has one clock.
Without it, agents go on as they were told for a few seconds, and then as plain Linux does: coscheduling is worth no
second network among the nodes.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple

from cosched.config.cluster import ClusterConfig
from cosched.config.units import duration_us
from cosched.model.coscheduling import Mode, Receives, fair_rates, rows
from cosched.model.time import US_PER_S
from cosched.wire import messages as wire
from cosched.wire.api import CoschedulingDoc
from space_scheduler.service.nodes import NodeBook, NodeEntry, boottime_s
from space_scheduler.service.orders import LaunchAttempt

#: A node whose clock may be off by more than this share of a slot keeps no time (``node_agent.policy.gang.MOST_OFF``).
MOST_OFF: Final = 0.1
#: For how long a plan is told to further nodes, as a share of the heartbeat.
_KEPT: Final = 0.5
#: Ways of receiving that nothing but turns helps where every job has a cgroup of its own.
_NEEDS_TURNS: Final = {Receives.POLLS.value, Receives.YIELDS.value}
UNSEEN: Final = "not visible"


class SharePlan(NamedTuple):
    """All jobs that hold nodes, at one moment. ``contended``: nodes with more tasks than processors.

    ``there``: the jobs on each node, so that an answer costs what its node has.
    """

    rates: Mapping[int, float]
    rows: Mapping[int, tuple[int, int]]
    contended: frozenset[str]
    there: Mapping[str, Sequence[int]]


class Coscheduling:
    """Answers heartbeats. ``attempts`` are the jobs that hold nodes."""

    def __init__(
        self,
        config: ClusterConfig,
        book: NodeBook,
        attempts: Mapping[int, LaunchAttempt],
        now_s: Callable[[], float] = boottime_s,
    ) -> None:
        self._mode = config.coscheduling.mode
        self._slot_us = duration_us(config.coscheduling.slot, "coscheduling.slot")
        self._keep_s = _KEPT * config.time_us("heartbeat") / US_PER_S
        self._book = book
        self._attempts = attempts
        self._now_s = now_s
        self._plan = SharePlan({}, {}, frozenset(), {})
        self._until_s = 0.0

    def answer(self, entry: NodeEntry, beat: wire.Heartbeat) -> wire.Turns:
        """For the node that has just said this."""
        plan = self.plan()
        turns = []
        for job_id in plan.there.get(entry.name, ()):
            launch = self._attempts.get(job_id)
            if launch is not None and (tasks := launch.tasks.get(entry.name, 0)):
                row, count = plan.rows.get(launch.job_id, (0, 0))
                share = plan.rates[launch.job_id] * tasks
                turns.append(wire.Turn(*launch.key, self.mode(launch).value, share, row, count))
        contended = entry.name in plan.contended
        return wire.Turns(beat.asked_us, int(self._now_s() * US_PER_S), self._slot_us, contended, tuple(turns))

    def mode(self, launch: LaunchAttempt) -> Mode:
        """The job's, or the cluster's."""
        return Mode(launch.record.submission.coscheduling or self._mode)

    def plan(self) -> SharePlan:
        """By what the nodes said last; made anew when the last one is half a heartbeat old."""
        if self._now_s() >= self._until_s:
            self._plan = self._planned()
            self._until_s = self._now_s() + self._keep_s
        return self._plan

    def document(self, job_id: int) -> CoschedulingDoc | None:
        """For a job that holds nodes."""
        launch = self._attempts.get(job_id)
        if launch is None:
            return None
        plan = self._planned()
        signs = {node: sign for node in launch.tasks if (sign := self._signs(node, launch.key)) is not None}
        row, count = plan.rows.get(job_id, (0, 0))
        transports = sorted({each for sign in signs.values() for each in sign.transports})
        return CoschedulingDoc(
            self.mode(launch).value,
            {node: sign.receives for node, sign in signs.items()},
            sum(sign.raises for sign in signs.values()),
            round(plan.rates.get(job_id, 1.0), 4),
            row,
            count,
            self._slot_us / US_PER_S if count else 0.0,
            [each for each in transports if UNSEEN not in each],
            [each for each in transports if UNSEEN in each],
            None if launch.work is None else round(launch.work.done_us / US_PER_S, 3),
            launch.work is not None and any(sign.receives in _NEEDS_TURNS for sign in signs.values()),
        )

    def _planned(self) -> SharePlan:
        tasks = {launch.job_id: launch.tasks for launch in self._attempts.values()}
        there: dict[str, list[int]] = {}
        for job_id, on in tasks.items():
            for node in on:
                there.setdefault(node, []).append(job_id)
        cpus, able, contended = dict[str, float](), set[str](), set[str]()
        for node, jobs in there.items():
            entry = self._book.get(node)
            hello, beat = (entry.hello, entry.beat) if entry is not None else (None, None)
            procs = hello.procs if hello is not None else 1
            cpus[node] = procs if beat is None or beat.limited_cpus is None else beat.limited_cpus
            if entry is not None and entry.session is not None and beat is not None:
                able |= {node} if 0 <= beat.clock_bound_us <= MOST_OFF * self._slot_us else set()
            if sum(tasks[job_id][node] for job_id in jobs) > procs:
                contended.add(node)
        wanting = {launch.job_id for launch in self._attempts.values() if self._wants_turns(launch)}
        return SharePlan(fair_rates(cpus, tasks), rows(tasks, contended, wanting, able), frozenset(contended), there)

    def _wants_turns(self, launch: LaunchAttempt) -> bool:
        """Whether a job needs its tasks to run at the same time: on several nodes, and nothing else would help it."""
        nodes, mode = launch.tasks, self.mode(launch)
        if mode is Mode.GANG:
            return True
        if mode is not Mode.CCS or len(nodes) < 2:
            return False
        seen = {sign.receives for node in nodes if (sign := self._signs(node, launch.key)) is not None}
        return bool(seen & _NEEDS_TURNS) and Receives.BLOCKS.value not in seen

    def _signs(self, node: str, key: tuple[int, int]) -> wire.JobSigns | None:
        entry = self._book.get(node)
        signs = entry.beat.jobs if entry is not None and entry.beat is not None else ()
        return next((sign for sign in signs if (sign.job_id, sign.attempt) == key), None)
