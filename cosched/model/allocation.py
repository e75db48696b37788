"""What a job holds while it runs."""

import msgspec


class Share(msgspec.Struct, frozen=True, gc=False):
    """``tasks`` of a job on the node of that name."""

    node: str
    tasks: int


class Allocation(msgspec.Struct, frozen=True, gc=False):
    """Processors given to one job.

    Interchangeable nodes are a pool with a count, so a dedicated machine's allocation is ``procs`` alone; ``nodes``
    names them where nodes differ or a name is needed, the node of the job script first. Their tasks sum to ``procs``.
    """

    procs: int
    nodes: tuple[Share, ...] = ()

    def beyond(self, other: "Allocation") -> "Allocation":
        """What this has and the other has not."""
        tasks = {share.node: share.tasks for share in other.nodes}
        more = [Share(each.node, each.tasks - tasks.get(each.node, 0)) for each in self.nodes]
        return _of([share for share in more if share.tasks > 0], max(0, self.procs - other.procs))

    def with_all_of(self, other: "Allocation") -> "Allocation":
        """The least that has both: of each node as much as the one of them that has more of it."""
        shares = {share.node: share for share in self.nodes}
        for each in other.nodes:
            if each.node not in shares or each.tasks > shares[each.node].tasks:
                shares[each.node] = each
        return _of([*shares.values()], max(self.procs, other.procs))


def _of(shares: list[Share], procs: int) -> Allocation:
    """These shares; without any, so many counted processors."""
    return Allocation(sum(share.tasks for share in shares), tuple(shares)) if shares else Allocation(procs)
