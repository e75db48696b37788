"""What the service knows of each node: whether it is connected, in service, drained; what it said last."""

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final

import msgspec

from cosched.config.hosts import check_spellings
from cosched.model.allocation import Allocation
from cosched.model.contract import SocialContract, offered
from cosched.model.desk import Availability, ContractReason, DeskReport, Wakeable
from cosched.model.node import Node, Owner, Presence
from cosched.model.stall import Stall
from cosched.wire.api import NodeDoc
from cosched.wire.messages import NO_WORD, RIGID_VERSION, Heartbeat, Hello, Peer, spoken
from space_scheduler.machine import events as ev
from space_scheduler.machine.nodes import NodeStatus, by_number
from space_scheduler.service.journal.records import View

#: The reason of a node that is drained because its machine is suspended.
ASLEEP: Final = "asleep: the machine is suspended"
#: What the reason of a node begins with that is drained because it is outside of its owner's hours.
CLOSED: Final = "closed: "


class NodeEntry:
    """One node of the allow-list, or one that the journal still has.

    ``size`` is what the core counts with while the node is in service, else None; ``joining`` what it was told and has
    not journalled yet. ``heard_s`` is when the node was last heard (boot time), or from when on its silence counts;
    None: nothing is expected of it. ``stale`` are (job, attempt) that it still has and that have ended here: it comes
    into service when they are gone.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.hello: Hello | None = None
        self.beat: Heartbeat | None = None
        self.report: DeskReport | None = None  # what its desk has reported last
        self.refused = ""  # why the agent that called last may not join; empty once one may
        self.connected = False
        self.agreed = False  # it has said something after the welcome: it obeys this scheduler
        self.serial = ""  # of the certificate it showed last
        self.expires_s: float | None = None  # that certificate, in seconds since 1970
        self.expired = ""  # since which day it has been expired, where it is let in all the same
        self.size: Node | None = None
        self.joining: Node | None = None
        self.changes = 0  # of what it offers, since the last tick
        self.drained = False
        self.asleep = False  # its machine is suspended, by its agent's last word
        self.wakeable: Wakeable | None = None  # how it is woken, if it may be, by its last report before it slept
        self.slept_s = 0.0  # when that was (boot time)
        self.called = 0  # how often it was called from its sleep, since the service started
        self.reason = ""
        self.heard_s: float | None = None
        self.heard_at: datetime | None = None
        self.paused_at: datetime | None = None  # since when heartbeats say that its owner has paused parallel work
        self.limited_at: datetime | None = None  # since when heartbeats say that parallel work is limited
        self.stale: set[tuple[int, int]] = set()
        self.stalls: dict[tuple[int, int], Stall] = {}  # (job, attempt) that cannot be ended, by its last heartbeat
        self.left: dict[tuple[int, int], Stall] = {}  # of these, which hold what no job holds
        self.unforgotten: set[tuple[int, int]] = set()  # (job, attempt) that it could not forget: it is asked again
        self.differences: Counter[str] = Counter()  # by kind: found between its jobs and the core's (``audit``)
        self.unguarded_s: float | None = None  # since when its guard does not answer (boot time); None: it does
        self.known = False
        self.word = NO_WORD  # of its owner, beside a pause
        self.banned: tuple[int, ...] = ()  # users whose jobs its owner does not take
        self.recorded_bans: tuple[int, ...] = ()  # those users by the journal, also while it is lost
        self.owner: Owner | None = None  # who is there, as the core knows it
        self.cluster_before = ""  # its cluster by the journal, at this start of the service

    @property
    def version(self) -> int:
        """Of the link's messages, as they are spoken with its agent; 0 before it has called."""
        return spoken(self.hello.version) if self.hello is not None else 0

    @property
    def rigid(self) -> str:
        """Why it resizes no job; empty where it does, or has not called since the service's start."""
        if self.version != RIGID_VERSION:
            return ""
        words = f"which resizes no job; version {RIGID_VERSION + 1} does"
        return f"{self.name}'s agent speaks version {self.version} of the link, {words}"

    @property
    def cluster(self) -> str:
        """The name of its cluster, by its last hello or the journal; empty: the scheduler's own, or not known."""
        if self.hello is None:
            return self.cluster_before
        return "" if self.hello.cluster is msgspec.UNSET else self.hello.cluster

    def state(self, *, busy: bool) -> str:
        """The word for it in documents and metrics."""
        if self.asleep:
            return "asleep"
        if self.drained and self.reason.startswith(CLOSED):
            return "closed"
        if self.drained:
            return "draining" if busy else "drained"
        return "up" if self.size is not None else "lost" if self.known else "unknown"

    @property
    def opens_s(self) -> float | None:
        """In how many seconds its owner's hours begin again, by its last report, if those alone keep jobs away."""
        return self.report.opens_s if self.report is not None and self.beat is not None and self.beat.paused else None

    @property
    def availability(self) -> Availability:
        """What everybody may know of the desk: whether parallel work may run there, and whether within limits."""
        beat = self.beat
        if self.size is None or self.drained or beat is None or beat.paused or beat.guard:
            return Availability.NOT_AVAILABLE
        limited = beat.presence.counts_as_present or beat.limited_cpus is not None
        return Availability.LIMITED if limited else Availability.FREE

    @property
    def public_limit_cpus(self) -> float | None:
        """The contract's ceiling where one is in force; not how far it is lowered because somebody there waits."""
        beat = self.beat
        contract_cpus = self.report.contract_cpus if self.report is not None else None
        if beat is None or beat.limited_cpus is None or contract_cpus is None:
            return beat.limited_cpus if beat is not None else None
        return max(beat.limited_cpus, contract_cpus)

    @property
    def contract_reason(self) -> ContractReason:
        """Which contract is in force there and why, as far as it is known here."""
        beat = self.beat
        if self.asleep:
            return ContractReason.ASLEEP
        if beat is None:
            return ContractReason.AGENT_SILENT
        if self.report is not None:
            return self.report.reason if self.opens_s is None else ContractReason.CLOSED
        if beat.paused:  # an agent of a version that does not say
            return ContractReason.PAUSED
        if beat.guard:
            return ContractReason.NO_GUARD
        return ContractReason.UNKNOWN if beat.armed else ContractReason.RELAXED

    def offers(self, contract: SocialContract) -> Node:
        """What it brings into service, by its last hello: processors and memory that hold whoever is at the desk, and
        what of them is held by what is left of ended jobs.
        """
        assert self.hello is not None
        hello = self.hello
        allowed = contract.stricter(hello.owner)
        node = offered(
            msgspec.structs.replace(allowed, cpu_ratio=min(allowed.cpu_ratio, self.word.cpu_ratio)),
            self.name,
            hello.procs,
            hello.memory_bytes,
            memory_is_relaxed=False,
            cluster=self.cluster,
        )
        return msgspec.structs.replace(
            node,
            bans=self.banned,
            held_procs=min(sum(stall.procs for stall in self.left.values()), node.procs),
            held_memory_bytes=min(sum(stall.memory_bytes for stall in self.left.values()), node.memory_bytes),
        )


class NodeBook:
    """All nodes by name, in the allow-list's order."""

    def __init__(self, names: Sequence[str], now_s: Callable[[], float]) -> None:
        """Raises :class:`cosched.errors.BadInput` for two spellings of a host."""
        self.now_s = now_s
        check_spellings(names, "nodes (of cluster.yaml, and admitted)")
        self.allowed = set(names)
        self._entries = {name: NodeEntry(name) for name in names}

    def __iter__(self) -> Iterator[NodeEntry]:
        return iter(self._entries.values())

    def get(self, name: str) -> NodeEntry | None:
        """The entry of that name, or None."""
        return self._entries.get(name)

    def entry(self, name: str) -> NodeEntry:
        """The entry of that name; made for one that only the journal knows."""
        if (found := self._entries.get(name)) is None:
            found = self._entries[name] = NodeEntry(name)
        return found

    def peers(self, allocation: Allocation) -> tuple[Peer, ...]:
        """A job's nodes as they reach each other; empty while one has not said hello since the service started."""
        hellos = [(share, self.entry(share.node).hello) for share in allocation.nodes]
        found = tuple(Peer(share.node, hello.address, hello.port, share.tasks) for share, hello in hellos if hello)
        return found if len(found) == len(hellos) else ()

    def names(self) -> list[str]:
        """All names."""
        return list(self._entries)

    def admit(self, name: str) -> None:
        """Let a node join."""
        self.entry(name)
        self.allowed.add(name)

    def remove(self, name: str) -> None:
        """Let it join no more; it is shown for as long as something of it is left."""
        self.allowed.discard(name)

    def recovered(self, statuses: Iterable[NodeStatus], holding: Iterable[str]) -> None:
        """After a restart: nodes as the journal has them, and those that jobs hold. Their silence counts from now."""
        for status in statuses:
            node, entry = status.node, self.entry(status.node.name)
            entry.known, entry.owner, entry.size = True, status.owner, None if status.lost else node
            entry.drained, entry.reason = status.drained, status.reason
            entry.asleep = status.drained and status.reason == ASLEEP
            entry.cluster_before, entry.recorded_bans = node.cluster, node.bans
            entry.heard_s = None if status.lost else self.now_s()
        for name in holding:
            self.entry(name).heard_s = self.now_s()

    def committed(self, event: ev.Event) -> None:
        """Follow what the core has taken in."""
        match event:
            case ev.NodeJoined(node):
                entry = self.entry(node.name)
                entry.size, entry.known, entry.recorded_bans = node, True, node.bans
                entry.joining = None if entry.joining == node else entry.joining
            case ev.NodeLost(name) | ev.NodeCutOff(name):
                self.entry(name).size = None
            case ev.NodeDrained(name, reason):
                entry = self.entry(name)
                entry.drained, entry.reason = True, reason
            case ev.NodeResumed(name):
                entry = self.entry(name)
                entry.drained, entry.reason = False, ""
            case ev.OwnerCame(name) | ev.OwnerLeft(name):
                self.entry(name).owner = event.owner if isinstance(event, ev.OwnerCame) else None

    def documents(self, view: View, contract: SocialContract, own: str = "") -> list[NodeDoc]:
        """What GET /v1/nodes shows. ``own`` is the name of the scheduler's own cluster."""
        tasks: dict[str, list[tuple[int, int, int]]] = {}
        for record in view.jobs.values():
            for share in record.allocation.nodes if record.allocation else ():
                tasks.setdefault(share.node, []).append((record.id, share.tasks, record.job.memory_bytes))
        return [self._document(entry, tasks.get(entry.name, []), contract, own) for entry in self.members(tasks)]

    def members(self, holding: Container[str]) -> list[NodeEntry]:
        """Those that may join, and those that were removed and still have something, by name, numbers by their value.

        ``holding``: the nodes that jobs hold.
        """
        found = [each for each in self if each.name in self.allowed or each.size or each.name in holding]
        return sorted(found, key=lambda each: by_number(each.name))

    def private_tmp(self) -> bool:
        """Whether all nodes that have joined give each job a /tmp of its own, without an exception."""
        known = [entry.hello.enforces.get("private /tmp") for entry in self if entry.hello is not None]
        return bool(known) and all(answer == "yes" for answer in known)

    def _document(
        self, entry: NodeEntry, held: list[tuple[int, int, int]], contract: SocialContract, own: str
    ) -> NodeDoc:
        hello, beat = entry.hello, entry.beat
        size = entry.size or (entry.offers(contract) if hello else Node(entry.name, 0, 0))
        return NodeDoc(
            name=entry.name,
            state=entry.state(busy=bool(held)),
            reason=entry.reason,
            procs=size.procs,
            memory_bytes=size.memory_bytes,
            used_procs=sum(tasks for _, tasks, _ in held),
            used_memory_bytes=sum(tasks * memory_bytes for _, tasks, memory_bytes in held),
            availability=entry.availability,
            presence=beat.presence if beat else Presence.UNKNOWN,
            presence_source=beat.presence_source if beat else "",
            blind=list(beat.blind) if beat else [],
            usage=beat.usage if beat else None,
            limited_cpus=beat.limited_cpus if beat else None,
            armed=beat.armed if beat else None,
            enforces=hello.enforces if hello else {},
            jobs=sorted(job_id for job_id, _, _ in held),
            last_heard=entry.heard_at.isoformat(timespec="milliseconds") if entry.heard_at else None,
            address=hello.address if hello else "",
            version=entry.version or None,
            refused=entry.refused,
            cluster=size.cluster or own,
            held_procs=size.held_procs,
            certificate_until=datetime.fromtimestamp(entry.expires_s, UTC).isoformat() if entry.expires_s else None,
        )
