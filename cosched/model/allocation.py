"""What a job holds while it runs: processes, and the processors (CPUs) that they run on.

A partition is processors, a job has processes (Utrera et al. 2005, section 5.1). They are as many unless the job is
*folded*: then several of its processes share a processor; or *resident* (``Range.resident``): then so many of them as
it has processors are enabled, and the others sleep. Memory goes by processes, free processors by processors.
"""

from collections.abc import Iterable

import msgspec


class Share(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """``tasks`` processes of a job on the node of that name, on ``cpus`` of its processors (None: on one each).

    Of a resident job ``cpus`` of the processes are enabled there, which may be none.
    """

    node: str
    tasks: int
    cpus: int | None = None

    @property
    def procs(self) -> int:
        """How many processors of the node it has."""
        return self.tasks if self.cpus is None else self.cpus


def _no_shares() -> tuple[Share, ...]:
    return ()


class Allocation(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Processors given to one job.

    Interchangeable nodes are a pool with a count, so a dedicated machine's allocation is ``procs`` alone; ``nodes``
    names them where nodes differ or a name is needed, the node of the job script first. Their processors sum to
    ``procs``. ``folded`` is the number of processes where they are more than the processors; 0: one on each. Without
    any processor the job is suspended: its processes are there, and wait. Whether processes beyond the processors share
    them or sleep is the job's to say: :attr:`fold` is of those that share.
    """

    procs: int
    nodes: tuple[Share, ...] = msgspec.field(default_factory=_no_shares)  # in journals also where there are none
    folded: int = 0

    @property
    def processes(self) -> int:
        """How many processes run on them."""
        return self.folded or self.procs

    @property
    def fold(self) -> int:
        """How many processes the most loaded processor has: 1 where each has its own, 0 for a suspended job."""
        if not self.procs:
            return 0
        if not self.folded:
            return 1
        if not self.nodes:
            return -(-self.folded // self.procs)
        return max(-(-share.tasks // share.procs) for share in self.nodes)

    def beyond(self, other: "Allocation") -> "Allocation":
        """What this has and the other has not. A share of it may have processors alone, or processes alone."""
        had = {share.node: share for share in other.nodes}
        none = Share("", 0)
        more = []
        for each in self.nodes:
            before = had.get(each.node, none)
            tasks, procs = max(0, each.tasks - before.tasks), max(0, each.procs - before.procs)
            if tasks or procs:
                more.append(_share(each.node, tasks, procs))
        return _of(more, max(0, self.procs - other.procs), max(0, self.processes - other.processes))

    def with_all_of(self, other: "Allocation") -> "Allocation":
        """The least that has both: of each node as much as the one of them that has more of it."""
        shares = {share.node: share for share in self.nodes}
        for each in other.nodes:
            mine = shares.get(each.node, each)
            tasks, procs = max(mine.tasks, each.tasks), max(mine.procs, each.procs)
            shares[each.node] = _share(each.node, tasks, procs)
        return _of([*shares.values()], max(self.procs, other.procs), max(self.processes, other.processes))


def folded_to(allocation: Allocation, fold: int) -> Allocation:
    """The same processes, up to ``fold`` of them on a processor: ⌈processes / fold⌉ processors on each node.

    Processes stay on their nodes, so a node with one process keeps a processor for it.
    """
    if not allocation.nodes:
        return partition(allocation.processes, -(-allocation.processes // fold))
    return on_nodes([(share.node, share.tasks, -(-share.tasks // fold)) for share in allocation.nodes])


def suspended(allocation: Allocation) -> Allocation:
    """The same processes on no processor."""
    if not allocation.nodes:
        return partition(allocation.processes, 0)
    return on_nodes([(share.node, share.tasks, 0) for share in allocation.nodes])


def partition(processes: int, procs: int) -> Allocation:
    """So many processes on so many counted processors."""
    return Allocation(procs, folded=processes if processes != procs else 0)


def on_nodes(shares: Iterable[tuple[str, int, int]]) -> Allocation:
    """(node, processes, processors) of each share, as an allocation."""
    made = tuple(_share(*each) for each in shares)
    procs, processes = sum(share.procs for share in made), sum(share.tasks for share in made)
    return Allocation(procs, made, processes if processes != procs else 0)


def _share(node: str, tasks: int, procs: int) -> Share:
    return Share(node, tasks, None if procs == tasks else procs)


def _of(shares: list[Share], procs: int, processes: int) -> Allocation:
    """These shares; without any, so many counted processors and processes."""
    if shares:
        procs, processes = sum(share.procs for share in shares), sum(share.tasks for share in shares)
    return Allocation(procs, tuple(shares), processes if processes != procs else 0)
