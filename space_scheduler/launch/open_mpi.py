"""What Open MPI 4 and 5 have in common: how ranks talk, who may start them, and the words for how they ended."""

from collections.abc import Sequence
from typing import ClassVar

from cosched.wire.api import Failure
from cosched.wire.messages import JobFile, Peer
from cosched.wire.version_4 import RANK
from space_scheduler.launch import open_mpi_reports
from space_scheduler.launch.interface import Context, Launcher

_LOOPBACK = "127.0.0.0/8"


class OpenMpi(Launcher):
    """The part of both."""

    spin: ClassVar = {"OMPI_MCA_mpi_yield_when_idle": "1"}

    def required(self, context: Context) -> dict[str, str]:
        """Root's jobs run where the cluster allows them; Open MPI wants to hear it twice."""
        if context.user != "root":
            return {}
        return {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

    def defaults(self, context: Context) -> dict[str, str]:
        """Messages travel by TCP, also inside a node, where agents see them wait; receivers yield the CPU they share.

        Without ``pml=ob1`` a build with UCX finds out that namespaced hosts are one machine, and uses its shared
        memory. The delay (seconds) lets ``mpirun`` see the rank that died before its peers, whose connections broke,
        abort: without it Open MPI 5 mostly accuses one of them, and hides the exit status or signal.
        """
        return {
            "OMPI_MCA_pml": "ob1",
            "OMPI_MCA_btl": "tcp,self",
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "OMPI_MCA_mpi_abort_delay": "1",
            # ranks on one node talk over loopback, which Open MPI leaves out unless it is asked for
            **({"OMPI_MCA_btl_tcp_if_include": _LOOPBACK} if len(context.peers) == 1 else {}),
            **on_network(context, "OMPI_MCA_btl_tcp_if_include"),
        }

    def files(self, context: Context, node: str) -> tuple[JobFile, ...]:
        """What becomes a rank; the host file is every job's."""
        return (RANK,)

    def diagnose(self, error: str, peers: Sequence[Peer]) -> Failure | None:
        """What ``mpirun``, the ranks' library or ``cosched-rsh`` says."""
        return open_mpi_reports.read(error, peers)


def on_network(context: Context, variable: str) -> dict[str, str]:
    """That variable with the network that has been named; nothing for a job on one node."""
    return {variable: context.network} if len(context.peers) > 1 and context.network else {}
