"""Which of a node's processors each job has as its own: no two jobs use one while another is idle.

A job keeps of its own those that no other job uses, then takes idle ones, and only then such as another job uses, the
least used first. A processor is idle where no job uses it: one whose job sleeps, or has no process just now and may
start one, is taken after those that no job was given at all.
"""

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple


class Claim(NamedTuple):
    """The processors that a job was given.

    ``used``: its processes run, or its first is being started; else they sleep, or none is there and more may come. A
    job that has ended has no claim.
    """

    processors: tuple[int, ...]
    used: bool = True


def chosen(count: int, own: Collection[int], others: Collection[Claim], procs: int, cpus: int) -> tuple[int, ...]:
    """So many of a node's ``procs`` processors (all, where it has fewer) for a job that has ``own``, in order.

    The p-th processor is CPU ``p % cpus`` of the machine: where a node offers more processors than the machine has
    CPUs, equally good ones are taken on CPUs that the job does not have yet, then on those with the least of others.
    """
    used = Counter(place for claim in others if claim.used for place in claim.processors)
    lent = Counter(place for claim in others if not claim.used for place in claim.processors)
    beside = Counter(place % cpus for place in used.elements())
    left, found, on = set(range(procs)), list[int](), Counter[int]()

    def rank(place: int) -> tuple[int, bool, int, int, int, int]:
        cpu = place % cpus
        return used[place], place not in own, lent[place], on[cpu], beside[cpu], place

    while left and len(found) < count:
        place = min(left, key=rank)
        left.discard(place)
        found.append(place)
        on[place % cpus] += 1
    return tuple(sorted(found))


def crowded(claims: Sequence[Claim], procs: int) -> int | None:
    """The last of these claims that is used and shares a processor with another one, while a processor is idle.

    An index; None where there is no such claim, or all ``procs`` processors are used.
    """
    used = Counter(place for claim in claims if claim.used for place in claim.processors)
    if used.keys() >= set(range(procs)):
        return None
    for index, claim in reversed([*enumerate(claims)]):
        if claim.used and any(used[place] > 1 for place in claim.processors):
            return index
    return None
