"""Open MPI 5 (and its runtime, PRRTE): what a plain ``mpirun`` reads from the environment, and what it says of failures."""

from collections.abc import Sequence

from cosched.wire.api import Failure
from cosched.wire.messages import Peer
from space_scheduler.launch.interface import Context


class OpenMpi5:
    """``mpirun`` of Open MPI 5.0."""

    name = "Open MPI 5"

    def required(self, context: Context) -> dict[str, str]:
        """The host file is the allocation, ``cosched-rsh`` the remote shell."""
        return {
            "PRTE_MCA_plm_ssh_agent": "{rsh}",
            "PRTE_MCA_prte_default_hostfile": "{node_file}",
        }

    def defaults(self, context: Context) -> dict[str, str]:
        return {
            "PRTE_MCA_hwloc_default_binding_policy": "none",
            "PRTE_MCA_rmaps_default_mapping_policy": "slot",
        }

    def diagnose(self, error: str, peers: Sequence[Peer]) -> Failure | None:
        return None
