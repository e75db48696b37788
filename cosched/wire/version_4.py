"""What launchers need on a node, as agents wrote it by themselves until version 4 of the link.

A scheduler of version 4 sends no files (:class:`JobFile`), so an agent of today takes these for its jobs. An agent of
version 4 writes no others, so a scheduler of today leaves out of its environment what stands for others. The launchers
of that time use the same texts; a later one has its own in its class (``space_scheduler/launch``).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import msgspec

from cosched.wire.hostfile import hostfile
from cosched.wire.messages import LOCAL_VALUES, JobFile, JobSigns, Peer, Prepare, Resize

#: What stands for something of the node's own in an environment that an agent of version 4 is sent.
_VALUES: Final = frozenset(
    {"{node_file}", "{mpich_hosts}", "{pvm_hosts}", "{rsh}", "{rank}", "{pvmd}", "{interface}", "{tmp}"}
)
#: What starts and keeps a node's ranks for MPICH's ``mpiexec``: seen, it is ``JobSigns.hydra``.
HYDRA: Final = "hydra_pmi_proxy"
#: Becomes one rank of an MPI program, once a witness watches it that says which rank it was where it ends badly:
#: ``mpirun`` itself sometimes doesn't. The witness is nobody's child that a program could wait for.
#: Where ``mpirun`` has no input, the rank has none: Open MPI 5.0.11 never closes the pipe that rank 0 would have.
RANK: Final = JobFile(
    "{rank}",
    "cosched-rank",
    """#!/bin/sh
: "$({witness} "$$" "$PPID" prterun orterun mpirun mpiexec &)"
{ read -r daemon <"/proc/$PPID/comm"; } 2>/dev/null
case $daemon in mpirun* | prterun*) [ "/proc/$PPID/fd/0" -ef /dev/null ] && exec </dev/null ;; esac
exec "$@"
""",
    program=True,
)
#: Starts PVM's daemon, on other nodes as the first daemon's remote command. Of one that was killed a file is left, with
#: the path of its socket in it (``pvmtmp000123.0`` is of process 123), and another would not start.
PVMD: Final = JobFile(
    "{pvmd}",
    "cosched-pvmd",
    """#!/bin/sh
for file in "${PVM_TMP:-/tmp}/pvmd.$(id -u)"*; do
    [ -f "$file" ] || continue
    socket=$(cat "$file")
    pid=${socket##*/pvmtmp}
    pid=$(echo "${pid%%.*}" | sed 's/^0*//')
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = pvmd ] || rm -f "$file" "$socket"
done
exec "${PVM_ROOT:-/usr/lib/pvm3}/lib/pvmd" "$@"
""",
    program=True,
)


def node_file(peers: Sequence[Peer]) -> JobFile:
    """The job's nodes, as Open MPI and scripts read them."""
    return JobFile("{node_file}", "nodes", hostfile(peers))


def mpich_hosts(peers: Sequence[Peer]) -> JobFile:
    """The same for MPICH's process manager: ``HOST:TASKS``."""
    return JobFile("{mpich_hosts}", "nodes.mpich", hostfile(peers, "{host}:{tasks}"))


def pvm_hosts(peers: Sequence[Peer], node: str) -> JobFile:
    """The same for PVM on ``node``: names, by which programs know hosts, and the address of each.

    Its daemon finds the line of its own host by the system's host name, so that is the name of ``node`` there.
    """
    address = {peer.name: "127.0.0.1" if len(peers) == 1 else peer.address for peer in peers}
    lines = (f"{'{host_name}' if name == node else name} ip={address[name]}\n" for name in address)
    return JobFile("{pvm_hosts}", "nodes.pvm", "".join(lines))


def files_of(message: Prepare | Resize, node: str) -> tuple[JobFile, ...]:
    """The files that an order brings to ``node``: of a scheduler that sends none, those of version 4."""
    if message.files is not msgspec.UNSET:
        return message.files
    peers = message.peers
    return node_file(peers), mpich_hosts(peers), pvm_hosts(peers, node), RANK, PVMD


def watched_in(prepare: Prepare) -> tuple[str, ...]:
    """The names of processes that the scheduler wants to hear of."""
    return prepare.watched if prepare.files is not msgspec.UNSET else (HYDRA,)


def with_seen(signs: JobSigns, seen: Collection[str]) -> JobSigns:
    """A node's signs with the processes that it has seen of those."""
    return msgspec.structs.replace(signs, seen=tuple(sorted(seen)), hydra=True if HYDRA in seen else msgspec.UNSET)


def seen_in(signs: JobSigns) -> set[str]:
    """The processes that a node has seen, of any version."""
    return {*(signs.seen or ()), *((HYDRA,) if signs.hydra is True else ())}


def known_environment(environment: Mapping[str, str], files: Collection[JobFile]) -> dict[str, str]:
    """The part of an environment that an agent of version 4 or before understands."""
    unknown = ({file.value for file in files} | set(LOCAL_VALUES)) - _VALUES
    return {name: value for name, value in environment.items() if value not in unknown}
