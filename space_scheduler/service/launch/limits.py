"""Time limits that count work: where jobs share nodes, or are given other shapes (:mod:`~.work_done`)."""

from typing import Final

from cosched.config.cluster import ClusterConfig
from cosched.model.time import humanised
from cosched.wire import messages as wire
from space_scheduler.machine import events as ev
from space_scheduler.service.launch.gang import Phase
from space_scheduler.service.launch.nodes import NodeBook, NodeEntry
from space_scheduler.service.launch.orders import LaunchAttempt
from space_scheduler.service.launch.sharing import reshaping, shared
from space_scheduler.service.launch.work_done import WorkDone


class Limits:
    """Those of all jobs. Elsewhere nodes end a job by the clock, and nothing is counted here."""

    def __init__(self, config: ClusterConfig, book: NodeBook) -> None:
        self._book = book
        self._count_work: Final = shared(config) or reshaping(config)

    def begin(self, launch: LaunchAttempt, left_us: float | None = None) -> None:
        """A job's script runs, with so much left to do (None: everything)."""
        if self._count_work and launch.limit_us is not None:
            now_s, nodes = self._book.now_s(), launch.gang.nodes
            launch.work = WorkDone(launch.limit_us, nodes, now_s, left_us, launch.rate, launch.width_speed)

    def heard(self, launch: LaunchAttempt, entry: NodeEntry, sign: wire.JobSigns) -> ev.JobProgress | str:
        """A node says how its part of a job went: what the core is told, or why the job is to end; empty: nothing."""
        work = launch.work
        if work is None or launch.gang.phase is not Phase.RUNNING:
            return ""
        assert entry.beat is not None
        now_s = self._book.now_s()
        if not work.heard(entry.name, sign.ran_us, sign.queued_us, now_s, paused=bool(entry.beat.paused)):
            return ""
        if work.over:
            return f"it has done the work of its time limit, {humanised(work.limit_us)}"
        if (done_us := work.news()) is None:
            return ""
        work.told(done_us, now_s)
        return ev.JobProgress(launch.job_id, done_us)
