"""Uniform sets of nodes (Hanzich et al. 2005, section 3): where a job's tasks all have the same company, of the other
kind.

The paper gives two rules: (a) tasks of differently oriented applications share a node; (b) a couple of applications run
on the same set of nodes. What it leaves open is reconstructed here, as the design (section 3) has it:

- (a) A newcomer's kind is not the only one on a node that has residents, and of the tasks that share a CPU at most
  half, rounded up, are of one kind. A job of unknown kind counts as computing.
- (b) The nodes of the newcomer are all idle; or one and the same jobs are on all of them, and these jobs are nowhere
  else. A newcomer then has tasks on each node of theirs. Owners are at all of its desks or at none.

Two variants (:class:`Rules`): ``subset`` lets a newcomer have a part of the residents' nodes, and ``any-owners`` does
not ask where owners are.

Of several such sets, the one comes first on which fewest of the job's own tasks share a CPU; then the one whose fullest
node is used least: by memory, then tasks, then CPU; then the one of the first nodes. The tasks are laid evenly; those
that are left over go where least is used, by the same order.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import nsmallest
from itertools import islice
from typing import Final, NamedTuple

from cosched.model.job import Job
from cosched.model.node import Owner
from space_scheduler.feasibility import Room
from space_scheduler.on_nodes import Resident


class Rules(NamedTuple):
    """What a uniform set is. ``subset``: its residents may be elsewhere, too; ``any_owners``: at some of its desks.

    ``earlier``: of the first edition, where sets are ranked by sums, and surplus tasks go to the first nodes.
    """

    subset: bool = False
    any_owners: bool = False
    earlier: bool = False


STRICT: Final = Rules()


def load(residents: Iterable[Resident], owner: Owner | None = None) -> tuple[int, int, int]:
    """How much a node is used: bytes of memory, parallel tasks, thousandths of a CPU."""
    tasks, memory_bytes, cpu_permille = 0, owner.memory_bytes if owner else 0, owner.cpu_permille if owner else 0
    for each in residents:
        memory_bytes += each.tasks * each.memory_bytes
        tasks += each.tasks
        cpu_permille += each.tasks * each.cpu_permille
    return memory_bytes, tasks, cpu_permille


def chosen(room: Room, job: Job, fitting: Sequence[int], rules: Rules = STRICT) -> list[tuple[int, int]] | None:
    """The tasks on a uniform set of nodes, evenly; None where there is no such set."""
    places = _Places(room, job, fitting)
    sets, ranked = _sets(room, job, places, rules), not rules.earlier
    laid = [each for nodes in sets if (each := _evenly(room, nodes, job, places, ranked=ranked))]
    used = _fullest if ranked else _all_used
    return min(laid, key=lambda pairs: (_crowd(room, pairs), used(room, pairs), pairs), default=None)


class _Places(dict[int, int]):
    """How many of a job's tasks each node takes by rule (a), found out when it is asked for."""

    def __init__(self, room: Room, job: Job, fitting: Sequence[int]) -> None:
        super().__init__()
        self._room, self._job, self.fitting = room, job, fitting

    def __missing__(self, index: int) -> int:
        fitting = self.fitting[index]
        self[index] = tasks = _of_the_kind(self._room, index, self._job, fitting) if fitting else 0
        return tasks


def _crowd(room: Room, pairs: Iterable[tuple[int, int]]) -> int:
    """How many of the job's own tasks share a CPU."""
    return max(-(-tasks // (room.cpus[index] if room.cpus else tasks)) for index, tasks in pairs)


def _fullest(room: Room, pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """How much the fullest of these nodes is used: a job is as fast as on its slowest node, however many others."""
    return max(load(room.residents[index], room.owners[index]) for index, _ in pairs)


def _all_used(room: Room, pairs: Iterable[tuple[int, int]]) -> tuple[int, ...]:
    """How much all of these nodes are used together (``Rules.earlier``)."""
    return tuple(map(sum, zip(*(load(room.residents[index], room.owners[index]) for index, _ in pairs), strict=True)))


def _sets(room: Room, job: Job, places: _Places, rules: Rules) -> list[Sequence[int]]:
    """The uniform sets on which the job's tasks find their places."""
    most = min(room.most_nodes, job.procs)
    found: list[Sequence[int]] = _idle(room, job, places, rules, most)
    if not rules.subset:
        return found + [nodes for nodes in _couples(room, rules, most) if places[nodes[0]]]
    return found + [part for nodes in _alike(room, rules) if (part := _roomiest(nodes, job, places, most))]


def _idle(room: Room, job: Job, places: _Places, rules: Rules, most: int) -> list[Sequence[int]]:
    """The roomiest of the nodes on which nobody is: where all owners are away, and where all are there."""
    procs, cpus, fitting = room.procs, room.cpus or room.procs, places.fitting
    takes = {each: _when_idle(*each) for each in set(zip(procs, cpus, fitting, strict=True))}
    found: list[Sequence[int]] = []
    for owned in (None,) if rules.any_owners else (False, True):
        usable: list[int] = []
        for tasks in sorted({*takes.values()} - {0}, reverse=True):
            roomy = {each for each, here in takes.items() if here == tasks}
            each_node = enumerate(zip(procs, cpus, fitting, strict=True))
            nodes = (index for index, each in each_node if each in roomy and _is_idle(room, index, owned))
            usable += islice(nodes, most - len(usable))  # most often the first ones of all
            if len(usable) == most:
                break
        if sum(takes[procs[index], cpus[index], fitting[index]] for index in usable) >= job.procs:
            found.append(sorted(usable))
    return found


def _is_idle(room: Room, index: int, owned: bool | None) -> bool:
    """Whether nobody is on a node; and whether its owner is there or not, where that is asked."""
    return not room.residents[index] and (owned is None or (room.owners[index] is not None) == owned)


def _alike(room: Room, rules: Rules) -> list[list[int]]:
    """The nodes that have residents, by who these are, and by whether an owner is there."""
    alike: dict[tuple[frozenset[int], bool], list[int]] = {}
    for index, residents in enumerate(room.residents):
        if residents:
            owned = not rules.any_owners and room.owners[index] is not None
            alike.setdefault((frozenset([each.job_id for each in residents]), owned), []).append(index)
    return list(alike.values())


def _couples(room: Room, rules: Rules, most: int) -> Iterator[Sequence[int]]:
    """The sets, of so many nodes at most, of which each has the same residents, who are nowhere else."""
    nodes_of, owners = room.nodes_of, room.owners
    for job_id, nodes in nodes_of.items():
        if len(nodes) > most:
            continue
        company = {each.job_id for each in room.residents[nodes[0]]}
        if job_id != min(company) or any(nodes_of[other] != nodes for other in company):
            continue  # another of these jobs stands for them, or one is elsewhere, too
        if any(len(room.residents[index]) > len(company) for index in nodes):
            continue  # somebody else is on some of them
        if rules.any_owners or len({owners[index] is None for index in nodes}) == 1:
            yield nodes


def _roomiest(nodes: Iterable[int], job: Job, places: _Places, most: int) -> list[int] | None:
    """As many of these as the job has tasks, or as there are, if they take it; the roomiest where not all may."""
    usable = [index for _, index in nsmallest(most, [(-places[index], index) for index in nodes if places[index]])]
    return sorted(usable) if sum(places[index] for index in usable) >= job.procs else None


def _of_the_kind(room: Room, index: int, job: Job, fitting: int) -> int:
    """How many of the job's tasks a node takes, if it may have company of the other kind alone: rule (a)."""
    residents = room.residents[index]
    if not residents:
        return _when_idle(room.procs[index], room.cpus[index] if room.cpus else room.procs[index], fitting)
    same = [each.tasks for each in residents if _kind(each.kind) == _kind(job.kind)]
    if len(same) == len(residents):
        return 0
    places = max(0, room.procs[index]) + sum(each.tasks for each in residents)
    cpus = room.cpus[index] if room.cpus else places
    level = -(-places // max(1, cpus))
    return max(0, min(fitting, cpus * ((level + 1) // 2) - sum(same)))


def _when_idle(procs: int, cpus: int, fitting: int) -> int:
    """How many tasks a node takes on which nobody is: half of what it could, rounded up to whole levels."""
    cpus = max(1, cpus)
    return max(0, min(fitting, cpus * ((-(-procs // cpus) + 1) // 2)))


def _kind(kind: str) -> str:
    return kind or "cpu"


def _evenly(
    room: Room, nodes: Sequence[int], job: Job, places: _Places, *, ranked: bool
) -> list[tuple[int, int]] | None:
    """The tasks on all of these nodes, as evenly as they fit, surplus ones where least is used; None: no room."""
    tasks = dict.fromkeys(sorted(nodes), 0)
    left = job.procs
    while left:
        open_ = [index for index in tasks if tasks[index] < places[index]]
        if not open_:
            return None
        if ranked and left < len(open_):
            open_.sort(key=lambda index: load(room.residents[index], room.owners[index]))  # stable: ties by order
        for index in open_[:left]:
            tasks[index] += 1
        left -= min(left, len(open_))
    return list(tasks.items()) if all(tasks.values()) else None


def of_the_kind(room: Room, job: Job) -> list[int]:
    """How many tasks of the job each node takes by rule (a)."""
    places = _Places(room, job, room.tasks(job))
    return [places[index] for index in range(len(room.names))]


def allows(room: Room, job: Job, pairs: Sequence[tuple[int, int]], rules: Rules = STRICT) -> bool:
    """Whether these places, (index of a node, tasks), keep both rules for the newcomer and the residents."""
    nodes = [index for index, _ in pairs]
    jobs = {frozenset(each.job_id for each in room.residents[index]) for index in nodes}
    if len(jobs) != 1 or not (rules.any_owners or len({room.owners[index] is None for index in nodes}) == 1):
        return False
    inside, residents = set(nodes), next(iter(jobs))
    if not rules.subset and any(not inside.issuperset(room.nodes_of[job_id]) for job_id in residents):
        return False
    return all(tasks <= _of_the_kind(room, index, job, room.tasks_at(index, job)) for index, tasks in pairs)
