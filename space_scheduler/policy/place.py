"""On which of the nodes a job's tasks go: small pure functions by name.

Each gets how many tasks fit on each node (in the nodes' order), and answers with (index of a node, tasks) pairs, in the
nodes' order. It is asked only when there is a place: when the nodes that take most, as many as may be used, take all
tasks. What fits, by processors (the multiprogramming level has been counted in) and memory, is
:class:`~space_scheduler.feasibility.Room`'s to say; these choose. Uniform's rules are in
:mod:`~space_scheduler.policy.uniform`.
"""

from collections.abc import Sequence
from heapq import heapify, heapreplace, nlargest
from typing import Final

from cosched.model.job import Job
from space_scheduler.feasibility import Place, Room
from space_scheduler.policy import uniform


def first_fit(fitting: Sequence[int], tasks: int, most_nodes: int) -> list[tuple[int, int]]:
    """Fill one node after the other; a node so small that the job would not end within its nodes is passed over."""
    chosen: list[tuple[int, int]] = []
    for index, room in enumerate(fitting):
        here = min(room, tasks)
        if not here or tasks - here > sum(nlargest(most_nodes - len(chosen) - 1, fitting[index + 1 :])):
            continue
        chosen.append((index, here))
        tasks -= here
        if not tasks:
            break
    return chosen


def spread(fitting: Sequence[int], tasks: int, most_nodes: int) -> list[tuple[int, int]]:
    """One task to each node in turn, over as many nodes as may be used; the roomiest where not all may."""
    usable = sorted(range(len(fitting)), key=lambda index: (-fitting[index], index))[: min(most_nodes, tasks)]
    chosen = dict.fromkeys(sorted(usable), 0)
    while tasks:
        for index in chosen:
            if tasks and chosen[index] < fitting[index]:
                chosen[index] += 1
                tasks -= 1
    return [(index, here) for index, here in chosen.items() if here]


def normal(room: Room, job: Job, fitting: Sequence[int]) -> list[tuple[int, int]]:
    """Normal (Hanzich et al. 2005, section 3): each task to the node whose memory is used least, then tasks, then CPU.

    Where not all nodes may be used, those in this order with which the job still finds its place.
    """
    ranks = [(*uniform.load(*each), index) for index, each in enumerate(zip(room.residents, room.owners, strict=True))]
    order = sorted((index for index, tasks in enumerate(fitting) if tasks), key=lambda index: ranks[index])
    nodes = min(room.most_nodes, job.procs)
    usable = order[:nodes]
    held = sum(fitting[index] for index in usable)
    if held < job.procs:  # not the first ones, then
        usable, held = [], 0
    for at, index in enumerate(() if usable else order):
        others = nlargest(nodes - len(usable) - 1, (fitting[other] for other in order[at + 1 :]))
        if len(usable) < nodes and held + fitting[index] + sum(others) >= job.procs:
            usable.append(index)
            held += fitting[index]
    heap = [ranks[index] for index in usable]
    heapify(heap)
    chosen = dict.fromkeys(sorted(usable), 0)
    for _ in range(job.procs):
        while chosen[heap[0][3]] == fitting[heap[0][3]]:
            heapreplace(heap, (heap[0][0] + _FULL, *heap[0][1:]))
        memory_bytes, tasks, cpu_permille, index = heap[0]
        chosen[index] += 1
        heapreplace(heap, (memory_bytes + job.memory_bytes, tasks + 1, cpu_permille + job.cpu_permille, index))
    return [(index, here) for index, here in chosen.items() if here]


def uniform_light(room: Room, job: Job, fitting: Sequence[int]) -> list[tuple[int, int]]:
    """A uniform set of nodes where there is one, else Normal's."""
    return uniform.chosen(room, job, fitting) or normal(room, job, fitting)


#: More memory than there is: a node that takes no more tasks comes last.
_FULL: Final = 1 << 80

PLACES: Final[dict[str, Place]] = {
    "first-fit": Place(lambda room, job, fitting: first_fit(fitting, job.procs, room.most_nodes)),
    "spread": Place(lambda room, job, fitting: spread(fitting, job.procs, room.most_nodes)),
    "normal": Place(normal),
    "uniform-light": Place(uniform_light),
    "uniform-hard": Place(uniform.chosen, uniform.allows),
}
