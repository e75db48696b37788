"""PVM 3.4: one virtual machine for each job, started by a plain ``pvm`` (or ``pvmd``) in the script.

The console and the library know the daemon's path, so there is nothing to put between; what they and the daemon read
from the environment is enough. ``PVMHOSTFILE`` is the allocation; each node's daemon is started by ``cosched-rsh``,
also for hosts that a program adds later, so a host that is not the job's is refused there; tasks are the daemon's
children, so they are in the job's cgroup and have its environment. The daemons' files are in the job's private
``/tmp``.
"""

import re
from collections.abc import Sequence

from cosched.wire.api import Failure
from cosched.wire.hostfile import peer_named
from cosched.wire.messages import JobFile, Peer
from cosched.wire.version_4 import PVMD, pvm_hosts
from space_scheduler.launch.interface import Context, Launcher

# Where Debian has the group server, which pvm_joingroup spawns.
_SYSTEM = "/usr/lib/pvm3/lib"

# The console's words, and those of the daemon's log: what cosched-rsh said when a daemon was to be started.
_REFUSED = re.compile(
    r"(?:Rsh/Rhosts Access FAILED - \"|stderr@\S+: )(?P<what>cosched-rsh: (?P<host>[^\s:]+): [^\"\n]+)"
)
_NO_SERVICE = re.compile(r"can't getservbyname\(\): exec$", re.MULTILINE)
_NO_DAEMON = re.compile(r"^libpvm \[\S+\]:? .*Can't contact local daemon", re.MULTILINE)


class Pvm(Launcher):
    """``pvm``, ``pvmd`` and programs with ``libpvm3``."""

    name = "PVM 3.4"

    def required(self, context: Context) -> dict[str, str]:
        """The remote shell, a place for the daemon's files, a name of this machine's own; root hears that it may."""
        return {
            "PVM_RSH": "{rsh}",
            "PVM_TMP": "{tmp}",
            "PVM_VMID": f"cosched-{context.job_id}-{context.attempt}",
            "COSCHED_PVMD": "{pvmd}",
            # as it stands: the other node's shell puts its own path there
            "PVM_DPATH": "$COSCHED_PVMD",
            **({"PVM_ALLOW_ROOT": "1"} if context.user == "root" else {}),
        }

    def defaults(self, context: Context) -> dict[str, str]:
        """The allocation as the virtual machine; tasks work and are looked for in the job's directory."""
        places = ["$HOME/pvm3/bin/$PVM_ARCH", _SYSTEM]
        if context.directory and ":" not in context.directory:
            places.insert(0, context.directory)
        return {
            "PVMHOSTFILE": "{pvm_hosts}",
            "PVM_PATH": ":".join(places),
            **({"PVM_WD": context.directory} if context.directory else {}),
        }

    def files(self, context: Context, node: str) -> tuple[JobFile, ...]:
        """The allocation in PVM's format, and what starts its daemon."""
        return pvm_hosts(context.peers, node), PVMD

    def diagnose(self, error: str, peers: Sequence[Peer]) -> Failure | None:
        """Where the script has shown the daemon's log: a host that was refused, or one without the name of a service
        that the daemon looks up before it starts others. A program without a daemon.
        """
        if refused := list(_REFUSED.finditer(error)):
            peer = peer_named(refused[-1]["host"], peers)
            return Failure(message=refused[-1]["what"].strip(), node=peer.name if peer else None)
        if _NO_SERVICE.search(error):
            return Failure(message="PVM starts no other node where /etc/services lacks exec/tcp: install netbase there")
        if _NO_DAEMON.search(error):
            return Failure(message="a PVM program found no daemon: start the virtual machine first (echo quit | pvm)")
        return None
