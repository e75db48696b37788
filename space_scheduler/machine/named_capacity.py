"""The capacity of nodes that have names: what each has, who is at its desk, and what jobs hold of it."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from cosched.model.allocation import Allocation
from cosched.model.job import Job
from cosched.model.node import Node, Owner
from cosched.model.width import Shape
from space_scheduler.clusters import Clusters, crossing_ppm
from space_scheduler.feasibility import Place, Room
from space_scheduler.machine.capacity import CountedCapacity
from space_scheduler.machine.nodes import Member, SavedNode, UnknownNode, by_number
from space_scheduler.machine.rules import MachineRules
from space_scheduler.on_nodes import NO_BANS, Resident
from space_scheduler.policy.queue import Entry
from space_scheduler.reasons import Reason

#: What a place depends on: processors, memory and CPU of each task, kind, nodes to avoid, and other widths.
Asked = tuple[int, int, int, str, tuple[str, ...], Shape | None]
_MOST_KNOWN: Final = 4096


def asked_of(job: Job) -> Asked:
    """What a place for the job depends on."""
    return job.procs, job.memory_bytes, job.cpu_permille, job.kind, job.avoid, job.shape


class NamedCapacity:
    """Nodes in order: by name, numbers in it by their value (``node2`` before ``node10``).

    The rules say how many tasks may share a CPU and how many nodes a job may use, ``place`` how its tasks are laid on
    them. Of the totals, ``procs_installed`` counts the places of all nodes that ever joined, ``procs_total`` those of
    the nodes in service, ``free_procs`` those of them that nobody holds. ``widest`` is on how many nodes the widest job
    lay when the machine was restored: it may have been started under other rules. ``version`` rises with
    each change of what jobs hold and of what nodes have.
    """

    def __init__(self, rules: MachineRules, place: Place) -> None:
        self.rules = rules
        self.place = place
        self.members: dict[str, Member] = {}
        self.procs_installed = self.procs_total = self.free_procs = 0
        self.widest = self.version = self.openings = 0
        #: By user, the nodes whose owners take none of that user's jobs.
        self.bans: Mapping[int, frozenset[str]] = NO_BANS
        self._room: Room | None = None  # what is free, kept up to date until nodes change
        self._installed: Room | None = None  # what all nodes would have free, until nodes change
        self._known_to_fit: set[Asked] = set()  # there, of those who were asked about last
        #: By what is asked and the user, why empty nodes in service have no place; until nodes or owners change.
        self.without_place: dict[tuple[Asked, int], Reason | None] = {}
        #: The first jobs of the queue, and what was found of them by number: until then too.
        self.without_place_in: tuple[Sequence[Entry], dict[int, Reason]] = [], {}

    def __getitem__(self, name: str) -> Member:
        if name not in self.members:
            raise UnknownNode(name)
        return self.members[name]

    def __iter__(self) -> Iterator[Member]:
        return iter(self.members.values())

    def places(self, node: Node) -> int:
        """How many tasks may be on a node."""
        mpl = self.rules.mpl
        return node.procs if mpl is None else min(node.procs, mpl * (node.cpus or node.procs))

    # what happens to nodes: each says whether anything is different now

    def join(self, node: Node) -> bool:
        """Enter a node, or know a lost or changed one again."""
        known = self.members.get(node.name)
        if known is None:
            self.add(SavedNode(node))
            return True
        changed = known.lost or known.node != node
        self.version += known.node != node
        self._count(known, -1)
        banned, known.lost = known.node.bans, False
        known.resize(node, self.places(node))
        if banned != node.bans:
            self._count_bans()
        known.shrunk()
        self._count(known)
        return changed

    def add(self, said: SavedNode) -> None:
        """Enter a node that is not known yet, in its place."""
        node, last = said.node, next(reversed(self.members), None)
        self.members[node.name] = member = Member(**msgspec.structs.asdict(said))
        member.resize(node, self.places(node))
        if last is not None and by_number(node.name) < by_number(last):  # most come in order
            self.members = dict(sorted(self.members.items(), key=lambda entry: by_number(entry[0])))
        if node.bans:
            self._count_bans()
        self._count(member)

    def drain(self, name: str, reason: str, opens_us: int | None = None) -> bool:
        """Nothing more is to be started there, until ``opens_us`` where that is known."""
        self[name].reason = reason
        return self._becomes(name, drained=True, opens_us=opens_us)

    def resume(self, name: str) -> bool:
        """Jobs may be started there again."""
        self[name].reason = ""
        return self._becomes(name, drained=False, opens_us=None)

    def lose(self, name: str) -> bool:
        """It does not answer any more."""
        return self._becomes(name, lost=True)

    def _becomes(self, name: str, **said: object) -> bool:
        """Keep what was said of a node that counts; whether it is anything new."""
        member = self[name]
        changed = any(getattr(member, field) != value for field, value in said.items())
        self._count(member, -1)
        for field, value in said.items():
            setattr(member, field, value)
        self._count(member)
        return changed

    def own(self, name: str, owner: Owner | None) -> bool:
        """Somebody is at its desk, or nobody any more."""
        member = self[name]
        if member.owner == owner:
            return False
        member.owner = owner
        self.without_place.clear()
        member.shrunk()
        if self._room is not None and (at := self._room.index.get(name)) is not None:
            owners = [*self._room.owners]  # copies of the room keep those of before
            owners[at] = owner
            self._room.owners = owners
            self._room.memory_bytes[at] = member.memory_bytes - member.used_memory_bytes
        return True

    def _count_bans(self) -> None:
        found: dict[int, set[str]] = {}
        for member in self:
            for user in member.node.bans:
                found.setdefault(user, set()).add(member.node.name)
        self.bans = {user: frozenset(names) for user, names in found.items()}

    def _count(self, member: Member, sign: int = 1) -> None:
        """Count a node as it is, or count it no more, before it changes."""
        self._room = self._installed = None
        self._known_to_fit.clear()
        self.without_place.clear()
        self.openings += sign * (member.opens_us is not None)
        self.procs_installed += sign * (member.places + member.held_places)
        self.procs_total += sign * member.places if member.in_service else 0
        self.free_procs += sign * member.free_procs

    # what jobs hold

    def take(self, job: Job, allocation: Allocation) -> None:
        """A job holds this from now on."""
        self.version += 1
        for share in allocation.nodes:
            member = self.members[share.node]
            had = member.free_procs
            member.take(job, share)
            self.free_procs += member.free_procs - had
        if self._room is not None:
            self._room.take(job, allocation)

    def change(self, job: Job, old: Allocation, new: Allocation) -> None:
        """A job that held the old holds the new, in one step: what it keeps of a node that has shrunk stays its own."""
        before = {share.node: self.members[share.node].before for share in old.nodes}
        self.give(job, old)
        self.take(job, new)
        for name, (procs, memory_bytes) in before.items():
            member = self.members[name]
            member.before = min(procs, member.used_procs), min(memory_bytes, member.used_memory_bytes)

    def give(self, job: Job, allocation: Allocation) -> None:
        """A job holds this no more."""
        self.version += 1
        for share in allocation.nodes:
            member = self.members[share.node]
            had = member.free_procs
            member.give(job, share)
            self.free_procs += member.free_procs - had
        if self._room is not None:
            self._room.give(job, allocation)

    def still_held(self, allocation: Allocation) -> None:
        """A job has not given back what it was to: it is rightly its own, also on nodes that have shrunk meanwhile."""
        for share in allocation.nodes:
            self.members[share.node].shrunk()

    def settle(self) -> None:
        """All that jobs held in a past under other rules or on other nodes has been taken, and is rightly theirs."""
        nodes = Counter(job_id for member in self for job_id in member.residents)
        self.widest = max(nodes.values(), default=0)
        for member in self:
            member.shrunk()

    # looking at it

    def room(self) -> Room:
        """What is free on the nodes in service; a copy."""
        if self._room is None:
            self._room = self._free()
            if self.place.looks_at_company:
                _ = self._room.nodes_of  # kept up to date from now on, in each copy too
        return self._room.copy()

    def room_without_owners(self) -> Room:
        """The same, as if nobody were at any desk."""
        room = self.room()
        members = [self.members[name] for name in room.names]
        room.owners = [None] * len(members)
        room.memory_bytes = [each.node.memory_beside(None) - each.used_memory_bytes for each in members]
        return room

    def anew(self) -> "NamedCapacity":
        """The same nodes under the same rules, with nothing held."""
        made = NamedCapacity(self.rules, self.place)
        for each in self:
            made.add(each.said())
        return made

    def opens(self, now_us: int) -> dict[str, int]:
        """When each node is to be resumed that is out of service until a time that is to come, in µs, by name."""
        return {each.node.name: each.opens_us or 0 for each in self if each.opens_after(now_us)}

    def room_ahead(self, now_us: int) -> Room:
        """The same with nodes that are to be resumed, as they will be then if nothing changes on them."""
        return self._free([each for each in self if each.in_service or each.opens_after(now_us)])

    def opens_for(self, job: Job, now_us: int) -> int | None:
        """When so many nodes are resumed that a job has a place on all of them, empty; None: at no time known."""
        opens = self.opens(now_us)
        for at_us in sorted(set(opens.values())):
            members = [each for each in self if each.in_service or opens.get(each.node.name, at_us + 1) <= at_us]
            if self._empty(members).obstacle(job) is None:
                return at_us
        return None

    def _free(self, members: list[Member] | None = None) -> Room:
        """What is free on these, or on those in service."""
        members = [each for each in self if each.in_service] if members is None else members
        procs = [each.places - each.used_procs for each in members]
        memory_bytes = [each.memory_bytes - each.used_memory_bytes for each in members]
        residents = [tuple(each.residents.values()) for each in members]
        owners, places = [each.owner for each in members], [each.places for each in members]
        return self._made(members, procs, memory_bytes, owners, residents, places, self.bans)

    def empty(self, *, installed: bool = False, owners: bool = True) -> Room:
        """What the nodes in service would have free without any job; without ``owners``, as if none were at a desk.

        ``installed``: all nodes that ever joined, without their owners and what these say and without what is left of
        ended jobs: as they could be.
        """
        if not installed:
            return self._empty([each for each in self if each.in_service], owners=owners)
        if self._installed is None:
            members = [*self]
            procs = [each.places + each.held_places for each in members]
            self._installed = self._made(members, procs, [each.node.memory_bytes for each in members], ())
        return self._installed.copy()

    def _empty(self, members: list[Member], *, owners: bool = True) -> Room:
        there = [each.owner if owners else None for each in members]
        memory_bytes = [each.node.memory_beside(owner) for each, owner in zip(members, there, strict=True)]
        return self._made(members, [each.places for each in members], memory_bytes, there, bans=self.bans)

    def ever_fits(self, job: Job) -> bool:
        """Whether the job has a place on all nodes that ever joined, all of them empty."""
        asked = asked_of(job)
        if asked in self._known_to_fit:
            return True
        if self.empty(installed=True).obstacle(job) is not None:
            return False
        if len(self._known_to_fit) >= _MOST_KNOWN:
            self._known_to_fit.clear()
        self._known_to_fit.add(asked)
        return True

    def _made(
        self,
        members: list[Member],
        procs: list[int],
        memory_bytes: list[int],
        owners: Sequence[Owner | None],
        residents: Sequence[tuple[Resident, ...]] = (),
        places: Sequence[int] = (),
        bans: Mapping[int, frozenset[str]] = NO_BANS,
    ) -> Room:
        """The room of these nodes with so much free, and the rest as a room has it."""
        names = [each.node.name for each in members]
        cpus = [each.node.cpus or each.node.procs for each in members]
        clusters, most = self._clusters(members), self.rules.max_nodes_per_job
        return Room(names, procs, memory_bytes, most, self.place, residents, cpus, owners, places, clusters, bans)

    def _clusters(self, members: Iterable[Member]) -> Clusters | None:
        """The clusters of these nodes, in the order of their names; None where there are no two."""
        return Clusters.named([each.node.cluster for each in members], self.rules.between, by_number)

    def within_one_cluster(self, names: Iterable[str]) -> bool:
        """Whether all of these nodes are of one cluster, where there are several."""
        clusters = {self.members[name].node.cluster for name in names}
        return len(clusters) == 1 and any(each.node.cluster not in clusters for each in self)

    def cost_ppm(self, job: Job, allocation: Allocation) -> int:
        """By how many millionths of its time communication between clusters has a job take longer there."""
        if len(allocation.nodes) < 2 or (self.rules.between is None and job.crossing_ppm is None):
            return 0
        clusters = {self.members[share.node].node.cluster for share in allocation.nodes}
        return crossing_ppm(job, clusters, self.rules.between)


#: What a machine has, of either kind.
Capacity = CountedCapacity | NamedCapacity
