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
