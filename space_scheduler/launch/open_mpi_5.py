"""Open MPI 5 (and its runtime, PRRTE): what a plain ``mpirun`` reads from the environment, and what it says of failures.

Its programs read the ``OMPI_MCA_`` variables of :mod:`space_scheduler.launch.open_mpi`, ``mpirun`` itself ``PRTE_MCA_``.
"""

from collections.abc import Sequence

from cosched.wire.api import Failure
from cosched.wire.messages import Peer
from space_scheduler.launch import open_mpi
from space_scheduler.launch.interface import Context


class OpenMpi5:
    """``mpirun`` of Open MPI 5.0."""

    name = "Open MPI 5"

    def required(self, context: Context) -> dict[str, str]:
        """The host file is the allocation, ``cosched-rsh`` the remote shell."""
        return {
            "PRTE_MCA_plm_ssh_agent": "{rsh}",
            "PRTE_MCA_prte_default_hostfile": "{node_file}",
            **open_mpi.required(context),
        }

    def defaults(self, context: Context) -> dict[str, str]:
        """No binding: a node may be a fraction of a core. Ranks fill the nodes in the host file's order."""
        return {
            "PRTE_MCA_hwloc_default_binding_policy": "none",
            "PRTE_MCA_rmaps_default_mapping_policy": "slot",
            **({"PRTE_MCA_prte_if_include": context.network} if open_mpi.spans_nodes(context) else {}),
            **open_mpi.defaults(context),
        }

    def diagnose(self, error: str, peers: Sequence[Peer]) -> Failure | None:
        return None
