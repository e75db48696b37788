"""Jobs that change their shape in simulated faults: a policy that shrinks, widens and moves them, and what must hold.

Whatever is lost, late or restarted meanwhile: a job of which the core counts one allocation and no change has just that
on every node, and no node that it does not count has a living group of it, unless nothing new is started there. Where
the policy changes shapes, jobs have CPUs of their own: no node has given away more than it has, and no two jobs are on
one CPU of a node while another of its CPUs is idle.
"""

from collections.abc import Iterator, Mapping
from random import Random
from typing import TYPE_CHECKING

import msgspec
from kit.reshaper import Reshaper

from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job, JobState
from cosched.model.width import Range
from faults import ailing
from node_agent.core.attempt import Attempt
from node_agent.core.guard_model import ModelGroup
from space_scheduler.service.launch.gang import Phase

if TYPE_CHECKING:
    from faults.node import Node
    from faults.scheduler import Scheduler

#: How settings name it.
POLICY = "faults.shapes:MIXED"
MIXED = Reshaper(seed=3, requeues_until=0, scripts_stay=True)


#: Those that resize malleable jobs.
DIVIDING = ("equipartition", "equipartition(easy,waterfill)")
#: Those that fold, suspend, end or resize jobs.
POLICIES = (
    "fjt1+bfm",
    "fjt1+bfm(partial,unfold=always)",
    "fjt1+bfm(expired=suspend)",
    "fjt4+bfa",
    "fjt4(expired=fold)",
    *DIVIDING,
)
_RESHAPES = {*POLICIES, ailing.RESHAPING}


#: What becomes of running jobs' shapes, and that some of it is refused: a campaign in which one of it never happens has
#: seen nothing of it.
CHANGES = ("folded", "unfolded", "suspended", "resumed", "aborted", "shrunk", "widened", "changed", "not changed")


def shaped(job: Job, policy: str, chance: Random) -> Job:
    """A job as it may be under a policy; ``job.procs`` is what it asks for."""
    tasks = job.procs
    if policy == POLICY:
        return msgspec.structs.replace(job, shape=Range(1, max(4, tasks)))
    if policy not in _RESHAPES:
        return job
    sizes = tuple(size for size in (1, 2, 3, 4) if size <= tasks)
    equal = policy.startswith("equipartition") or policy == ailing.RESHAPING
    malleable = equal and chance.random() < 0.8
    shape = None
    if malleable or chance.random() < (0.6 if equal else 0.15):  # windows expire where wide heads wait
        resident = malleable and chance.random() < 0.8
        shape = Range(1, tasks, () if malleable else sizes, malleable=malleable, resident=resident)
    return msgspec.structs.replace(job, shape=shape, long=chance.random() < 0.4, foldable=chance.random() < 0.9)


def wrong(scheduler: "Scheduler", nodes: "Mapping[str, Node]") -> Iterator[str]:
    """What does not hold just now, in words, where this scheduler is alive."""
    for job_id, record in scheduler.core.state.records.items():
        kept = scheduler.core.records.get(job_id)
        if record.state is not JobState.RUNNING or record.holding.changing or kept is None:
            continue
        counted = {share.node: share.tasks for share in record.allocation.nodes}
        cpus = {share.node: share.procs for share in record.allocation.nodes}
        # where all of its ranks sleep a resident job has a CPU to sleep on; suspended as a whole it is stopped
        sleeps = record.job.resident and record.allocation.procs > 0
        for name, node in nodes.items():
            group = node.model.groups.get((job_id, kept.attempt))
            if group is None or group.ending:
                continue
            # nothing runs there, and its end is ordered: an old order to prepare came late
            is_stray = not group.running and (job_id, kept.attempt) in scheduler.rules.book.entry(name).stale
            if name not in counted and (is_stray or _kept_out(scheduler, name)):
                continue
            if name not in counted:
                yield f"{name} has a living group of job {job_id}, which is counted on {sorted(counted)}"
            elif group.tasks != counted[name]:
                yield f"{name} has {group.tasks} tasks of job {job_id}, which is counted with {counted[name]}"
            elif _confines(scheduler, group) and (cpus[name] if not group.asleep else 0) != cpus[name]:
                yield f"{name} has job {job_id} asleep, which is counted with {cpus[name]} CPUs"
            elif _confines(scheduler, group) and group.cpus != (cpus[name] or int(sleeps)):
                yield f"{name} has job {job_id} on {group.cpus} CPUs, which is counted with {cpus[name]}"
    if scheduler.config.policy in _RESHAPES:
        yield from _given_twice(scheduler, nodes)


def told_otherwise(scheduler: "Scheduler", nodes: "Mapping[str, Node]") -> Iterator[tuple[str, int, str]]:
    """Which node was told what of which job, where that is not what the core holds, and nothing is under way."""
    for job_id, launch in scheduler.rules.launches.attempts.items():
        record = scheduler.core.state.records.get(job_id)
        if record is None or record.state is not JobState.RUNNING or record.holding.changing:
            continue
        if launch.gang.phase is not Phase.RUNNING or launch.resizing is not None or record.allocation is None:
            continue
        for share in record.allocation.nodes:
            entry, node = scheduler.rules.book.entry(share.node), nodes[share.node]
            if entry.agreed and launch.key not in entry.stale and scheduler.hears(node.name) and node.obeys:
                attempt = node.core.get(*launch.key)
                if attempt is None or not attempt.open:
                    if scheduler.rules.book.entry(launch.gang.first).agreed:  # before, its script may have ended
                        yield share.node, job_id, "nothing of it is there"
                elif words := _differs(record.job, record.allocation, share, attempt):
                    yield share.node, job_id, words


def _differs(job: Job, held: Allocation, share: Share, attempt: Attempt) -> str:
    told = attempt.prepare
    assert told is not None
    sleeps = job.resident and held.procs > 0 and not share.procs
    if told.tasks != share.tasks:
        return f"{told.tasks} tasks, not {share.tasks}"
    if told.cpus is not None and (told.cpus, attempt.asleep) != (share.procs or int(sleeps), sleeps):
        return f"{told.cpus} CPUs{' asleep' * attempt.asleep}, not {share.procs}"
    enabled = {each.node: each.procs for each in held.nodes}
    if attempt.map is not None and held.procs and attempt.map.enabled != enabled:
        return f"map {attempt.map.enabled}, not {enabled}"
    return ""


def _confines(scheduler: "Scheduler", group: ModelGroup) -> bool:
    """Whether a group was made under a policy by which it has CPUs of its own: other settings came with a restart."""
    given = group.cpus is not None or group.prepare.fence.epoch == scheduler.rules.fence.epoch
    return given and scheduler.config.policy in _RESHAPES


def _given_twice(scheduler: "Scheduler", nodes: "Mapping[str, Node]") -> Iterator[str]:
    for name, node in nodes.items():
        size = scheduler.rules.book.entry(name).size
        groups = {key: group for key, group in node.model.groups.items() if group.running and not group.asleep}
        given = {key: group.cpus or 0 for key, group in groups.items()}
        # one that was being launched as the scheduler was started anew keeps what it had under other settings
        counted = sum(_cpus_of(scheduler, job_id, name) for job_id, _ in given)
        if size is not None and sum(given.values()) > max(size.procs, counted) and not _kept_out(scheduler, name):
            yield f"{name} has given away more than its {size.procs} CPUs: {given}"


def shared_in_vain(node: "Node", procs: int) -> Iterator[str]:
    """Processors that two jobs of a node use while another of its ``procs`` is idle, in words.

    Jobs whose processes sleep use none, nor do those without a set of their own: several share all CPUs on purpose.
    """
    used: dict[int, list[int]] = {}
    for (job_id, _), group in node.model.groups.items():
        if (group.running or group.starting) and not group.asleep:
            for processor in group.processors:
                used.setdefault(processor, []).append(job_id)
    idle = sorted(set(range(procs)) - used.keys())
    for processor, jobs in used.items():
        if idle and len(jobs) > 1:
            yield f"processor {processor} of {node.name} is used by jobs {jobs}, and processor {idle[0]} is idle"


def _cpus_of(scheduler: "Scheduler", job_id: int, name: str) -> int:
    record = scheduler.core.state.records.get(job_id)
    shares = record.allocation.nodes if record is not None and record.allocation is not None else ()
    return sum(share.procs for share in shares if share.node == name)


def _kept_out(scheduler: "Scheduler", name: str) -> bool:
    """Whether nothing new is started on a node: its guard is away, say, and cannot be told to end what is there."""
    entry = scheduler.rules.book.entry(name)
    return entry.size is None or not entry.agreed or bool(scheduler.drained(name))
