"""The node file: what an agent writes for a job on its node, and what a launcher's host names mean.

One line a node in the allocation's order: ``HOST slots=TASKS``, as Open MPI 4 and 5 read it; ``cut -d' ' -f1`` gives
the hosts. Hosts are addresses, not names: nothing has to be looked up, so nothing hangs where no name server answers. A
job on a single node gets ``localhost``, which every launcher starts on without a remote shell, whatever the host is
called.
"""

from collections.abc import Sequence

from cosched.wire.messages import Peer


def hostfile(peers: Sequence[Peer]) -> str:
    """The node file's text for a job on ``peers``, the same on all of its nodes."""
    if len(peers) == 1:
        return f"localhost slots={peers[0].tasks}\n"
    return "".join(f"{peer.address} slots={peer.tasks}\n" for peer in peers)


def peer_named(host: str, peers: Sequence[Peer]) -> Peer | None:
    """The peer that a launcher means by ``host``: its name, its address, or its name without the domain."""
    for peer in peers:
        if host in (peer.name, peer.address) or (host == "localhost" and len(peers) == 1):
            return peer
    short = [peer for peer in peers if peer.name.partition(".")[0] == host.partition(".")[0]]
    return short[0] if len(short) == 1 and not host.replace(".", "").isdecimal() else None
