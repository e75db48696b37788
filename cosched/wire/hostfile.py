"""The node file: what an agent writes for a job on its node, and what a launcher's host names mean.

One line a node in the allocation's order: ``HOST slots=TASKS``, as Open MPI 4 and 5 read it; ``cut -d' ' -f1`` gives
the hosts. MPICH and PVM have files of their own formats beside it. Hosts are addresses, not names: nothing has to be
looked up, so nothing hangs where no name server answers. A job on a single node gets ``localhost``, which every
launcher starts on without a remote shell, whatever the host is called.
"""

from collections.abc import Sequence

from cosched.wire.messages import Peer


def hostfile(peers: Sequence[Peer]) -> str:
    """The node file's text for a job on ``peers``, the same on all of its nodes."""
    if len(peers) == 1:
        return f"localhost slots={peers[0].tasks}\n"
    return "".join(f"{peer.address} slots={peer.tasks}\n" for peer in peers)


def mpich_hosts(peers: Sequence[Peer]) -> str:
    """The same for MPICH's process manager: ``HOST:TASKS``."""
    if len(peers) == 1:
        return f"localhost:{peers[0].tasks}\n"
    return "".join(f"{peer.address}:{peer.tasks}\n" for peer in peers)


def pvm_hosts(peers: Sequence[Peer], here: str, host_name: str) -> str:
    """The same for PVM: names, by which programs know hosts, and the address of each.

    Its daemon finds the line of its own host by the system's host name, so the node ``here`` has ``host_name``.
    """
    address = {peer.name: "127.0.0.1" if len(peers) == 1 else peer.address for peer in peers}
    return "".join(f"{host_name if peer.name == here else peer.name} ip={address[peer.name]}\n" for peer in peers)


def peer_named(host: str, peers: Sequence[Peer]) -> Peer | None:
    """The peer that a launcher means by ``host``: its name, its address, or its name without the domain.

    Names are compared as DNS does: without case, and without the dot at the end of a whole one.
    """
    host = host.removesuffix(".").lower()
    for peer in peers:
        if host in (peer.name.lower(), peer.address.lower()) or (host == "localhost" and len(peers) == 1):
            return peer
    short = [peer for peer in peers if peer.name.lower().partition(".")[0] == host.partition(".")[0]]
    return short[0] if len(short) == 1 and not host.replace(".", "").isdecimal() else None
