"""What Open MPI 4 and 5 have in common: how ranks talk, and who may start them."""

from space_scheduler.launch.interface import Context


def spans_nodes(context: Context) -> bool:
    """Whether the job's ranks talk over a network that has been named; on one node loopback does."""
    return len(context.peers) > 1 and bool(context.network)


def required(context: Context) -> dict[str, str]:
    """Root's jobs run where the cluster allows them; Open MPI wants to hear it twice."""
    if context.user != "root":
        return {}
    return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}


def defaults(context: Context) -> dict[str, str]:
    """Messages travel by TCP, also inside a node, where agents can see them wait; receivers yield the CPU they share.

    Without ``pml=ob1`` a build with UCX finds out that namespaced hosts are one machine, and uses its shared memory. The
    delay (seconds) lets ``mpirun`` see the rank that died before its peers, whose connections broke, abort: without it
    Open MPI 5 mostly accuses one of them, and hides the exit status or signal.
    """
    network = {"OMPI_MCA_btl_tcp_if_include": context.network} if spans_nodes(context) else {}
    return {
        "OMPI_MCA_pml": "ob1",
        "OMPI_MCA_btl": "tcp,self",
        "OMPI_MCA_mpi_yield_when_idle": "1",
        "OMPI_MCA_mpi_abort_delay": "1",
        **network,
    }
