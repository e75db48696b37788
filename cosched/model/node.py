"""A workstation as parallel work sees it, and who is at its desk."""

from enum import StrEnum

import msgspec

from cosched.model.quantities import CpusOrUnknown, LoadOrUnknown, MemoryOrUnknown


class Presence(StrEnum):
    """Whether somebody is at the desk. Unknown counts as present: the owner comes first."""

    PRESENT = "present"
    AWAY = "away"
    UNKNOWN = "unknown"

    @property
    def counts_as_present(self) -> bool:
        """Whether the contract's limits hold."""
        return self is not Presence.AWAY


class Node(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a node offers to parallel work: ``procs`` tasks of jobs at once, and ``memory_bytes`` for all of them.

    ``cpus`` is how many of its CPUs they share (0: each has one of its own). ``memory_bytes`` is what the contract
    leaves to parallel work while nobody is at the desk, on real nodes whoever is there (memory, unlike CPU, cannot be
    taken back from a running task without swap). While an owner is there it leaves ``owned_cpu_permille`` of the CPUs,
    at most ``owned_memory_bytes`` (-1: as much as without him), and of ``total_memory_bytes`` no more than he leaves
    (0: ``memory_bytes`` are all there are). ``cluster`` is the name of the cluster (a lab) that it belongs to; empty
    where there is only one. ``bans`` are users (``Job.user``) whose jobs its owner does not take, in order.
    ``held_procs`` of ``procs`` and ``held_memory_bytes`` are held by what is left of ended jobs and cannot be ended.
    """

    name: str
    procs: int
    memory_bytes: int
    cpus: int = 0
    owned_cpu_permille: int = 1000
    owned_memory_bytes: int = -1
    total_memory_bytes: int = 0
    cluster: str = ""
    bans: tuple[int, ...] = ()
    held_procs: int = 0
    held_memory_bytes: int = 0

    def memory_beside(self, owner: "Owner | None") -> int:
        """Bytes that jobs may have together while that owner is there."""
        if owner is None:
            return max(0, self.memory_bytes - self.held_memory_bytes)
        most = self.memory_bytes if self.owned_memory_bytes < 0 else min(self.memory_bytes, self.owned_memory_bytes)
        left = min(most, (self.total_memory_bytes or self.memory_bytes) - owner.memory_bytes)
        return max(0, left - self.held_memory_bytes)


class Owner(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Who is at a node's desk, for parallel work: what he uses of its CPUs (thousandths of one) and of its memory."""

    cpu_permille: int = 0
    memory_bytes: int = 0


class Usage(msgspec.Struct, frozen=True, gc=False):
    """A node's load by side at one moment. CPU in CPUs (1.0 is one busy CPU), memory in bytes, over the last period.

    ``parallel``: tasks of jobs; ``system``: root's and other service accounts' processes, the agent's included;
    ``local``: everybody else's. -1 where a figure cannot be had.
    """

    cpu_parallel: CpusOrUnknown = -1.0
    cpu_local: CpusOrUnknown = -1.0
    cpu_system: CpusOrUnknown = -1.0
    memory_parallel_bytes: MemoryOrUnknown = -1
    memory_local_bytes: MemoryOrUnknown = -1
    memory_system_bytes: MemoryOrUnknown = -1
    memory_free_bytes: MemoryOrUnknown = -1
    load_1min: LoadOrUnknown = -1.0
