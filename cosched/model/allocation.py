"""What a job holds while it runs."""

import msgspec


class Allocation(msgspec.Struct, frozen=True, gc=False):
    """Processors given to one job.

    Interchangeable nodes are a pool with a count, so a dedicated machine's allocation is ``procs`` alone; ``nodes``
    names them where nodes differ or a name is needed.
    """

    procs: int
    nodes: tuple[str, ...] = ()
