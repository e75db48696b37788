"""Open MPI 4.1 (and its runtime, ORTE): what a plain ``mpirun`` reads from the environment."""

from space_scheduler.launch.interface import Context
from space_scheduler.launch.open_mpi import OpenMpi, on_network


class OpenMpi4(OpenMpi):
    """``mpirun`` of Open MPI 4.1."""

    name = "Open MPI 4.1"

    def required(self, context: Context) -> dict[str, str]:
        """The host file is the allocation, ``cosched-rsh`` the remote shell."""
        return {
            "OMPI_MCA_plm_rsh_agent": "{rsh}",
            "OMPI_MCA_orte_fork_agent": "{rank}",
            "OMPI_MCA_orte_default_hostfile": "{node_file}",
            **super().required(context),
        }

    def defaults(self, context: Context) -> dict[str, str]:
        """No binding: a node may be a fraction of a core. Ranks fill the nodes in the host file's order."""
        return {
            "OMPI_MCA_hwloc_base_binding_policy": "none",
            "OMPI_MCA_rmaps_base_mapping_policy": "slot",
            **on_network(context, "OMPI_MCA_oob_tcp_if_include"),
            **super().defaults(context),
        }
