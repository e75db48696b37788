"""The part of the state machine that counts interchangeable processors: they join, are drained and lost."""

from cosched.model.job import TRANSITIONS, JobState
from space_scheduler.machine import events as ev
from space_scheduler.machine.capacity import PooledCapacity
from space_scheduler.machine.instructions import Instruction
from space_scheduler.machine.on_nodes import OnNodes
from space_scheduler.machine.record import Record


class OnProcs(OnNodes):
    """What :class:`~space_scheduler.machine.state.SchedulerState` does about processors without names."""

    def _joined(self, event: ev.NodesJoined) -> list[Instruction]:
        return self._resize(event.procs, event)

    def _drained(self, event: ev.NodesDrained) -> list[Instruction]:
        return self._resize(-event.procs, event)

    def _lost(self, event: ev.NodesLost) -> list[Instruction]:
        for job_id in event.job_ids:
            record = self._record(job_id)
            if JobState.NODE_LOST not in TRANSITIONS[record.state] or record.allocation is None:
                raise record.illegal(JobState.NODE_LOST, self.now_us)
        if len(set(event.job_ids)) != len(event.job_ids):
            raise ValueError(f"a job is named twice among the lost: {event.job_ids}")
        instructions = self._resize(-event.procs, event)
        for job_id in event.job_ids:
            self._ended(ev.JobEnded(job_id, JobState.NODE_LOST))
        return instructions

    def _resize(self, procs: int, event: ev.NodesJoined | ev.NodesDrained | ev.NodesLost) -> list[Instruction]:
        if not isinstance(self.capacity, PooledCapacity):
            self._mixed(event)
        if event.procs < 0:
            raise ValueError(f"a number of processors cannot be negative: {event}")
        self.capacity.resize(procs)
        self._disturbed(event)
        return []

    def _record(self, job_id: int) -> Record:
        raise NotImplementedError

    def _ended(self, event: ev.JobEnded) -> list[Instruction]:
        raise NotImplementedError
