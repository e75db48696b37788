"""Why a job failed, as its user is told: by its launcher's own words where those say it, else by its nodes' reports."""

from typing import Final

from cosched.model.job import JobState
from cosched.wire.api import Failure
from space_scheduler.launch import cause_of_time_out, diagnose
from space_scheduler.service.launch.gang import Ended
from space_scheduler.service.launch.orders import LaunchAttempt

_TAIL_LINES: Final = 20
_LONGEST_LINE: Final = 400


def failure_of(end: Ended, launch: LaunchAttempt) -> Failure:
    """The story of a failure: what the launcher's own words say, else what the nodes reported; the last lines."""
    lines = [line[:_LONGEST_LINE] for line in end.error_tail.decode(errors="replace").splitlines()[-_TAIL_LINES:]]
    found = diagnose(end.error_tail, launch.peers) if end.outcome is JobState.FAILED and launch.peers else None
    if found is not None:
        return Failure(found.message, found.node or end.node, found.rank, found.tail or lines)
    message = end.message or end.outcome.value
    if end.outcome is JobState.TIMED_OUT:
        error, tasks = end.error_tail.decode(errors="replace"), sum(peer.tasks for peer in launch.peers)
        cause = cause_of_time_out(error, tasks, launch.record.submission.script, hydra=launch.hydra)
        message = f"{message}; {cause}" if cause else message
    return Failure(message, end.node, tail=lines)
