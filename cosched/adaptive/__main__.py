"""A rehearsal on one machine: a malleable program under mpirun, with this in the place of the nodes' agents.

    python -m cosched.adaptive [--nodes N] [--every SECONDS] [--seed N] -- mpirun -n 4 python3 solver.py

Ranks are said to be on so many nodes, in their order, and the map is drawn anew each time the last one was adopted so
long ago. Prints what was adopted; the exit status is the program's.
"""

import argparse
import os
import random
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from cosched.adaptive import SOCKET
from cosched.adaptive.maps import MAX_LINE_BYTES

_TICK_MS = 20


class Rehearsal:
    """The agents of all nodes in one."""

    def __init__(self, listening: socket.socket, nodes: int, every_s: float, seed: int) -> None:
        self._listening, self._nodes, self._every_s = listening, nodes, every_s
        self._random = random.Random(seed)
        self._ranks = 0
        self._number, self._adopted = 0, 0
        self._line = b""
        self._due_s = 0.0
        self._unread: dict[socket.socket, bytes] = {}

    def serve(self) -> None:
        """Hear what ranks say for a moment; draw a map if it is time."""
        waiting = select.poll()
        by_fd = {each.fileno(): each for each in (self._listening, *self._unread)}
        for fd in by_fd:
            waiting.register(fd, select.POLLIN)
        for fd, _ in waiting.poll(_TICK_MS):
            if by_fd[fd] is self._listening:
                fresh, _ = self._listening.accept()
                self._unread[fresh] = b""
            else:
                self._hear(by_fd[fd])
        if self._ranks and self._adopted == self._number and time.monotonic() >= self._due_s:
            self._draw()

    def _hear(self, rank: socket.socket) -> None:
        try:
            data = rank.recv(MAX_LINE_BYTES)
        except ConnectionResetError:
            data = b""
        if not data:
            del self._unread[rank]
            rank.close()
            return
        *lines, self._unread[rank] = (self._unread[rank] + data).split(b"\n")
        for line in lines:
            self._take(rank, line.decode().split())

    def _take(self, rank: socket.socket, words: list[str]) -> None:
        match words:
            case ["adaptive", "1", number, ranks]:
                self._ranks = int(ranks)
                rank.send(f"node n{int(number) * self._nodes // self._ranks}\n".encode() + self._line)
            case ["adapted", number] if int(number) > self._adopted:
                self._adopted, self._due_s = int(number), time.monotonic() + self._every_s
                say(f"adopted {self._line.decode().strip()}")
            case ["ask", more]:
                say(f"asked for {more}, which is refused here")
                rank.send(b"answer 0 0\n")

    def _draw(self) -> None:
        each = -(-self._ranks // self._nodes)
        shares = [0]
        while not any(shares):
            shares = [self._random.randint(0, each) for _ in range(self._nodes)]
        self._number += 1
        words = " ".join(f"n{node}={cpus}" for node, cpus in enumerate(shares))
        self._line = f"map {self._number} {words}\n".encode()
        for rank in self._unread:
            rank.send(self._line)


def say(message: str) -> None:
    """A line that is not the program's."""
    sys.stderr.write(f"cosched.adaptive: {message}\n")
    sys.stderr.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command to its end; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m cosched.adaptive", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=2, metavar="N", help="say that ranks are on so many nodes (2)")
    parser.add_argument("--every", type=float, default=0.5, metavar="S", help="from one map to the next (0.5)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="other maps (1)")
    parser.add_argument("command", nargs="+", help="mpirun and what follows, after --")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listening:
        path = str(Path(directory, "agent"))
        listening.bind(path)
        listening.listen(64)
        rehearsal = Rehearsal(listening, options.nodes, options.every, options.seed)
        process = subprocess.Popen(options.command, env={**os.environ, SOCKET: path})
        try:
            while process.poll() is None:
                rehearsal.serve()
        except KeyboardInterrupt:
            process.terminate()
        return process.wait()


if __name__ == "__main__":
    sys.exit(main())
