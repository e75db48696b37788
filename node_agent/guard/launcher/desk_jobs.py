"""The jobs on this machine as who sits at it sees them, and how that person ends them."""

from typing import Any, Final

from cosched.linux import process
from node_agent.guard.base.requests import Refusal
from node_agent.guard.launcher.cpu_sets import CpuSets
from node_agent.guard.launcher.endings import Endings
from node_agent.guard.launcher.groups import Group, Shared, group_of

#: The cause of an end that is the word of the desk's owner.
BY_OWNER: Final = "owner"
#: An owner does not wait for longer than this, whatever grace the cluster gives jobs.
_LONGEST_GRACE_US: Final = 5 * process.US_PER_S
#: Who asks more often is told the same again.
_FRESH_US: Final = 200_000


class DeskJobs:
    """A view of the attempts, which ``Jobs`` keeps."""

    def __init__(self, shared: Shared, endings: Endings, cpu_sets: CpuSets) -> None:
        self._shared = shared
        self._endings = endings
        self._cpu_sets = cpu_sets
        self._seen: list[dict[str, Any]] = []
        self._seen_us = -_FRESH_US

    def listing(self) -> list[dict[str, Any]]:
        """Each attempt that has something here: whose, how much it uses, since when, until when at most.

        ``uid`` is that of its processes here.
        """
        now_us = process.boottime_us()
        if now_us - self._seen_us >= _FRESH_US:
            self._seen = [self._shown(group) for group in self._shared.groups.values() if group.state != "ended"]
            self._seen_us = now_us
        return self._seen

    def end(self, job: int | None) -> list[int]:
        """End what a job has here, or all jobs (None), soon also where that has begun.

        The numbers of those that were not being ended yet. Raises :class:`Refusal` for one that is not here.
        """
        found = [group for group in self._shared.groups.values() if job in (None, group.request.job)]
        if job is not None and not any(group.state != "ended" for group in found):
            raise Refusal("unknown", f"job {job} is not here")
        left = [group for group in found if not group.removing and (group.ending is None or group.state != "ended")]
        ended = {group.request.job for group in left if group.ending is None}
        for group in left:
            self._endings.end(group, BY_OWNER, min(group.request.grace_us, _LONGEST_GRACE_US))
        self._seen_us = -_FRESH_US
        return sorted(ended)

    def ended(self) -> list[list[int]]:
        """[job, attempt] of those that the owner has ended and the scheduler has not let go of yet."""
        return [list(group.key) for group in self._shared.groups.values() if group.ending == BY_OWNER]

    def has(self, pid: int) -> bool:
        """Whether a process is a job's."""
        return group_of(pid, self._shared.groups.values(), self._shared.cgroups) is not None

    def _shown(self, group: Group) -> dict[str, Any]:
        used = self._shared.cgroups.usage(group.name)
        limit_us = group.request.limit_us
        until_us = group.deadline_us
        if until_us is None and limit_us is not None and group.since_us is not None:
            until_us = group.since_us + limit_us  # another node of the job keeps its limit
        return {
            "job": group.request.job,
            "attempt": group.request.attempt,
            "user": group.request.user,
            "uid": group.request.uid if group.user is None else group.user.uid,
            "state": group.state,
            "tasks": group.request.tasks,
            "processes": len(self._shared.cgroups.procs(group.name)),
            "cpus": len(self._cpu_sets.cpus(group)) or None,
            "cpu_us": self._endings.used(group)["cpu_us"],
            "seen_us": process.boottime_us(),
            "memory_bytes": max(0, used.memory_bytes),
            "since_us": group.since_us,
            "until_us": until_us,
            "stopped": group.stopped_us is not None,
        }
