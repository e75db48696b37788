"""On which of the nodes a job's tasks go: small pure functions by name.

Each gets how many tasks fit on each node (in the nodes' order), and answers with (index of a node, tasks) pairs, in the
nodes' order. It is asked only when there is a place: when the nodes that take most, as many as may be used, take all
tasks. What fits, by processors (the multiprogramming level has been counted in) and memory, is
:class:`~space_scheduler.feasibility.Room`'s to say; these choose. Uniform's rules are in
:mod:`~space_scheduler.policy.uniform`. A name may have variants in parentheses, see :func:`place_of`.
"""

import re
from collections.abc import Sequence
from functools import cache, partial
from heapq import heapify, heapreplace, nlargest
from typing import Final

from cosched.errors import BadInput, nearest
from cosched.model.job import Job
from space_scheduler.feasibility import Place, Room
from space_scheduler.on_nodes import FIELDS, Field
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


def freest_first(fitting: Sequence[int], tasks: int, most_nodes: int) -> list[tuple[int, int]]:
    """Fill the node that takes most tasks, then the next: the fewest nodes; of nodes alike the first."""
    chosen = []
    for index in sorted(range(len(fitting)), key=lambda at: (-fitting[at], at))[:most_nodes]:
        if here := min(fitting[index], tasks):
            chosen.append((index, here))
            tasks -= here
    return sorted(chosen)


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


def uniform_light(
    room: Room, job: Job, fitting: Sequence[int], rules: uniform.Rules = uniform.STRICT
) -> list[tuple[int, int]]:
    """A uniform set of nodes where there is one, else Normal's."""
    return uniform.chosen(room, job, fitting, rules) or normal(room, job, fitting)


#: More memory than there is: a node that takes no more tasks comes last.
_FULL: Final = 1 << 80

PLACES: Final[dict[str, Place]] = {
    "first-fit": Place(lambda room, job, fitting: first_fit(fitting, job.procs, room.most_nodes)),
    "spread": Place(lambda room, job, fitting: spread(fitting, job.procs, room.most_nodes)),
    "worst-fit": Place(lambda room, job, fitting: freest_first(fitting, job.procs, room.most_nodes)),
    "normal": Place(normal, alike_in=frozenset({Field.CPU}), looks_at_company=True),
    "uniform-light": Place(uniform_light, alike_in=FIELDS, looks_at_company=True),
    "uniform-hard": Place(
        uniform.chosen, uniform.allows, alike_in=frozenset({Field.KIND}), looks_at_company=True, by_company=True
    ),
}
#: What may stand in the parentheses.
VARIANTS: Final[dict[str, str]] = {
    "overcommit=X": "tasks and owner together use at most X times a node's CPUs (max_cpu_overcommit)",
    "subset": "of Uniform: a part of a resident's nodes will do (uniform_subset)",
    "any-owners": "of Uniform: owners may be at some of a job's desks and not at others",
    "share-clusters": "components of one job may lie on one cluster, each where most is free then",
    "mpl=N": "at most N tasks on a CPU; with mpl=1 predicted ends stay, so every selection goes with it",
}
#: Digits of a number in a policy's name.
LONGEST_NUMBER: Final = 9
_SPEC: Final = re.compile(r"\s*([a-z-]+)\s*(?:\(([^()]*)\))?\s*")
_MOST_OVERCOMMIT: Final = 1000.0


@cache
def place_of(spec: str, where: str = "place", *, earlier: bool = False) -> Place:
    """The way of that name, with its variants: ``normal(overcommit=1.5)``, ``uniform-hard(subset,any-owners)``.

    ``where`` is the option or key that it was given by; ``earlier``: as journals of the first edition have it
    (``machine.rules.EDITION``). Raises :class:`BadInput`, with the nearest.
    """
    match = _SPEC.fullmatch(spec)
    name = match[1] if match else spec
    if name not in PLACES:
        raise BadInput(where, f"{spec!r}", "one of " + ", ".join(PLACES), nearest=nearest(name, PLACES))
    earlier = earlier and name.startswith("uniform")
    place, rules = PLACES[name]._replace(one_scan=earlier), uniform.STRICT._replace(earlier=earlier)
    words = match[2].split(",") if match and match[2] is not None else []
    for word in map(str.strip, words):
        key, _, value = word.partition("=")
        if key == "overcommit":
            most = _overcommit(spec, value, where)
            place = place._replace(most_cpu_permille=most, alike_in=place.alike_in | {Field.CPU}, looks_at_company=True)
        elif word in ("subset", "any-owners") and name.startswith("uniform"):
            rules = rules._replace(**{word.replace("-", "_"): True})
        elif word == "share-clusters":
            place = place._replace(share_clusters=True)
        elif key == "mpl":  # what a policy declares beside its place: see mpl_of
            if not value.isdecimal() or len(value) > LONGEST_NUMBER or int(value) < 1:
                raise BadInput(where, f"{value!r} in {spec!r}", "a whole number of at least 1")
        else:
            raise BadInput(where, f"{word!r} in {spec!r}", "of " + ", ".join(VARIANTS), nearest=nearest(key, VARIANTS))
    if rules != uniform.STRICT:
        lay = uniform.chosen if place.refuses else uniform_light
        allows = partial(uniform.allows, rules=rules) if place.refuses else None
        place = place._replace(lay=partial(lay, rules=rules), allows=allows)
    return place


def mpl_of(spec: str) -> int | None:
    """How many tasks may share a CPU, where a place's name says it: ``normal(mpl=1)``."""
    found = re.search(r"[(,]\s*mpl=(\d{1,9})\s*[,)]", spec)
    return int(found[1]) if found else None


def _overcommit(spec: str, value: str, where: str) -> int:
    try:
        times = float(value)
    except ValueError:
        times = 0.0
    if not 0 < times <= _MOST_OVERCOMMIT:
        raise BadInput(where, f"{value!r} in {spec!r}", f"a number above 0, at most {_MOST_OVERCOMMIT:g}")
    return round(1000 * times)
