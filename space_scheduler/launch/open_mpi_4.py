"""Open MPI 4.1 (and its runtime, ORTE): what a plain ``mpirun`` reads from the environment, and what it says of failures."""

from collections.abc import Sequence

from cosched.wire.api import Failure
from cosched.wire.messages import Peer
from space_scheduler.launch import open_mpi
from space_scheduler.launch.interface import Context


class OpenMpi4:
    """``mpirun`` of Open MPI 4.1."""

    name = "Open MPI 4.1"

    def required(self, context: Context) -> dict[str, str]:
        """The host file is the allocation, ``cosched-rsh`` the remote shell."""
        return {
            "OMPI_MCA_plm_rsh_agent": "{rsh}",
            "OMPI_MCA_orte_default_hostfile": "{node_file}",
            **open_mpi.required(context),
        }

    def defaults(self, context: Context) -> dict[str, str]:
        """No binding: a node may be a fraction of a core. Ranks fill the nodes in the host file's order."""
        return {
            "OMPI_MCA_hwloc_base_binding_policy": "none",
            "OMPI_MCA_rmaps_base_mapping_policy": "slot",
            **({"OMPI_MCA_oob_tcp_if_include": context.network} if open_mpi.spans_nodes(context) else {}),
            **open_mpi.defaults(context),
        }

    def diagnose(self, error: str, peers: Sequence[Peer]) -> Failure | None:
        return None
