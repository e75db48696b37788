"""A program whose answer says whether every row met every step exactly once, whoever had it.

    counting.py SECONDS_A_STEP DIRECTORY

Row i of ``u`` is (i + 1) · steps, by additions; ``v`` has the same cyclically, ``held`` as Python objects, and
``state`` counts the steps. In DIRECTORY each rank leaves its process number, and the leader where it is. The program
ends once there is a file "enough" there. Prints "right", or fails.
"""

import os
import struct
import sys
import time
from pathlib import Path

import mpi4py
import numpy as np

from cosched import adaptive

mpi4py.rc.threads = False
ROWS, COLUMNS, PIECES = 37, 5, 11


class Held:
    """Pieces: how many steps each has met."""

    def __init__(self) -> None:
        self.steps: dict[int, int] = {}

    def pack(self, key: int) -> bytes:
        return struct.pack("q", self.steps.pop(key))

    def unpack(self, key: int, data: bytes) -> None:
        (self.steps[key],) = struct.unpack("q", data)


def main(seconds: float, place: Path) -> None:
    with adaptive.job() as job:
        (place / f"pid.{job.rank}").write_text(str(os.getpid()))
        u = job.array((ROWS, COLUMNS), np.float64)
        v = job.array(ROWS, np.int64, "cyclic")
        scratch = job.array((ROWS, 2), scratch=True)
        held = Held()
        pieces = job.pieces(PIECES, held.pack, held.unpack)
        held.steps.update(dict.fromkeys(pieces.keys, 0))
        job.state["done"] = 0
        for step in job.range(10**9, u, v):
            assert job.state["done"] == step, (job.state, step)
            assert sorted(held.steps) == list(pieces.keys), (held.steps, pieces.keys)
            assert scratch.local.shape == (len(scratch.rows), 2)
            with job.work():
                u.local[:] += np.arange(1, ROWS + 1)[u.rows.start : u.rows.stop, None]
                v.local[:] += np.array(v.rows, np.int64) + 1
            for key in held.steps:
                held.steps[key] += 1
            job.state["done"] += 1
            assert job.comm.allreduce(len(u.rows)) == ROWS
            assert job.comm.allreduce(len(held.steps)) == PIECES
            if job.leads:
                (place / "new").write_text(f"{step} {job.number} {' '.join(map(str, job.ranks))}")
                (place / "new").rename(place / "step")
            time.sleep(seconds)
            if job.comm.bcast((place / "enough").exists()):
                break
        steps = job.state["done"]
        expected = steps * np.arange(1, ROWS + 1)
        whole, cyclic, all_held = u.gather(), v.gather(), job.comm.gather(held.steps)
        if job.leads:
            assert whole is not None
            assert cyclic is not None
            assert all_held is not None
            assert np.array_equal(whole, np.repeat(expected[:, None], COLUMNS, axis=1)), whole
            assert np.array_equal(cyclic, expected), cyclic
            assert sorted(pair for part in all_held for pair in part.items()) == [(key, steps) for key in range(PIECES)]
            sys.stdout.write("right\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(float(sys.argv[1]), Path(sys.argv[2]))
