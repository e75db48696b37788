"""MPICH (and its process manager, Hydra): what a plain ``mpiexec`` reads from the environment.

Hydra has a host file of its own format, and wants interfaces by name, so each node says its own. Debian's MPICH 4.0.2
may hang at the end of a program that is right: docs/guide/launchers.md has the cause and the remedy.
"""

import re
from collections.abc import Collection, Sequence
from typing import ClassVar

from cosched.wire.api import Failure
from cosched.wire.hostfile import peer_named
from cosched.wire.messages import JobFile, Peer
from cosched.wire.version_4 import HYDRA, mpich_hosts
from space_scheduler.launch.interface import Context, Launcher
from space_scheduler.launch.open_mpi_reports import node_of_rank

_ABORT = re.compile(
    r"^Abort\(-?\d+\) on node (?P<rank>\d+) \(rank \d+ in comm \S+\): (?P<what>.*?)(?:, error stack)?:?$", re.MULTILINE
)
_CALLED = re.compile(r"application called MPI_Abort\(.*, (?P<code>-?\d+)\)")
_CAUGHT = re.compile(
    r"^\[(?P<host>[^:\]]+):\d+ *:\d+:\d+\] Caught signal (?P<signal>\d+) \((?P<name>[^:)]+)", re.MULTILINE
)
_MISSING = re.compile(
    r"^\[proxy:\S+@(?P<host>[^\]]+)\] HYDU_create_process .*: execvp error on file (?P<program>.+) \((?P<why>.+)\)$",
    re.MULTILINE,
)

_ENDED = re.compile(r"^\[mpiexec@", re.MULTILINE)
_BY_NAME = re.compile(r"^[^#\n]*(?<![\w.-])(?:mpiexec|mpirun)\.(?:mpich|hydra)\b", re.MULTILINE)


class Mpich(Launcher):
    """``mpiexec`` and ``mpirun`` of MPICH 4."""

    name = "MPICH"
    watched = (HYDRA,)
    spin: ClassVar = {"MPIR_CVAR_POLLS_BEFORE_YIELD": "1000"}

    def required(self, context: Context) -> dict[str, str]:
        """The host file is the allocation, ``cosched-rsh`` the remote shell."""
        return {"HYDRA_LAUNCHER": "ssh", "HYDRA_LAUNCHER_EXEC": "{rsh}", "HYDRA_HOST_FILE": "{mpich_hosts}"}

    def defaults(self, context: Context) -> dict[str, str]:
        """Messages travel by TCP over the node's own interface on the job's network, also inside a node.

        ``HYDRA_ENV``: ranks have the environment that the job has on their node, not that of the first one.
        """
        return {
            "HYDRA_IFACE": "{interface}",
            "HYDRA_ENV": "none",
            "UCX_TLS": "tcp,self",
            "UCX_NET_DEVICES": "{interface}",
            "MPIR_CVAR_NOLOCAL": "1",
        }

    def files(self, context: Context, node: str) -> tuple[JobFile, ...]:
        """The allocation in Hydra's format."""
        return (mpich_hosts(context.peers),)

    def diagnose(self, error: str, peers: Sequence[Peer]) -> Failure | None:
        """What the ranks' library says, or the proxies. What ``mpiexec`` sees of a bad end is on standard output."""
        if aborted := list(_ABORT.finditer(error)):
            rank, what = int(aborted[-1]["rank"]), aborted[-1]["what"]
            node = node_of_rank(rank, peers)
            called = _CALLED.search(what)
            how = f"called MPI_Abort with error code {called['code']}" if called else f"stopped at {what}"
            return Failure(message=f"rank {rank}{f' on {node}' if node else ''} {how}", node=node, rank=rank)
        if caught := list(_CAUGHT.finditer(error)):
            node = _node(caught[-1], peers)
            how = f"was ended by signal {caught[-1]['signal']} ({caught[-1]['name']})"
            return Failure(message=f"a rank{f' on {node}' if node else ''} {how}", node=node)
        if missing := list(_MISSING.finditer(error)):
            node = _node(missing[-1], peers)
            where = node or missing[-1]["host"]
            return Failure(
                message=f"mpiexec found no program {missing[-1]['program']} that can be run on {where}", node=node
            )
        return None

    def hang(self, error: str, script: str, seen: Collection[str]) -> str:
        """The hang in ``MPI_Finalize``. ``mpiexec`` mostly complains when it is ended, and not always."""
        if HYDRA not in seen and not _ENDED.search(error) and not _BY_NAME.search(script):
            return ""
        return (
            "if its output is complete, it hung in MPI_Finalize, as MPICH 4.0 may: link or preload mpich_finalize.c "
            "(docs/guide/launchers.md), or use Open MPI"
        )


def _node(match: re.Match[str], peers: Sequence[Peer]) -> str | None:
    peer = peer_named(match["host"], peers)
    return peer.name if peer else None
