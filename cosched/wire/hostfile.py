"""The node file: what an agent writes for a job on its node, and what a launcher's host names mean.

One line a node in the allocation's order: ``HOST slots=TASKS``, as Open MPI 4 and 5 read it; ``cut -d' ' -f1`` gives
the hosts. Other launchers have files of their own formats beside it. Hosts are addresses, not names: nothing has to be
looked up, so nothing hangs where no name server answers. A job on a single node gets ``localhost``, which every
launcher starts on without a remote shell, whatever the host is called.
"""

from collections.abc import Sequence

from cosched.wire.messages import Peer


def hostfile(peers: Sequence[Peer], line: str = "{host} slots={tasks}") -> str:
    """The node file's text for a job on ``peers``, the same on all of its nodes; with another ``line``, that of a
    launcher that wants the same in another format.
    """
    alone = len(peers) == 1
    return "".join(line.format(host="localhost" if alone else each.address, tasks=each.tasks) + "\n" for each in peers)


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
