"""The numbers of why a job has no place on named nodes: what it needs, and how much of that there is."""

from collections.abc import Iterable, Sequence
from heapq import nlargest

from cosched.model.job import Job
from cosched.model.width import Components
from space_scheduler.clusters import Clusters, most_components
from space_scheduler.reasons import Why


def shortage(
    why: Why,
    job: Job,
    tasks: Sequence[int],
    free_procs: int,
    memory_bytes: Sequence[int],
    most_nodes: int,
    clusters: Clusters | None,
) -> dict[str, int]:
    """The numbers of what keeps a job from having a place, where so many of its ``tasks`` fit on each node.

    ``memory_bytes`` are free on each node, ``most_nodes`` one job may use; ``clusters``, where it has to lie on those.
    """
    if why is Why.NOT_ENOUGH_FREE:
        return {"procs": job.procs, "free_procs": free_procs}
    if why is Why.NO_CLUSTERS and clusters is not None:
        shape, most = job.shape, most_components(job)
        widest = max(shape.procs) if isinstance(shape, Components) else -(-job.procs // most)
        free = clusters.fitting(tasks, most_nodes)
        numbers = {"procs": job.procs, "components": most, "widest_procs": widest}
        return {**numbers, "freest_procs": max(free), "clusters": len(free)}
    rules = why in (Why.SPREAD_OUT, Why.NO_UNIFORM_SET)
    usable = nlargest(most_nodes, tasks) if rules and clusters is None else tasks
    numbers = {"procs": job.procs, "fitting_procs": sum(usable)}
    if why is Why.SPREAD_OUT:
        return {**numbers, "max_nodes": most_nodes}
    if why is Why.NO_UNIFORM_SET:
        return numbers
    numbers["task_memory_bytes"] = job.memory_bytes
    if why is Why.NOT_ENOUGH_CPU:
        numbers["task_cpu_permille"] = job.cpu_permille
    return {**numbers, "free_memory_bytes": free_bytes(memory_bytes)}


def free_bytes(memory_bytes: Iterable[int]) -> int:
    """How much memory is free on all nodes together, where so much is on each; negative counts as nothing."""
    return sum(free for free in memory_bytes if free > 0)
