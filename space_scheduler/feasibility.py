"""May this job start now? The one feasibility function: it plans, checks the plan at its application, and explains.

A dedicated machine has one resource, processors, and at most one promise that a newcomer can break: the reservation of
the job at the head, described by its *shadow time* and the *extra* processors left over then (Feitelson & Weil 1998,
section 2.2, Fig. 5, step 2b). Without a reservation the shadow time is :data:`~cosched.model.time.FOREVER_US`. That is
:func:`obstacle`.

Where nodes have names, a job's tasks each take a processor and the task's memory on some node, at most so many nodes
for a job: a :class:`Room` says what is free, now or throughout a stretch of the future, and :meth:`Room.obstacle` is
the same question. It has one answer whatever the order of placing: there is a place if, and only if, the nodes that a
job may use take enough tasks.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Final, NamedTuple

import msgspec

from cosched.model.allocation import Allocation, Share
from cosched.model.job import Job
from cosched.model.node import Owner
from cosched.model.time import FOREVER_US
from cosched.model.width import Components
from space_scheduler.clusters import Clusters, lasts_us, most_components
from space_scheduler.on_nodes import NO_BANS, Field, Limit, Resident, resident
from space_scheduler.reasons import Reason, Why
from space_scheduler.shortage import free_bytes, shortage

# What is found for each shape of job that waits, at each pass: an enum's member is slow to look up in its class
# (``cosched.model.job.QUEUED``).
_NO_CLUSTERS: Final = Why.NO_CLUSTERS
_NOT_ENOUGH_FREE: Final = Why.NOT_ENOUGH_FREE
_WOULD_DELAY_RESERVATION: Final = Why.WOULD_DELAY_RESERVATION


class Place(NamedTuple):
    """A way of laying a job's tasks on nodes, and what it declares of itself.

    ``lay(room, job, fitting)`` gets how many tasks fit on each node and answers with (index of a node, tasks) pairs in
    the nodes' order, or None where the rule has no place though enough tasks fit: only one that ``refuses`` does so.
    That one ``allows(room, job, pairs)`` what keeps its rule, whoever chose it. ``most_cpu_permille``: how much of each
    of a node's CPUs tasks and owner may use together, in thousandths; None: any, since CPU can be squeezed.

    ``alike_in``: in which fields jobs have to be the same to be alike for it. ``looks_at_company``: it matters who is
    on a node, to where tasks go or whether they may. ``by_company``: who is there, and not only how much is free,
    decides whether a job has a place; so a start can make room for another, and an end can take it away.
    ``share_clusters``: components of one job may lie on one cluster. ``one_scan``: a scan goes on after a start that
    can make room for the head, as in the first edition of the rules.
    """

    lay: "Callable[[Room, Job, Sequence[int]], list[tuple[int, int]] | None]"
    allows: "Callable[[Room, Job, Sequence[tuple[int, int]]], bool] | None" = None
    most_cpu_permille: int | None = None
    alike_in: frozenset[Field] = frozenset()
    looks_at_company: bool = False
    by_company: bool = False
    share_clusters: bool = False
    one_scan: bool = False

    @property
    def refuses(self) -> bool:
        """Whether it lets a job wait though enough tasks fit."""
        return self.allows is not None


def obstacle(
    procs: int, estimate_us: int, now_us: int, free_procs: int, shadow_us: int = FOREVER_US, extra_procs: int = 0
) -> Why | None:
    """What keeps a job of this shape from starting at ``now_us``, or None.

    Intervals are half-open: a job that ends at the shadow time does not delay the reservation.
    """
    if procs > free_procs:
        return _NOT_ENOUGH_FREE
    if procs > extra_procs and now_us + estimate_us > shadow_us:
        return _WOULD_DELAY_RESERVATION
    return None


def longest_us(procs: int, now_us: int, free_procs: int, shadow_us: int, extra_procs: int) -> int:
    """The longest estimate with which :func:`obstacle` lets so many processors start at ``now_us``; -1: none."""
    if procs > free_procs:
        return -1
    return FOREVER_US if procs <= extra_procs else shadow_us - now_us


class Room:
    """What is free on named nodes: processors and bytes of memory, in the nodes' order. Negative counts as nothing.

    ``most_nodes`` is the number of nodes that one job may use, ``place`` how its tasks are laid on them, ``residents``
    who is on each node, ``cpus`` how many CPUs they share there (none given: each task has one of its own), ``owners``
    who is at its desk, ``places`` how many tasks a node could have if nobody were there (none given: as many as are
    free), ``clusters`` which clusters the nodes belong to, where there are several. ``bans`` are the names of the nodes
    that take no jobs of a user, by user.
    """

    __slots__ = (
        "_free_procs", "_index", "_nodes_of", "bans", "clusters", "cpus", "memory_bytes", "most_nodes", "names",
        "owners", "place", "places", "procs", "residents", "used_permille",
    )  # fmt: skip

    def __init__(
        self,
        names: Sequence[str],
        procs: list[int],
        memory_bytes: list[int],
        most_nodes: int | None,
        place: Place,
        residents: Sequence[tuple[Resident, ...]] = (),
        cpus: Sequence[int] = (),
        owners: Sequence[Owner | None] = (),
        places: Sequence[int] = (),
        clusters: Clusters | None = None,
        bans: Mapping[int, frozenset[str]] = NO_BANS,
    ) -> None:
        self.names = names
        self.procs = procs
        self.memory_bytes = memory_bytes
        self.most_nodes = len(names) if most_nodes is None else most_nodes
        self.place = place
        self.residents = list(residents) or [()] * len(names)
        self.cpus = cpus
        self.owners = owners or [None] * len(names)
        self.places = places or tuple(procs)
        self.clusters = clusters
        self.bans = bans
        self.used_permille: Sequence[int] | None = None  # of each node's CPUs, by tasks; None: by those of residents
        self._index: dict[str, int] | None = None
        self._nodes_of: dict[int, tuple[int, ...]] | None = None
        self._free_procs: int | None = None

    def copy(self) -> "Room":
        """An independent copy, for planning."""
        other = Room.__new__(Room)  # several at each pass: without a call for each of them
        other.names, other.most_nodes, other.place = self.names, self.most_nodes, self.place
        other.procs, other.memory_bytes = self.procs.copy(), self.memory_bytes.copy()
        other.residents, other.cpus, other.owners = self.residents.copy(), self.cpus, self.owners
        other.places, other.clusters, other.bans, other.used_permille = self.places, self.clusters, self.bans, None
        other._index, other._free_procs = self._index, self._free_procs
        other._nodes_of = None if self._nodes_of is None else self._nodes_of.copy()
        return other

    def with_free(self, procs: list[int], memory_bytes: list[int]) -> "Room":
        """The same nodes, residents and rules with other figures."""
        other = Room(
            self.names, procs, memory_bytes, self.most_nodes, self.place, self.residents, self.cpus, self.owners,
            self.places, self.clusters, self.bans,
        )  # fmt: skip
        other._index = self._index
        return other

    def on_clusters_of(self, indices: Iterable[int]) -> "Room":
        """What is free on the clusters of these nodes, as on one cluster: of other nodes, nothing."""
        if self.clusters is None:
            return self
        of = self.clusters.of
        kept = {of[index] for index in indices}
        procs = [each if cluster in kept else min(0, each) for each, cluster in zip(self.procs, of, strict=True)]
        other = self.with_free(procs, self.memory_bytes)
        other.clusters = None
        return other

    @property
    def nodes_of(self) -> Mapping[int, tuple[int, ...]]:
        """The nodes on which each resident job is: their indices, rising."""
        if self._nodes_of is None:
            found: dict[int, list[int]] = {}
            for index, residents in enumerate(self.residents):
                for each in residents:
                    found.setdefault(each.job_id, []).append(index)
            self._nodes_of = {job_id: tuple(nodes) for job_id, nodes in found.items()}
        return self._nodes_of

    @property
    def free_procs(self) -> int:
        """Processors free on all nodes together."""
        if self._free_procs is None:
            self._free_procs = sum([procs for procs in self.procs if procs > 0])
        return self._free_procs

    def tasks(self, job: Job) -> list[int]:
        """How many tasks of the job fit on each node."""
        fitting = self._by_memory(job)
        if (most := self.place.most_cpu_permille) is None or not job.cpu_permille:
            return fitting
        return [self._by_cpu(index, job, tasks, most) if tasks else 0 for index, tasks in enumerate(fitting)]

    def tasks_at(self, index: int, job: Job) -> int:
        """How many tasks of the job fit on the node of that index."""
        tasks = self.tasks_on(index, job, self.procs[index], self.memory_bytes[index]) if self.procs[index] > 0 else 0
        if (most := self.place.most_cpu_permille) is None or not job.cpu_permille or not tasks:
            return tasks
        return self._by_cpu(index, job, tasks, most)

    def _by_cpu(self, index: int, job: Job, tasks: int, most: int) -> int:
        """How many of so many tasks a node's CPUs are admitted for, where so much of each may be used."""
        return min(tasks, max(0, self._cpu_left_permille(index, most)) // job.cpu_permille)

    def _cpu_left_permille(self, index: int, most: int) -> int:
        """What more may be used of a node's CPUs, in thousandths of one, where so much of each may."""
        if self.used_permille is None:
            used = sum(each.tasks * each.cpu_permille for each in self.residents[index])
        else:
            used = self.used_permille[index]
        owner = self.owners[index]
        cpus = (
            self.cpus[index] if self.cpus else max(0, self.procs[index]) + sum(r.tasks for r in self.residents[index])
        )
        return most * cpus - used - (owner.cpu_permille if owner else 0)

    def _by_memory(self, job: Job) -> list[int]:
        if job.avoid or job.user in self.bans:
            each = enumerate(zip(self.procs, self.memory_bytes, strict=True))
            return [self.tasks_on(i, job, procs, memory_bytes) if procs > 0 else 0 for i, (procs, memory_bytes) in each]
        needed = job.memory_bytes
        if needed and needed * max(self.procs, default=0) > min(self.memory_bytes, default=0):  # else it is no limit
            both = zip(self.procs, self.memory_bytes, strict=True)
            return [
                (procs if memory >= procs * needed else memory // needed) if procs > 0 and memory >= needed else 0
                for procs, memory in both
            ]
        return [procs if procs > 0 else 0 for procs in self.procs]

    def tasks_on(self, index: int, job: Job, procs: int, memory_bytes: int) -> int:
        """How many tasks of the job the node of that index takes when it has so much free."""
        if (job.avoid and self.names[index] in job.avoid) or (self.bans and self._banned(index, job)):
            return 0
        if needed := job.memory_bytes:
            procs = min(procs, memory_bytes // needed)
        return max(0, procs)

    def limit(self, index: int, job: Job) -> Limit | None:
        """Why the node of that index takes no task of the job, whatever the others do; None: it does."""
        if self.names[index] in job.avoid:
            return Limit.AVOIDED
        if self._banned(index, job):
            return Limit.BANNED
        if self.procs[index] <= 0:
            return Limit.PLACES
        if self.tasks_on(index, job, self.procs[index], self.memory_bytes[index]) == 0:
            return Limit.MEMORY
        most = self.place.most_cpu_permille
        return Limit.CPU if most is not None and self._cpu_left_permille(index, most) < job.cpu_permille else None

    def obstacle(self, job: Job) -> Reason | None:
        """Why the job has no place here, with the numbers, or None."""
        found = self._obstacle(job)
        if found and job.avoid and not self._obstacle(msgspec.structs.replace(job, avoid=())):
            numbers = {"procs": job.procs, "fitting_procs": sum(self.tasks(job))}
            return Reason(Why.AVOIDS_NODES, numbers, ", ".join(job.avoid))
        if (
            found
            and job.user in self.bans
            and not self.without_bans()._obstacle(msgspec.structs.replace(job, avoid=()))
        ):
            numbers = {"procs": job.procs, "fitting_procs": sum(self.tasks(job))}
            return Reason(Why.NOT_TAKEN, numbers, ", ".join(n for n in self.names if n in self.bans[job.user]))
        return found

    def without_bans(self) -> "Room":
        """The same, as if every owner took everybody's jobs."""
        other = self.copy()
        other.bans = NO_BANS
        return other

    def _banned(self, index: int, job: Job) -> bool:
        """Whether the owner of the node of that index does not take the job's user."""
        return self.names[index] in self.bans.get(job.user, ())

    def _obstacle(self, job: Job) -> Reason | None:
        why, tasks, _ = self._looked(job)
        if why is None:
            return None
        clusters = self._clusters(tasks) if self._over_clusters(job) else None
        return Reason(why, shortage(why, job, tasks, self.free_procs, self.memory_bytes, self.most_nodes, clusters))

    def _looked(self, job: Job) -> tuple[Why | None, Sequence[int], list[tuple[int, int]] | None]:
        """Why the job has no place; else how many tasks fit on each node, and where they go if that had to be known."""
        if job.procs > self.free_procs:
            return _NOT_ENOUGH_FREE, (), None
        tasks = self.tasks(job)
        if job.procs > sum(tasks):
            return self._too_few(job), tasks, None
        if self._over_clusters(job):
            return self._looked_over_clusters(job, tasks)
        if self.most_nodes < len(tasks) and job.procs > sum(nlargest(self.most_nodes, tasks)):
            return Why.SPREAD_OUT, tasks, None
        if not self.place.refuses:
            return None, tasks, None
        chosen = self.place.lay(self, job, tasks)
        return (Why.NO_UNIFORM_SET if chosen is None else None), tasks, chosen

    def _too_few(self, job: Job) -> Why:
        """Why the nodes take fewer tasks of a job than processors are free."""
        if self.place.most_cpu_permille is not None and job.procs <= sum(self._by_memory(job)):
            return Why.NOT_ENOUGH_CPU
        lacking = job.procs * job.memory_bytes > free_bytes(self.memory_bytes)
        return Why.NOT_ENOUGH_MEMORY if lacking else Why.FRAGMENTED

    def _looked_over_clusters(
        self, job: Job, tasks: list[int]
    ) -> tuple[Why | None, Sequence[int], list[tuple[int, int]] | None]:
        """The same for a job that could have enough tasks, where each of its components has to lie on one cluster."""
        clusters = self._clusters(tasks)
        placed = clusters.placed(job, clusters.fitting(tasks, self.most_nodes), self.place.share_clusters)
        if placed is None:
            return _NO_CLUSTERS, tasks, None
        laid = clusters.laid(placed, tasks, lambda width, fitting: self.place.lay(self, job.at(width), fitting))
        if laid is None or (self.place.allows and not self.place.allows(self, job, laid)):
            return Why.NO_UNIFORM_SET, tasks, None
        return (Why.SPREAD_OUT if len(laid) > self.most_nodes else None), tasks, laid

    def laid_over_clusters(
        self, job: Job, tasks: Sequence[int], lay: Callable[[int, Sequence[int]], list[tuple[int, int]] | None]
    ) -> list[tuple[int, int]] | None:
        """(index of a node, tasks) of a job where so many fit on each node, each of its components on one cluster.

        ``lay`` lays so many of them on nodes of one cluster, where so many fit on each. None: there is no place.
        """
        if not self._over_clusters(job):
            return lay(job.procs, tasks)
        clusters = self._clusters(tasks)
        placed = clusters.placed(job, clusters.fitting(tasks, self.most_nodes), self.place.share_clusters)
        return None if placed is None else clusters.laid(placed, tasks, lay)

    def _over_clusters(self, job: Job) -> bool:
        """Whether it matters on which clusters the nodes of a job are."""
        return self.clusters is not None or isinstance(job.shape, Components)

    def _clusters(self, tasks: Sequence[int]) -> Clusters:
        return self.clusters or Clusters(("",), (0,) * len(tasks))

    def lasts_us(self, job: Job, allocation: Allocation) -> int:
        """How long the job is predicted to take there, in microseconds: on several clusters, longer than on one."""
        if self.clusters is None or most_components(job) == 1:
            return job.estimate_us
        return lasts_us(job, self.clusters.cost_ppm(job, [at for at, _ in self.indices(allocation)]))

    def longest_us(self, job: Job) -> int:
        """The longest that the job can be predicted to take, in microseconds, wherever it lies."""
        return job.estimate_us if self.clusters is None else self.clusters.longest_us(job)

    def placed(self, job: Job) -> Allocation | None:
        """A place for the job, or None where there is an obstacle."""
        if self.clusters is not None and self.clusters.alone and _widest(job) > max(self.procs):
            return None  # most who wait for a place on clusters are told so here, and how much fits where is not asked
        why, tasks, chosen = self._looked(job)
        if why:
            return None
        chosen = chosen or self.place.lay(self, job, tasks)
        assert chosen is not None
        return Allocation(job.procs, tuple([Share(self.names[index], tasks) for index, tasks in chosen]))

    def misfit(self, job: Job, allocation: Allocation) -> str | None:
        """What is wrong with this place for this job here, in words, or None."""
        problem = self._too_much(job, allocation)
        if problem is None and self.place.allows and not self.place.allows(self, job, self.indices(allocation)):
            return "these nodes are no uniform set"
        if problem is None and self._over_clusters(job):
            return self._clusters(self.procs).misfit(job, self.indices(allocation), self.place.share_clusters)
        return problem

    def _too_much(self, job: Job, allocation: Allocation) -> str | None:
        index = self.index
        tasks = procs = 0
        for share in allocation.nodes:
            if share.node not in index:
                return f"node {share.node} is not in service"
            if problem := self._share_too_much(index[share.node], job, share):
                return problem
            tasks, procs = tasks + share.tasks, procs + share.procs
        if len(allocation.nodes) > 1 and len({share.node for share in allocation.nodes}) != len(allocation.nodes):
            return "a node is named twice"
        if (tasks, procs) != (allocation.processes, allocation.procs) or tasks != job.procs:
            return f"places for {tasks} tasks"
        if len(allocation.nodes) > self.most_nodes:
            return f"{len(allocation.nodes)} nodes, and a job may use {self.most_nodes}"
        return None

    def _share_too_much(self, at: int, job: Job, share: Share) -> str | None:
        """What is wrong with a share on the node of that index, in words, or None."""
        if share.cpus is None:
            takes = self.tasks_at(at, job)
            return (
                None if 1 <= share.tasks <= takes else f"{share.tasks} tasks on node {share.node}, which takes {takes}"
            )
        needed_bytes = share.tasks * job.memory_bytes  # folded: tasks share processors, each has its memory
        if (
            share.node in job.avoid
            or self._banned(at, job)
            or share.cpus > self.procs[at]
            or needed_bytes > max(0, self.memory_bytes[at])
        ):
            return f"{share.tasks} tasks on {share.cpus} CPUs of node {share.node}, which has {self.procs[at]} free"
        if job.resident and share.tasks > self.places[at]:
            return f"{share.tasks} tasks on node {share.node}, which has {self.places[at]} processors"
        return None if 0 <= share.cpus <= share.tasks else f"{share.tasks} tasks on {share.cpus} CPUs of {share.node}"

    def misfit_wider(self, job: Job, old: Allocation, new: Allocation) -> str | None:
        """What is wrong with this place for a job that holds the old one, in words, or None. What it keeps, it has.

        Where the place has a rule of company, all of the new one has to keep it.
        """
        if self.place.allows:
            index = self.index
            if any(share.node in index and self._banned(index[share.node], job) for share in new.beyond(old).nodes):
                return "the owner of one of these nodes does not take its user's jobs"
            room = self.without_bans()
            room.give(job, old)
            return room.misfit(job.at(new.processes), new)
        if len(new.nodes) > max(self.most_nodes, len(old.nodes)):
            return f"{len(new.nodes)} nodes, and a job may use {self.most_nodes}"
        if self.clusters is not None and not self._clusters_of(new) <= self._clusters_of(old):
            problem = self.clusters.misfit(job, self.indices(new), self.place.share_clusters)
            if problem:
                return problem
        more = new.beyond(old)
        if new.folded or old.folded:  # the same processes, on more processors of the same nodes
            return f"fewer processors are free than {more.procs} more" if self.lacks(job, more) else None
        return self._too_much(job.at(more.procs), more)

    def _clusters_of(self, allocation: Allocation) -> set[int]:
        """The indices of the clusters on which an allocation lies."""
        assert self.clusters is not None
        return {self.clusters.of[at] for at, _ in self.indices(allocation)}

    def lacks(self, job: Job, allocation: Allocation) -> bool:
        """Whether the job would hold more of some node than is free there, whatever the rules of placing say."""
        index = self.index
        for share in allocation.nodes:
            at = index.get(share.node)
            if at is None or share.procs > self.procs[at]:
                return True
            if share.tasks * job.memory_bytes > max(0, self.memory_bytes[at]):
                return True
        return False

    def take(self, job: Job, allocation: Allocation) -> None:
        """Take away what a job will hold; nodes that are none of these are passed over."""
        free_procs, procs = self.free_procs, self.procs
        for i, share in self._shares(allocation):
            had, left = procs[i], procs[i] - share.procs
            free_procs += (left if left > 0 else 0) - (had if had > 0 else 0)
            procs[i] = left
            self.memory_bytes[i] -= share.tasks * job.memory_bytes
            self.residents[i] = (*self.residents[i], resident(job, share.tasks))
        self._free_procs = free_procs
        if self._nodes_of is not None and (found := self.indices(allocation)):  # else all its nodes are out of service
            self._nodes_of[job.id] = tuple(sorted({*self._nodes_of.get(job.id, ()), *(i for i, _ in found)}))

    def give(self, job: Job, allocation: Allocation) -> None:
        """Give back what a job has held; nodes that are none of these are passed over."""
        free_procs, procs, job_id = self.free_procs, self.procs, job.id
        for i, share in self._shares(allocation):
            had, left = procs[i], procs[i] + share.procs
            free_procs += (left if left > 0 else 0) - (had if had > 0 else 0)
            procs[i] = left
            self.memory_bytes[i] += share.tasks * job.memory_bytes
            self.residents[i] = tuple([each for each in self.residents[i] if each.job_id != job_id])
        self._free_procs = free_procs
        if self._nodes_of is not None:
            gone = {i for i, _ in self.indices(allocation)}
            if stay := tuple(i for i in self._nodes_of.pop(job.id, ()) if i not in gone):
                self._nodes_of[job.id] = stay

    @property
    def index(self) -> Mapping[str, int]:
        """The index of each node by its name."""
        if self._index is None:
            self._index = {name: i for i, name in enumerate(self.names)}
        return self._index

    def indices(self, allocation: Allocation) -> list[tuple[int, int]]:
        """(index of a node, tasks) of an allocation, without the nodes that are none of these."""
        return [(at, share.tasks) for at, share in self._shares(allocation)]

    def _shares(self, allocation: Allocation) -> list[tuple[int, Share]]:
        index = self.index
        return [(index[share.node], share) for share in allocation.nodes if share.node in index]


def _widest(job: Job) -> int:
    """How many tasks of the job have to lie on one cluster, as far as its submission says."""
    shape = job.shape
    if shape is None:
        return job.procs
    return max(shape.procs) if isinstance(shape, Components) else 1
