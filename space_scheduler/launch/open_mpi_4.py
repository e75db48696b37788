"""Open MPI 4.1: what a plain ``mpirun`` reads from the environment, and what it says of failures."""

from collections.abc import Sequence

from cosched.wire.api import Failure
from cosched.wire.messages import Peer
from space_scheduler.launch.interface import Context


class OpenMpi4:
    """``mpirun`` of Open MPI 4.1."""

    name = "Open MPI 4.1"

    def required(self, context: Context) -> dict[str, str]:
        return {
            "OMPI_MCA_plm_rsh_agent": "{rsh}",
            "OMPI_MCA_orte_default_hostfile": "{node_file}",
        }

    def defaults(self, context: Context) -> dict[str, str]:
        return {
            "OMPI_MCA_hwloc_base_binding_policy": "none",
            "OMPI_MCA_rmaps_base_mapping_policy": "slot",
        }

    def diagnose(self, error: str, peers: Sequence[Peer]) -> Failure | None:
        return None
