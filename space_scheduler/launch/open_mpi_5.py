"""Open MPI 5 (and its runtime, PRRTE): what a plain ``mpirun`` reads from the environment.

Its ranks read ``OMPI_MCA_`` variables, as those of Open MPI 4 do; ``mpirun`` itself reads ``PRTE_MCA_``.
"""

from space_scheduler.launch.interface import Context
from space_scheduler.launch.open_mpi import OpenMpi, on_network

#: ``mpirun`` ships its own value of this parameter to all daemons with the job, and it overrides theirs; so it names a
#: variable, which each daemon's ranks expand to their own node's ``cosched-rank``. PRRTE splits the value at blanks.
_EXEC_AGENT = "/usr/bin/env -S${COSCHED_RANK_WITNESS}"


class OpenMpi5(OpenMpi):
    """``mpirun`` of Open MPI 5.0."""

    name = "Open MPI 5"

    def required(self, context: Context) -> dict[str, str]:
        """The host file is the allocation, ``cosched-rsh`` the remote shell."""
        return {
            "PRTE_MCA_plm_ssh_agent": "{rsh}",
            "PRTE_MCA_odls_base_exec_agent": _EXEC_AGENT,
            "COSCHED_RANK_WITNESS": "{rank}",
            "PRTE_MCA_prte_default_hostfile": "{node_file}",
            **super().required(context),
        }

    def defaults(self, context: Context) -> dict[str, str]:
        """No binding: a node may be a fraction of a core. Ranks fill the nodes in the host file's order."""
        return {
            "PRTE_MCA_hwloc_default_binding_policy": "none",
            **on_network(context, "PRTE_MCA_prte_if_include"),
            **super().defaults(context),
        }
