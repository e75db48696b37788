"""On which of the nodes a job's tasks go: small pure functions by name.

Each gets how many tasks fit on each node (in the nodes' order), how many there are and on how many nodes they may lie,
and answers with (index of a node, tasks) pairs, in the nodes' order. It is asked only when there is a place: when the
nodes that take most, as many as may be used, take them all.
"""

from collections.abc import Sequence
from heapq import nlargest
from typing import Final

from space_scheduler.feasibility import Place


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


PLACES: Final[dict[str, Place]] = {"first-fit": first_fit, "spread": spread}
