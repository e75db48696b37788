"""The social contract: what parallel work may take of a workstation while somebody sits at it."""

from typing import Final

import msgspec

from cosched.model.node import Node, Presence

#: Far more tasks on a processor than any machine serves.
MOST_MPL: Final = 1024


class SocialContract(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shares of CPU and memory left to parallel work while a local user is there, and tasks of parallel jobs per CPU.

    The default is a dedicated machine: everything, one task per processor. (Hanzich et al. 2005, section 1: half of
    each for either side, multiprogramming level at most 4.)
    """

    cpu_ratio: float = 1.0
    memory_ratio: float = 1.0
    mpl: int = 1

    def impossible(self) -> tuple[str, object, str] | None:
        """The first key that no machine could keep, as (key, found, expected), or None."""
        for key in ("cpu_ratio", "memory_ratio"):
            value = getattr(self, key)
            if not 0 < value <= 1:
                return key, value, "a share above 0, up to 1"
        if not 1 <= self.mpl <= MOST_MPL:
            return "mpl", self.mpl, f"at least 1 task per processor, at most {MOST_MPL}"
        return None

    def stricter(self, other: "SocialContract") -> "SocialContract":
        """What both allow: the smaller share of each."""
        return SocialContract(
            cpu_ratio=min(self.cpu_ratio, other.cpu_ratio),
            memory_ratio=min(self.memory_ratio, other.memory_ratio),
            mpl=min(self.mpl, other.mpl),
        )

    @property
    def dedicated(self) -> bool:
        """Whether parallel work has the whole machine, one task per processor."""
        return self == SocialContract()


class Limits(msgspec.Struct, frozen=True, gc=False):
    """What parallel work may use of one node at one moment, all jobs together.

    ``cpus`` is a ceiling in CPUs, or None for none; ``idle`` puts parallel work into the idle class, so that an owner's
    wake-up is never queued behind it; ``memory_bytes`` holds always.
    """

    cpus: float | None
    idle: bool
    memory_bytes: int
    tasks: int


def limits(contract: SocialContract, presence: Presence, cpus: int, memory_bytes: int) -> Limits:
    """What parallel work may use of a node of ``cpus`` CPUs and ``memory_bytes`` bytes.

    The one place that says so: the agent enforces it, the scheduler admits by it, the simulator runs on it. CPU is
    relaxed while the owner is away; memory is not, since it cannot be taken back from a running task.
    """
    ceiling = contract.cpu_ratio * cpus if presence.counts_as_present and contract.cpu_ratio < 1 else None
    return Limits(ceiling, not contract.dedicated, int(contract.memory_ratio * memory_bytes), contract.mpl * cpus)


def offered(
    contract: SocialContract, name: str, cpus: int, memory_bytes: int, *, memory_is_relaxed: bool, cluster: str = ""
) -> Node:
    """What a workstation of ``cpus`` CPUs and ``memory_bytes`` bytes offers to parallel work under a contract.

    The one place where a :class:`Node` is made of one. ``memory_is_relaxed``: all of the memory may be used while
    nobody is at the desk, as in the simulations of Hanzich et al. 2005; on real nodes it is not.
    """
    beside = limits(contract, Presence.PRESENT, cpus, memory_bytes)
    return Node(
        name,
        procs=beside.tasks,
        memory_bytes=memory_bytes if memory_is_relaxed else beside.memory_bytes,
        cpus=cpus,
        owned_cpu_permille=round(1000 * contract.cpu_ratio),
        owned_memory_bytes=beside.memory_bytes,
        total_memory_bytes=memory_bytes,
        cluster=cluster,
    )
