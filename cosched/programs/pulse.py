"""A job that computes and talks in turns, for measuring coscheduling: ``python -m cosched.programs.pulse``.

In each round every rank computes for ``--grain-ms`` of CPU time, then all exchange ``--exchanges`` times: nobody begins
the next round before everybody has ended this one. ``--receive`` says how they wait: by MPI (which polls, or yields, as
its environment says), by a TCP socket in which the kernel lets them sleep (``block``), or by PVM, which sleeps too.

With ``--rounds 0`` it goes on until it is ended. Rank 0 prints a line of JSON now and then, ``{"time_s", "done"}``:
at which time (of the wall clock) how many seconds of computing each rank has behind it. ``--receive none`` is a
competitor that only computes; it needs no launcher.
"""

import argparse
import ctypes
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Sequence

_TOLD_S = 0.05
Exchange = Callable[[], None]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one rank; its exit status."""
    options = _parser().parse_args(arguments)
    if options.receive == "none":
        _run(options, 0, lambda: None)
    elif options.receive == "pvm":
        _by_pvm(options)
    else:
        _by_mpi(options)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m cosched.programs.pulse", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--grain-ms", type=float, required=True)
    parser.add_argument("--exchanges", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=0, help="0: until it is ended")
    parser.add_argument("--receive", choices=("mpi", "block", "pvm", "none"), default="mpi")
    parser.add_argument("--ranks", type=int, default=2, help="of PVM, which has no launcher to say so")
    return parser


def _run(options: argparse.Namespace, rank: int, exchange: Exchange) -> None:
    """The rounds. A rank counts its CPU time, so that grains are the same however often it is interrupted."""
    grain_s = options.grain_ms / 1000
    tell_s = 0.0
    done = 0
    for _ in range(options.exchanges):
        exchange()  # all are there
    while True:
        now_s = time.time()
        if rank == 0 and (now_s >= tell_s or done == options.rounds > 0):
            sys.stdout.write(json.dumps({"time_s": now_s, "done": round(done * grain_s, 6)}) + "\n")
            sys.stdout.flush()
            tell_s = now_s + _TOLD_S
        if done == options.rounds > 0:
            return
        end_s = time.thread_time() + grain_s
        while time.thread_time() < end_s:
            pass
        for _ in range(options.exchanges):
            exchange()
        done += 1


def _by_mpi(options: argparse.Namespace) -> None:
    import mpi4py  # noqa: PLC0415 (an extra)

    mpi4py.rc.threads = False
    from mpi4py import MPI  # noqa: PLC0415 (starts MPI)

    world = MPI.COMM_WORLD
    rank, size = world.Get_rank(), world.Get_size()
    if options.receive == "mpi":
        send, receive = bytearray(8), bytearray(8 * size)
        _run(options, rank, lambda: world.Allgather(send, receive))
        return
    # a star of TCP connections, made known by MPI, which then has nothing to do any more
    listening = socket.create_server((_address(), 0), backlog=size) if rank == 0 else None
    place = world.bcast(listening.getsockname() if listening else None)
    peers = []
    if listening is not None:
        peers = [listening.accept()[0] for _ in range(size - 1)]
    else:
        peers = [socket.create_connection(place[:2])]
    for peer in peers:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    _run(options, rank, _star(peers, hub=rank == 0))
    world.Barrier()


def _star(peers: list[socket.socket], *, hub: bool) -> Exchange:
    def at_hub() -> None:
        for peer in peers:
            _byte_of(peer)
        for peer in peers:
            peer.sendall(b"!")

    def at_rim() -> None:
        peers[0].sendall(b"?")
        _byte_of(peers[0])

    return at_hub if hub else at_rim


def _byte_of(peer: socket.socket) -> None:
    if not peer.recv(1):
        sys.exit("a peer has gone")


def _address() -> str:
    """This node's address on the network that ranks talk over."""
    return socket.gethostbyname(os.environ.get("COSCHED_NODE") or socket.gethostname())


def _by_pvm(options: argparse.Namespace) -> None:
    """Task 0 spawns the others, one on each further host; then a star, as with TCP."""
    pvm = ctypes.CDLL("libpvm3.so.3")
    _checked(pvm.pvm_mytid(), "pvm_mytid")
    parent = pvm.pvm_parent()
    count = options.ranks - 1

    def send(tid: int) -> None:
        _checked(pvm.pvm_initsend(0), "pvm_initsend")
        _checked(pvm.pvm_send(tid, 1), "pvm_send")

    def receive(tid: int) -> None:
        _checked(pvm.pvm_recv(tid, 1), "pvm_recv")

    if parent >= 0:

        def at_rim() -> None:
            send(parent)
            receive(parent)

        _run(options, 1, at_rim)
    else:
        own = ["-P", "-m", "cosched.programs.pulse", *sys.argv[1:]]
        argv = (ctypes.c_char_p * (len(own) + 1))(*[each.encode() for each in own], None)
        tids = (ctypes.c_int * count)()
        not_here = os.environ.get("COSCHED_NODE", ".").encode()
        flags = 1 | 32  # PvmTaskHost, PvmHostCompl: anywhere but on this host
        started = pvm.pvm_spawn(sys.executable.encode(), argv, flags, not_here, count, tids)
        if started != count:
            sys.exit(f"pvm_spawn started {started} of {count} tasks: {list(tids)}")

        def at_hub() -> None:
            for tid in tids:
                receive(tid)
            for tid in tids:
                send(tid)

        _run(options, 0, at_hub)
    pvm.pvm_exit()


def _checked(result: int, what: str) -> int:
    if result < 0:
        sys.exit(f"{what}: PVM's error {result}")
    return result


if __name__ == "__main__":
    sys.exit(main())
